//! Programs on three mounts while daemons, their supervisors and a mount are killed and frozen, drained and started again. No error
//! reaches them, and what each call to a file or a directory came to could have come of a single copy.
//!
//! A few things happen with the other tests. `FLEASEFS_EVENTS` is how many, and `FLEASEFS_SEED` what they are drawn from:
//!
//! ```sh
//! FLEASEFS_EVENTS=100 cargo test --test faults -- --nocapture
//! ```
#![expect(clippy::print_stdout, reason = "what happened when is a result")]

mod events;
mod players;
#[path = "../mounts/support.rs"]
#[expect(dead_code, reason = "other tests want more of it")]
mod support;
mod tree;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use base::Random;

use events::{Event, Stage};
use players::Recorder;
use support::Cluster;

/// How many things happen with the other tests: each kind once.
const EVENTS: usize = Event::ALL.len();
/// Histories are judged after so many, because the time that takes grows faster than they do.
const EVENTS_JUDGED: usize = 3;
/// How long nothing happens between two.
const QUIET: Duration = Duration::from_millis(700);

#[test]
fn what_programs_are_told_could_come_of_a_single_copy_whatever_happens() {
    let events = number_from("FLEASEFS_EVENTS").map_or(EVENTS, |events| usize::try_from(events).unwrap());
    let seed = number_from("FLEASEFS_SEED").unwrap_or(1);
    println!("{events} events, seed {seed}");
    let Some(cluster) = Cluster::start() else { return };
    let mut stage = Stage::new(&cluster);
    let mut random = Random::new(seed);
    let mut left: Vec<Event> = Vec::new();
    for round in 0..events.div_ceil(EVENTS_JUDGED) {
        let recorder = Recorder::new(stage.points(), round);
        thread::scope(|scope| {
            let _ends = recorder.ends_when_dropped();
            recorder.play(scope, &mut random);
            for _ in 0..EVENTS_JUDGED.min(events - round * EVENTS_JUDGED) {
                // Each once before any comes again.
                if left.is_empty() {
                    left = Event::ALL.to_vec();
                }
                let event = left.swap_remove(random.index(left.len()));
                recorder.wait_for_all();
                thread::sleep(QUIET);
                let (began, done) = (Instant::now(), recorder.done.load(Ordering::Relaxed));
                stage.happens(event, &recorder, &mut random);
                recorder.wait_for_all();
                let done = recorder.done.load(Ordering::Relaxed) - done;
                println!("{event:?}: {done} calls in {:.1} s", began.elapsed().as_secs_f64());
            }
        });
        println!("{}", recorder.judge());
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}
