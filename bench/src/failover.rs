//! What programs notice when daemons fail: real processes, killed, frozen, stopped and cut off under load.
//!
//! A writer writes 4 KiB and syncs, again and again; one reader reads the same file through another mount, and one reads other files. The
//! daemon that everything they use depends on is the one to which something happens. How long their longest call takes is the
//! stall. All that was acknowledged is read again afterwards.

mod event;
pub(crate) mod load;
mod plot;
pub(crate) mod seat;
pub(crate) mod stage;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use event::Event;
pub use plot::plot;
use serde::Serialize;
pub use stage::{Access, Stage};

use crate::control::{Control, Stalls, VOID_PERCENT_MAX};
use crate::netns::NamespaceError;
use load::{BLOCK, Gauge, Hand, Hands, Ledger, content, reader, writer_of};
use seat::Opened;

/// Before an event programs are watched for so long, which says what calls take anyway.
const QUIET: Duration = Duration::from_millis(1_500);
/// After an event they go on for so long.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// A file that depends on a given daemon is found in so many, or this cluster is a strange one.
const FILES_MAX: u32 = 64;
/// So many files are read beside the one that is written.
const OTHERS: u32 = 4;
/// Programs do something with what they read and write.
const PAUSE: Duration = Duration::from_millis(1);
const OTHER_BYTES: usize = 64 << 10;

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FailoverError {
    /// No client.
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    /// A process, or a file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No network to be cut.
    #[error(transparent)]
    Namespaces(#[from] NamespaceError),
    /// The cluster did not come back.
    #[error("the daemons were not well {0:?} after an event: {1}; their logs say more")]
    NotReady(Duration, String),
    /// Nobody answers for the volume.
    #[error("no daemon answers for the volume")]
    NoPrimary,
    /// Nothing came of a call.
    #[error("a program waits for an answer {0:?} after everything was well again")]
    Stuck(Duration),
    /// From outside.
    #[error("interrupted")]
    Interrupted,
}

/// What came of one kind of event. Times are of the rounds that count.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Which.
    pub event: Event,
    /// `mount`, or `library` where nothing could be mounted.
    pub over: &'static str,
    /// Rounds that count.
    pub rounds: u32,
    /// Rounds in which the machine itself stalled.
    pub void_rounds: u32,
    /// The middle one of the writer's longest stalls.
    pub writer_stall_p50_ms: f64,
    /// The longest.
    pub writer_stall_max_ms: f64,
    /// The middle one of the readers' longest stalls.
    pub reader_stall_p50_ms: f64,
    /// The longest.
    pub reader_stall_max_ms: f64,
    /// The longest stall of anybody before the events.
    pub quiet_stall_max_ms: f64,
    /// The longest overshoot of a timer that does nothing else, in all rounds.
    pub control_stall_max_ms: f64,
    /// The longest append of 4 KiB with its `fdatasync` beside the daemons' data, in all rounds.
    pub disk_stall_max_ms: f64,
    /// What is allowed.
    pub bound_ms: f64,
    /// Bytes that were acknowledged in all rounds, and read again.
    pub acked_bytes: u64,
    /// Those of them that were not there, or others.
    pub acked_lost: u64,
    /// Calls that failed.
    pub errors: u64,
    /// What the first of them said.
    pub error_texts: Vec<String>,
    /// Each round that counts: the longest stall of the writer, that of the reader of its file, and that of the reader of others.
    pub stalls_ms: Vec<[f64; 3]>,
    /// The same of the rounds that are void.
    pub void_stalls_ms: Vec<[f64; 3]>,
}

impl Figures {
    /// What misses its bar.
    pub fn shortfalls(&self) -> Vec<String> {
        let (event, mut missed) = (self.event.name(), Vec::new());
        let stalls = [("writer", self.writer_stall_max_ms), ("reader", self.reader_stall_max_ms)];
        for (who, stall_ms) in stalls.into_iter().filter(|(_, stall_ms)| *stall_ms > self.bound_ms) {
            missed.push(format!(
                "{event}: a {who} waited {stall_ms} ms, at most {} are allowed",
                self.bound_ms
            ));
        }
        if self.acked_lost > 0 || self.errors > 0 {
            missed.push(format!(
                "{event}: {} acknowledged bytes lost, {} errors",
                self.acked_lost, self.errors
            ));
        }
        if self.acked_bytes == 0 {
            missed.push(format!("{event}: nothing was acknowledged, so nothing is shown"));
        }
        if self.void_rounds * 100 > (self.rounds + self.void_rounds) * VOID_PERCENT_MAX {
            let void = self.void_rounds;
            missed.push(format!("{event}: {void} rounds are void because the machine stalled; run it alone"));
        }
        missed
    }
}

/// What one round came to.
struct Round {
    stalls: [Duration; 3],
    quiet: Duration,
    machine: Stalls,
}

/// Has an event happen in so many rounds.
pub fn run(
    stage: &mut Stage<'_>,
    (event, rounds): (Event, u32),
    mut progress: impl FnMut(&str),
) -> Result<Figures, FailoverError> {
    let mut played = Vec::new();
    let (mut quiet, mut machine) = (Duration::ZERO, Stalls::default());
    let (mut acked_bytes, mut acked_lost, mut errors, mut error_texts) = (0, 0, 0, Vec::new());
    for number in 1..=rounds {
        progress(&format!("{}, round {number} of {rounds}", event.name()));
        let ledger = Arc::new(Ledger::default());
        let round = play(stage, event, &ledger)?;
        progress(&format!("{}, round {number} of {rounds}: reading what was acknowledged", event.name()));
        let checked = stage.check(&ledger, &mut |_| ())?;
        let (failed, texts) = ledger.errors();
        acked_bytes += checked.bytes;
        acked_lost += checked.lost;
        errors += failed;
        error_texts.extend(texts);
        (quiet, machine) = (quiet.max(round.quiet), machine.max(round.machine));
        played.push(round);
    }
    let (void, counted): (Vec<Round>, Vec<Round>) =
        played.into_iter().partition(|round| round.machine.void());
    let stalls = |who: fn(&[Duration; 3]) -> Duration| {
        let mut all: Vec<Duration> = counted.iter().map(|round| who(&round.stalls)).collect();
        all.sort_unstable();
        let middle = all.get(all.len() / 2).copied().unwrap_or_default();
        (millis(middle), millis(all.last().copied().unwrap_or_default()))
    };
    let (writer_stall_p50_ms, writer_stall_max_ms) = stalls(|[writer, ..]| *writer);
    let (reader_stall_p50_ms, reader_stall_max_ms) = stalls(|[_, same, other]| *same.max(other));
    let all_ms = |rounds: &[Round]| rounds.iter().map(|round| round.stalls.map(millis)).collect();
    let void_rounds = u32::try_from(void.len()).unwrap_or(rounds);
    Ok(Figures {
        event,
        over: stage.over(),
        rounds: rounds - void_rounds,
        void_rounds,
        writer_stall_p50_ms,
        writer_stall_max_ms,
        reader_stall_p50_ms,
        reader_stall_max_ms,
        quiet_stall_max_ms: millis(quiet),
        control_stall_max_ms: millis(machine.timer),
        disk_stall_max_ms: millis(machine.disk),
        bound_ms: millis(event.bound(stage.config, quiet)),
        acked_bytes,
        acked_lost,
        errors,
        error_texts,
        stalls_ms: all_ms(&counted),
        void_stalls_ms: all_ms(&void),
    })
}

/// One round.
fn play(stage: &mut Stage<'_>, event: Event, ledger: &Arc<Ledger>) -> Result<Round, FailoverError> {
    stage.wait_until_well(&mut || ())?;
    let victim = stage.primary()?;
    let mut files = Files { stage, ledger, victim, round: new_name(), count: 0 };
    let (written, opened) = files.one_more()?;
    for _ in 0..OTHERS {
        let (name, opened) = files.one_more()?;
        opened.write(0, &content(&name, 0, OTHER_BYTES))?;
        opened.sync()?;
        opened.close()?;
        ledger.acknowledge(&name, OTHER_BYTES as u64);
    }
    let gauges: [Arc<Gauge>; 3] = Default::default();
    let [near, far] = stage.seats.clone();
    let hand = |name: &str, seat, gauge: &Arc<Gauge>| {
        let (gauge, ledger) = (Arc::clone(gauge), Arc::clone(ledger));
        Hand { seat, gauge, ledger, name: name.to_owned(), pause: PAUSE }
    };
    let mut hands = Hands::new();
    hands.add(hand("the writer", near.clone(), &gauges[0]), writer_of(Arc::clone(&written), opened));
    hands.add(hand("the reader of the same file", far, &gauges[1]), reader(1, Some(written)));
    hands.add(hand("the reader of other files", near, &gauges[2]), reader(2, None));
    let measured = measure(stage, (event, victim.0 as usize), &gauges);
    let stopped = stage.stop_hands(&hands);
    let round = measured?;
    stopped?;
    Ok(round)
}

fn measure(
    stage: &mut Stage<'_>,
    (event, victim): (Event, usize),
    gauges: &[Arc<Gauge>; 3],
) -> Result<Round, FailoverError> {
    let worst = |before| gauges.each_ref().map(|gauge| gauge.worst(before).0);
    // The first calls find out whom to ask.
    stage.watch(AFTERWARDS, &mut || ())?;
    gauges.iter().for_each(|gauge| gauge.reset());
    stage.watch(QUIET, &mut || ())?;
    let quiet = worst(Instant::now()).into_iter().max().unwrap_or_default();
    gauges.iter().for_each(|gauge| gauge.reset());
    let control = Control::start(&stage.folder)?;
    event.begin(stage.daemons, victim)?;
    let watched = stage.watch(event.lasts(stage.config), &mut || ());
    event.end(stage.daemons, victim)?;
    watched?;
    stage.wait_until_well(&mut || ())?;
    stage.watch(AFTERWARDS, &mut || ())?;
    let stalls = worst(Instant::now());
    Ok(Round { stalls, quiet, machine: control.end() })
}

/// Files whose content begins at the daemon to which something is to happen.
struct Files<'a, 'b> {
    stage: &'a Stage<'b>,
    ledger: &'a Ledger,
    victim: base::NodeId,
    round: String,
    count: u32,
}

impl Files<'_, '_> {
    fn one_more(&mut self) -> Result<(Arc<str>, Opened), FailoverError> {
        for _ in 0..FILES_MAX {
            self.count += 1;
            let name: Arc<str> = format!("{}-{}", self.round, self.count).into();
            let opened = self.stage.seats[0].create(&name)?;
            if self.stage.preferred(&name)? == self.victim {
                opened.write(0, &content(&name, 0, BLOCK))?;
                opened.sync()?;
                self.ledger.acknowledge(&name, BLOCK as u64);
                return Ok((name, opened));
            }
            opened.close()?;
        }
        Err(FailoverError::NoPrimary)
    }
}

/// A name that no round before had.
fn new_name() -> String {
    static ROUNDS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    format!("round-{}", ROUNDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

/// To a hundredth.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e5).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Figures {
        Figures {
            event: Event::Crash,
            over: "mount",
            rounds: 5,
            void_rounds: 0,
            writer_stall_p50_ms: 20.0,
            writer_stall_max_ms: 150.0,
            reader_stall_p50_ms: 20.0,
            reader_stall_max_ms: 40.0,
            quiet_stall_max_ms: 10.0,
            control_stall_max_ms: 5.0,
            disk_stall_max_ms: 5.0,
            bound_ms: 150.0,
            acked_bytes: 1,
            acked_lost: 0,
            errors: 0,
            error_texts: Vec::new(),
            stalls_ms: Vec::new(),
            void_stalls_ms: Vec::new(),
        }
    }

    #[test]
    fn what_misses_its_bar_is_said() {
        assert_eq!(good().shortfalls(), [""; 0]);
        for (figures, expected) in [
            (Figures { writer_stall_max_ms: 151.0, ..good() }, "a writer waited 151 ms"),
            (Figures { reader_stall_max_ms: 151.0, ..good() }, "a reader waited 151 ms"),
            (Figures { acked_lost: 1, ..good() }, "1 acknowledged bytes lost"),
            (Figures { errors: 1, ..good() }, "1 errors"),
            (Figures { acked_bytes: 0, ..good() }, "nothing was acknowledged"),
            (Figures { rounds: 3, void_rounds: 1, ..good() }, "1 rounds are void"),
            (Figures { rounds: 0, void_rounds: 5, ..good() }, "5 rounds are void"),
        ] {
            let missed = figures.shortfalls();
            assert!(missed.len() == 1 && missed[0].contains(expected), "{missed:?} lack {expected}");
        }
        assert_eq!(Figures { rounds: 4, void_rounds: 1, ..good() }.shortfalls(), [""; 0]);
    }
}
