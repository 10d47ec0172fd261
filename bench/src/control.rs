//! A thread that does nothing but sleep: what it sleeps too long is the machine's doing, and of nobody who is measured beside it.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A control timer that overshoots by more makes a round void: the machine stalled, not what is measured.
pub const CONTROL_STALL_MAX: Duration = Duration::from_millis(20);
/// Of so many rounds of a hundred more may not be void.
pub const VOID_PERCENT_MAX: u32 = 20;
/// It sleeps so long each time.
const NAP: Duration = Duration::from_millis(1);

/// The thread.
pub(crate) struct Control {
    stop: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Control {
    pub(crate) fn start() -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut worst = Duration::ZERO;
            loop {
                let begun = Instant::now();
                if stopped.recv_timeout(NAP) != Err(RecvTimeoutError::Timeout) {
                    return worst;
                }
                worst = worst.max(begun.elapsed().saturating_sub(NAP));
            }
        });
        Self { stop, thread }
    }

    /// Ends it. Returns its longest overshoot.
    pub(crate) fn end(self) -> Duration {
        // It ends at once, told or not.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or(Duration::MAX)
    }
}
