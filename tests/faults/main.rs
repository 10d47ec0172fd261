//! Programs on three mounts while daemons, their supervisors and mounts are killed, frozen and cut off, daemons drained and started again, clocks wrong,
//! and disks slow and full. No error reaches them but that a full disk is full; what each call to files and directories came to could have
//! come of a single copy, and what was written is there.
//!
//! A few things happen with the other tests. `FLEASEFS_EVENTS` is how many, and `FLEASEFS_SEED` what they are drawn from:
//!
//! ```sh
//! FLEASEFS_EVENTS=100 cargo test --test faults -- --nocapture
//! ```
//!
//! ```text
//! machines  daemons and mounts, side by side or each on a machine of its own
//! disk      disks of such machines
//! events    what happens
//! players   programs that use what all use, call by call
//! ledger    programs that keep something of their own
//! tree      what directories are
//! ```
#![expect(clippy::print_stdout, reason = "what happened when is a result")]

mod disk;
mod events;
mod ledger;
mod machines;
mod players;
#[path = "../mounts/support.rs"]
#[expect(dead_code, reason = "other tests want more of it")]
mod support;
mod tree;

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use base::Random;
use bench::netns::NamespaceError;

use events::{Event, Stage};
use machines::Machines;
use players::Recorder;

/// Histories are judged after so many, because the time that takes grows faster than they do.
const EVENTS_JUDGED: usize = 3;
/// How long nothing happens between two.
const QUIET: Duration = Duration::from_millis(700);

#[test]
fn what_programs_are_told_could_come_of_a_single_copy_whatever_happens() {
    if support::can_mount() {
        play(&mut Stage::new(Machines::together()), &Event::TOGETHER);
    }
}

#[test]
fn nor_whatever_happens_to_the_machines() {
    if !support::can_mount() {
        return;
    }
    // The thread that leaves the machine's network does not come back.
    let played = thread::spawn(|| {
        let machines = match Machines::apart() {
            Ok(machines) => machines,
            Err(why) => return not_tested(&why),
        };
        let mut events = Event::APART.to_vec();
        if number_from("FLEASEFS_EVENTS").is_some() {
            events.extend(Event::APART_LONGER.into_iter().chain(Event::TOGETHER));
        }
        play(&mut Stage::new(machines), &events);
    });
    if let Err(panic) = played.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Says why, which has to be true.
fn not_tested(why: &NamespaceError) {
    match why {
        NamespaceError::NotRoot => assert!(!rustix::process::geteuid().is_root()),
        NamespaceError::NoIp(_) => {
            let places = std::env::var("PATH").unwrap_or_default();
            assert!(!std::env::split_paths(&places).any(|place| place.join("ip").exists()));
        }
        _ => panic!("{why}"),
    }
    // Where a passing test says something.
    let _ = writeln!(io::stderr(), "not tested: machines that are cut off: {why}");
}

/// Has each of these things happen, or as many as are asked for.
fn play(stage: &mut Stage, events: &[Event]) {
    let count = number_from("FLEASEFS_EVENTS").map_or(events.len(), |count| usize::try_from(count).unwrap());
    let seed = number_from("FLEASEFS_SEED").unwrap_or(1);
    println!("{count} events, seed {seed}");
    let (mut random, mut left) = (Random::new(seed), Vec::new());
    for round in 0..count.div_ceil(EVENTS_JUDGED) {
        let recorder = Recorder::new(stage.points(), round);
        thread::scope(|scope| {
            let _ends = recorder.ends_when_dropped();
            recorder.play(scope, &mut random);
            for _ in 0..EVENTS_JUDGED.min(count - round * EVENTS_JUDGED) {
                // Each once before any comes again.
                if left.is_empty() {
                    left = events.to_vec();
                }
                let event = left.swap_remove(random.index(left.len()));
                recorder.wait_for_all();
                thread::sleep(QUIET);
                let (began, done) = (Instant::now(), recorder.done.load(Ordering::Relaxed));
                stage.happens(event, &recorder, &mut random);
                recorder.wait_for_all();
                let done = recorder.done.load(Ordering::Relaxed) - done;
                println!("{event:?}: {done} calls in {:.1} s", began.elapsed().as_secs_f64());
                assert!(done > 0, "nobody was answered");
            }
        });
        assert!(recorder.verified.load(Ordering::Relaxed) > 0, "nothing was compared");
        println!("{}", recorder.judge());
    }
    assert!(stage.killed() > 0, "nobody was killed");
    println!("{} processes were killed", stage.killed());
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}
