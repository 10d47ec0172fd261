//! Threads that do nothing but sleep, or write to the disk a little: what takes them too long is the machine's doing, and of nobody who is
//! measured beside them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A control timer that overshoots by more makes a round void: the machine stalled, not what is measured.
pub const TIMER_STALL_MAX: Duration = Duration::from_millis(20);
/// Of so many rounds of a hundred more may not be void.
pub const VOID_PERCENT_MAX: u32 = 20;
/// The timer sleeps so long each time.
const NAP: Duration = Duration::from_millis(1);
/// The disk is left alone for so long.
const DISK_REST: Duration = Duration::from_millis(10);
/// The file is written to as a journal is: within its length, one block after the other.
const BLOCK: [u8; 4 << 10] = [1; 4 << 10];
const BLOCKS: u64 = 64;

/// What the machine did by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stalls {
    /// The longest overshoot of the timer.
    pub(crate) timer: Duration,
    /// The longest append with its `fdatasync`.
    pub(crate) disk: Duration,
}

impl Stalls {
    /// Whether nothing can be said of what was measured. The disk is no excuse: what is measured loads it, too.
    pub(crate) fn void(self) -> bool {
        self.timer > TIMER_STALL_MAX
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self { timer: self.timer.max(other.timer), disk: self.disk.max(other.disk) }
    }
}

/// The threads that watch a machine and a disk.
pub(crate) struct Control {
    timer: Watch,
    disk: Watch,
}

impl Control {
    /// The disk is that of a directory.
    pub(crate) fn start(dir: &Path) -> io::Result<Self> {
        let file = tempfile::tempfile_in(dir)?;
        for number in 0..BLOCKS {
            write(&file, number)?;
        }
        file.sync_all()?;
        let mut number = 0;
        let append = move |_| {
            let begun = Instant::now();
            // A disk that fails is noticed by those who are measured.
            let _ = write(&file, number % BLOCKS).and_then(|()| file.sync_data());
            number += 1;
            begun.elapsed()
        };
        Ok(Self { timer: Watch::timer(), disk: Watch::start(DISK_REST, append) })
    }

    /// Ends them.
    pub(crate) fn end(self) -> Stalls {
        Stalls { timer: self.timer.end(), disk: self.disk.end() }
    }
}

fn write(file: &File, number: u64) -> io::Result<()> {
    file.write_all_at(&BLOCK, number * BLOCK.len() as u64)
}

/// A thread that looks again and again, and remembers the longest time.
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Watch {
    /// Whoever sleeps too long.
    pub(crate) fn timer() -> Self {
        Self::start(NAP, |slept| slept.saturating_sub(NAP))
    }

    /// Rests, and is told how long that took by `time`, which may do something for as long.
    fn start(rest: Duration, mut time: impl FnMut(Duration) -> Duration + Send + 'static) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut worst = Duration::ZERO;
            loop {
                let begun = Instant::now();
                if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                    return worst;
                }
                worst = worst.max(time(begun.elapsed()));
            }
        });
        Self { stop, thread }
    }

    /// Ends it. Returns the longest time.
    pub(crate) fn end(self) -> Duration {
        // It ends at once, told or not.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_late_timer_makes_a_round_void() {
        let [few, some, many] = [5, 21, 500].map(Duration::from_millis);
        assert!(Stalls { timer: some, disk: few }.void());
        assert!(!Stalls { timer: few, disk: many }.void());
    }
}
