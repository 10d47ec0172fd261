//! Who asks for something: what the kernel sends along, and what of it has to be looked up.

use std::fs;
use std::time::Duration;

use namespace::{GROUPS_MAX, Who};
use tokio::time::sleep;

/// A request that takes longer is worth looking whether anybody still waits for it.
const LOOKED_AFTER: Duration = Duration::from_secs(1);
/// How often to look for other signals, where these count.
const SIGNALS_LOOKED_AFTER: Duration = Duration::from_millis(30);
/// How often to look then.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Whoever waits for longer than any change of daemons takes may have it interrupted by a signal.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(10);

/// Signals that tell of something beside what a process does: `SIGCHLD`, `SIGURG`, `SIGWINCH`. Nobody sends them to have something end.
const NEWS: u64 = 1 << 16 | 1 << 22 | 1 << 27;

/// The thread that asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its thread's id; 0 if that is the kernel, or where it cannot be seen from here.
    pub(crate) thread: u32,
}

impl Caller {
    /// As whom it asks. Other groups than the first are not sent along, and those beyond the limit not told to the daemons.
    pub(crate) fn who(&self) -> Who {
        // Rules about groups do not bind root.
        let mut groups = if self.uid == 0 { Vec::new() } else { self.groups() };
        groups.truncate(GROUPS_MAX);
        Who::new(self.uid, self.gid, &groups).expect("no more than there may be")
    }

    /// Returns when the thread is being killed; and if it has waited for long, when it has a signal that it handles. It would wait for its
    /// answer nevertheless, because the kernel waits for one.
    ///
    /// fuser does not pass on what the kernel says of signals. Before that time none but those that end a process interrupt anything:
    /// programs do not expect it of files, and would fail whenever a daemon is replaced by another.
    pub(crate) async fn gives_up(&self) {
        if self.thread == 0 {
            return std::future::pending().await;
        }
        sleep(LOOKED_AFTER).await;
        let mut waited = LOOKED_AFTER;
        while !self.status().is_some_and(|status| ends_wait(&status, waited)) {
            sleep(LOOK_INTERVAL).await;
            waited += LOOK_INTERVAL;
        }
    }

    /// Returns when the thread has a signal to take in, which it cannot before it has its answer: for what may take as long as somebody else
    /// wants, as a lock.
    pub(crate) async fn signalled(&self) {
        if self.thread == 0 {
            return std::future::pending().await;
        }
        loop {
            sleep(SIGNALS_LOOKED_AFTER).await;
            if self.status().is_some_and(|status| has_signal(&status)) {
                return;
            }
        }
    }

    fn groups(&self) -> Vec<u32> {
        let groups = |status: &str| -> Vec<u32> {
            field(status, "Groups:").split_whitespace().filter_map(|group| group.parse().ok()).collect()
        };
        self.status().as_deref().map(groups).unwrap_or_default()
    }

    fn status(&self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()
    }
}

/// Whether whoever has waited for so long waits no longer.
fn ends_wait(status: &str, waited: Duration) -> bool {
    is_killed(status) || waited >= INTERRUPTED_AFTER && has_handled(status)
}

/// Every signal that ends a process becomes this one for each of its threads.
fn is_killed(status: &str) -> bool {
    const KILL: u64 = 1 << 8;
    signals(status, "SigPnd:") & KILL != 0
}

/// Whether there is a signal that is not held back, and that the process has a handler for.
fn has_handled(status: &str) -> bool {
    let sent = signals(status, "SigPnd:") | signals(status, "ShdPnd:");
    sent & !signals(status, "SigBlk:") & signals(status, "SigCgt:") & !NEWS != 0
}

/// Whether there is a signal that is neither held back nor ignored. What is sent to a process any of its threads may take.
fn has_signal(status: &str) -> bool {
    let sent = signals(status, "SigPnd:") | signals(status, "ShdPnd:");
    sent & !signals(status, "SigBlk:") & !signals(status, "SigIgn:") != 0
}

fn signals(status: &str, name: &str) -> u64 {
    u64::from_str_radix(field(status, name).trim(), 16).unwrap_or(0)
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_groups_of_its_thread() {
        let us = Caller {
            uid: 1000,
            gid: 1000,
            thread: rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned(),
        };
        let groups: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        assert_eq!(us.who().groups(), &groups[..groups.len().min(GROUPS_MAX)]);
        assert!(!ends_wait(&us.status().unwrap(), Duration::ZERO));
    }

    #[test]
    fn a_signal_that_is_handled_ends_a_wait_that_is_long() {
        let status = |sent: u64, blocked: u64, handled: u64| {
            format!(
                "SigPnd:\t{:016x}\nShdPnd:\t{sent:016x}\nSigBlk:\t{blocked:016x}\nSigCgt:\t{handled:016x}\n",
                0
            )
        };
        let (alarm, child, short) = (1 << 13, 1 << 16, INTERRUPTED_AFTER - Duration::from_millis(1));
        assert!(ends_wait(&status(alarm, 0, alarm), INTERRUPTED_AFTER));
        assert!(!ends_wait(&status(alarm, 0, alarm), short));
        assert!(!ends_wait(&status(alarm, alarm, alarm), INTERRUPTED_AFTER), "it is held back");
        assert!(!ends_wait(&status(alarm, 0, 0), INTERRUPTED_AFTER), "nobody handles it");
        assert!(!ends_wait(&status(child, 0, child), INTERRUPTED_AFTER), "it says that a child has ended");
        assert!(ends_wait("SigPnd:\t0000000000000100\n", Duration::ZERO), "it is killed");
    }

    #[test]
    fn a_signal_counts_unless_it_is_held_back_or_ignored() {
        let status = |blocked: u64, ignored: u64| {
            format!(
                "SigPnd:\t0000000000000000\nShdPnd:\t0000000000002000\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            )
        };
        assert!(has_signal(&status(0, 0)));
        assert!(!has_signal(&status(0x2000, 0)));
        assert!(!has_signal(&status(0, 0x2000)));
    }

    #[test]
    fn nobody_knows_the_groups_of_a_thread_that_is_not_there() {
        let nobody = Caller { uid: 1000, gid: 1000, thread: 0 };
        assert_eq!(nobody.who(), Who::new(1000, 1000, &[]).unwrap());
    }
}
