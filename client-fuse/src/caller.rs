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

    /// Returns when the thread is being killed. It would wait for its answer nevertheless, because the kernel waits for one.
    ///
    /// fuser does not pass on what the kernel says of signals. Other signals than those that end a process interrupt nothing: no
    /// program expects that of files.
    pub(crate) async fn killed(&self) {
        if self.thread == 0 {
            return std::future::pending().await;
        }
        sleep(LOOKED_AFTER).await;
        while !self.is_killed() {
            sleep(LOOK_INTERVAL).await;
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

    /// Every signal that ends a process becomes this one for each of its threads.
    fn is_killed(&self) -> bool {
        const KILL: u64 = 1 << 8;
        let pending = |status: &str| signals(status, "SigPnd:");
        self.status().as_deref().map(pending).unwrap_or(0) & KILL != 0
    }

    fn status(&self) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()
    }
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
        assert!(!us.is_killed());
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
