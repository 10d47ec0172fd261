//! Failover to be watched: programs use a volume while daemons are killed, frozen, drained and restarted, and what they noticed is told at the end.
//!
//! The load, the events and the verification are those of [`failover`](crate::failover).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::NodeId;
use serde::Serialize;

use crate::control::Control;
use crate::failover::load::{Gauge, Hand, Hands, Ledger, appender, creator, reader, writer};
use crate::failover::seat::Seat;
use crate::failover::{Event, FailoverError, Stage, millis};

/// How often the display is given something new.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often daemons are asked how many leases they have.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Parts of the whole time.
const CALM_PARTS: u32 = 10;
const AFTERWARDS_PARTS: u32 = 6;
/// However short the whole is, programs go on for so long before and after an event.
const PART_MIN: Duration = Duration::from_millis(1_500);
/// Writers and readers rest so long between two calls.
const PAUSE: Duration = Duration::from_millis(1);
/// Whoever creates files rests longer: each is opened and read again in the end.
const CREATOR_PAUSE: Duration = Duration::from_millis(10);

/// How many leases each daemon has; none if it does not say.
pub type Leases = Vec<(NodeId, Option<u64>)>;

/// What there is to see at a moment.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Since the load began.
    pub elapsed: Duration,
    /// What goes on.
    pub step: String,
    /// What has just happened to a daemon, once.
    pub news: Option<String>,
    /// Writes, each of them synced, in the last second.
    pub writes_per_s: u64,
    /// Reads.
    pub reads_per_s: u64,
    /// 99 of the last hundred writes took no longer.
    pub write_p99: Duration,
    /// The same of reads.
    pub read_p99: Duration,
    /// Who is primary of how much.
    pub primaries: Leases,
    /// Bytes that were acknowledged so far.
    pub acked_bytes: u64,
    /// Calls that failed so far.
    pub errors: u64,
}

/// What programs noticed of an event.
#[derive(Clone, Debug, Serialize)]
pub struct Happened {
    /// What happened.
    pub event: Event,
    /// To which daemon.
    pub daemon: NodeId,
    /// The longest call of a writer.
    pub writer_stall_ms: f64,
    /// The longest call of a reader.
    pub reader_stall_ms: f64,
    /// The longest call of anybody before the event.
    pub quiet_stall_ms: f64,
    /// What is promised.
    pub bound_ms: f64,
    /// The longest overshoot of a timer that does nothing else.
    pub control_stall_ms: f64,
    /// The longest append of 4 KiB with its `fdatasync` beside the daemons' data.
    pub disk_stall_ms: f64,
    /// Whether the machine itself stalled, so that nothing is said of the stalls.
    pub void: bool,
}

impl Happened {
    /// Whether what is promised was kept, as far as that can be told.
    pub fn is_kept(&self) -> bool {
        self.void || self.writer_stall_ms.max(self.reader_stall_ms) <= self.bound_ms
    }
}

/// What came of it all.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Whether everything was as promised.
    pub ok: bool,
    /// `mount`, or `library` where nothing could be mounted.
    pub over: &'static str,
    /// How long the load went on.
    pub seconds: f64,
    /// Calls that were answered.
    pub operations: u64,
    /// What happened, in its order.
    pub happened: Vec<Happened>,
    /// Calls that failed.
    pub errors: u64,
    /// What the first of them said.
    pub error_texts: Vec<String>,
    /// Files that were written to.
    pub files_checked: u64,
    /// Bytes that were acknowledged, and read again.
    pub bytes_checked: u64,
    /// Those of them that were not there, or others.
    pub bytes_lost: u64,
}

/// Runs the demonstration for about so long. `show` is given something to show now and then.
pub fn run(
    stage: &mut Stage<'_>,
    length: Duration,
    show: &mut dyn FnMut(&Look),
) -> Result<Verdict, FailoverError> {
    stage.wait_until_well(&mut || ())?;
    let mut show = Show::new(stage, show);
    let hands = load(&stage.seats, &show.board);
    let played = play(stage, length, &mut show);
    let (seconds, stopped) = (show.begun.elapsed().as_secs_f64(), stage.stop_hands(&hands));
    let happened = played?;
    stopped?;
    let board = Arc::clone(&show.board);
    show.step("reading every acknowledged byte");
    let checked = stage.check(&board.ledger, &mut |_| show.look())?;
    let (errors, error_texts) = board.ledger.errors();
    let is_kept = happened.iter().all(Happened::is_kept);
    Ok(Verdict {
        ok: is_kept && errors == 0 && checked.lost == 0 && checked.bytes > 0,
        over: stage.over(),
        seconds: (seconds * 10.0).round() / 10.0,
        operations: board.writes.count() + board.reads.count(),
        happened,
        errors,
        error_texts,
        files_checked: checked.files,
        bytes_checked: checked.bytes,
        bytes_lost: checked.lost,
    })
}

/// Kills, freezes, and drains and restarts, each another daemon.
fn play(
    stage: &mut Stage<'_>,
    length: Duration,
    show: &mut Show<'_>,
) -> Result<Vec<Happened>, FailoverError> {
    let (calm, afterwards) = (PART_MIN.max(length / CALM_PARTS), PART_MIN.max(length / AFTERWARDS_PARTS));
    let mut happened = Vec::new();
    let mut left: Vec<NodeId> = stage.config.map.osds().map(|osd| osd.id).collect();
    show.step("all is well");
    for event in [Event::Crash, Event::Freeze, Event::Drain] {
        show.board.reset();
        stage.watch(calm, &mut || show.look())?;
        let quiet = show.board.stalls().into_iter().max().unwrap_or_default();
        let Some(daemon) = show.busiest(&left, stage.primary()?) else { break };
        left.retain(|other| *other != daemon);
        happened.push(one(stage, (event, daemon), (quiet, afterwards), show)?);
    }
    Ok(happened)
}

fn one(
    stage: &mut Stage<'_>,
    (event, daemon): (Event, NodeId),
    (quiet, afterwards): (Duration, Duration),
    show: &mut Show<'_>,
) -> Result<Happened, FailoverError> {
    let (what, then) = match event {
        Event::Crash => ("killed (SIGKILL)", "its supervisor starts it again"),
        Event::Freeze => ("frozen (SIGSTOP)", "nobody says so: its leases have to run out"),
        _ => ("drained, stopped (SIGTERM) and started again", "the others have its leases before it goes"),
    };
    show.news(format!("daemon {daemon} is {what}: {then}"));
    show.board.reset();
    let control = Control::start(&stage.folder)?;
    let victim = daemon.0 as usize;
    event.begin(stage.daemons, victim)?;
    let watched = stage.watch(event.lasts(stage.config).max(afterwards), &mut || show.look());
    event.end(stage.daemons, victim)?;
    watched?;
    if event == Event::Freeze {
        show.news(format!("daemon {daemon} goes on (SIGCONT)"));
    }
    stage.wait_until_well(&mut || show.look())?;
    stage.watch(PART_MIN, &mut || show.look())?;
    let ([writer, reader], machine) = (show.board.stalls(), control.end());
    show.step("all is well again");
    Ok(Happened {
        event,
        daemon,
        writer_stall_ms: millis(writer),
        reader_stall_ms: millis(reader),
        quiet_stall_ms: millis(quiet),
        bound_ms: millis(event.bound(stage.config, quiet)),
        control_stall_ms: millis(machine.timer),
        disk_stall_ms: millis(machine.disk),
        void: machine.void(),
    })
}

/// What all programs have in common.
#[derive(Default)]
struct Board {
    writes: Arc<Gauge>,
    reads: Arc<Gauge>,
    ledger: Arc<Ledger>,
}

impl Board {
    fn reset(&self) {
        self.writes.reset();
        self.reads.reset();
    }

    fn stalls(&self) -> [Duration; 2] {
        let now = Instant::now();
        [self.writes.worst(now).0, self.reads.worst(now).0]
    }
}

/// Programs of several kinds: two that write blocks, two that append, one that creates files, two that read whatever there is.
fn load([near, far]: &[Seat; 2], board: &Board) -> Hands {
    let hand = |name: &str, seat: &Seat, pause| Hand {
        seat: seat.clone(),
        gauge: Arc::clone(if name.starts_with("reader") { &board.reads } else { &board.writes }),
        ledger: Arc::clone(&board.ledger),
        name: name.to_owned(),
        pause,
    };
    let mut hands = Hands::new();
    hands.add(hand("blocks-near", near, PAUSE), writer());
    hands.add(hand("blocks-far", far, PAUSE), writer());
    hands.add(hand("log-near", near, PAUSE), appender());
    hands.add(hand("log-far", far, PAUSE), appender());
    hands.add(hand("small", near, CREATOR_PAUSE), creator(1));
    hands.add(hand("reader-near", near, PAUSE), reader(2, None));
    hands.add(hand("reader-far", far, PAUSE), reader(3, None));
    hands
}

/// Makes something to look at of what goes on.
struct Show<'a> {
    board: Arc<Board>,
    begun: Instant,
    look: Look,
    shown: Instant,
    /// When the last second began, and how many writes and reads there had been.
    second: (Instant, u64, u64),
    asking: Asking,
    show: &'a mut dyn FnMut(&Look),
}

impl<'a> Show<'a> {
    fn new(stage: &Stage<'_>, show: &'a mut dyn FnMut(&Look)) -> Self {
        let now = Instant::now();
        Self {
            board: Arc::default(),
            begun: now,
            look: Look::default(),
            shown: now,
            second: (now, 0, 0),
            asking: Asking::start(stage),
            show,
        }
    }

    fn step(&mut self, step: &str) {
        step.clone_into(&mut self.look.step);
        self.show_now();
    }

    fn news(&mut self, news: String) {
        self.look.step.clone_from(&news);
        self.look.news = Some(news);
        self.show_now();
        self.look.news = None;
    }

    /// Shows how it is, unless that was just done.
    fn look(&mut self) {
        if self.shown.elapsed() >= LOOK_EVERY {
            self.show_now();
        }
    }

    fn show_now(&mut self) {
        let (writes, reads) = (self.board.writes.count(), self.board.reads.count());
        let (since, writes_then, reads_then) = self.second;
        if since.elapsed() >= Duration::from_secs(1) {
            let passed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let per_s = |count: u64, then: u64| (count - then) * 1_000 / passed_ms.max(1);
            (self.look.writes_per_s, self.look.reads_per_s) =
                (per_s(writes, writes_then), per_s(reads, reads_then));
            self.second = (Instant::now(), writes, reads);
        }
        self.look.elapsed = self.begun.elapsed();
        self.look.write_p99 = self.board.writes.recent(99);
        self.look.read_p99 = self.board.reads.recent(99);
        self.look.primaries = self.asking.told();
        self.look.acked_bytes = self.board.ledger.acknowledged_bytes();
        self.look.errors = self.board.ledger.errors().0;
        self.shown = Instant::now();
        (self.show)(&self.look);
    }

    /// Who of these has most leases, and of several whoever has the volume's.
    fn busiest(&self, of: &[NodeId], primary: NodeId) -> Option<NodeId> {
        let told = self.asking.told();
        let leases =
            |node: &NodeId| told.iter().find(|(other, _)| other == node).and_then(|(_, leases)| *leases);
        of.iter().copied().max_by_key(|node| (leases(node), *node == primary))
    }
}

/// A thread that asks the daemons how many leases they have. One that stands still does not hold up anybody else.
struct Asking {
    told: Arc<Mutex<Leases>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    fn start(stage: &Stage<'_>) -> Self {
        let (told, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(AtomicBool::new(false)));
        let (tell, ends, ask) = (Arc::clone(&told), Arc::clone(&stop), stage.asker());
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let leases = ask()
                    .into_iter()
                    .map(|state| (state.node, state.status.ok().map(|status| status.leases.primaries)));
                *tell.lock().unwrap_or_else(PoisonError::into_inner) = leases.collect();
                std::thread::sleep(ASK_EVERY);
            }
        });
        Self { told, stop, thread: Some(thread) }
    }

    fn told(&self) -> Leases {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It asks for two seconds at most.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
