//! The processes that this one has started, and those that they have started.
//!
//! The end of a script does not end what it has started, which would go on without the lock. A process whose parent
//! had ended before anybody looked has left the family, and is left alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// How often to look for processes that were started while others were killed.
const ROUNDS_MAX: u32 = 10;

/// The processes that were found so far. Those that have ended do no harm: a descriptor names no other.
#[derive(Debug, Default)]
pub(crate) struct Family {
    known: BTreeMap<i32, OwnedFd>,
}

impl Family {
    /// Sends a signal to all of them.
    pub(crate) fn tell(&mut self, what: Signal) {
        self.look();
        self.signal(what);
    }

    fn signal(&self, what: Signal) {
        for process in self.known.values() {
            // It may have ended.
            let _ = pidfd_send_signal(process, what);
        }
    }

    /// Kills all of them.
    pub(crate) fn kill(&mut self) {
        // Those that are known first: to look for others takes time, and the lock is somebody else's soon.
        self.signal(Signal::KILL);
        for _ in 0..ROUNDS_MAX {
            let before = self.known.len();
            self.tell(Signal::KILL);
            if self.known.len() == before {
                break;
            }
        }
    }

    /// Looks for new ones.
    fn look(&mut self) {
        let parents = parents();
        let mut grown = vec![getpid().as_raw_nonzero().get()];
        while let Some(parent) = grown.pop() {
            for (&child, _) in parents.iter().filter(|(_, other)| **other == parent) {
                grown.push(child);
                let process = Pid::from_raw(child).and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
                // Opened first and compared then: the id may have become another process's.
                if let (Some(process), true) = (process, parent_of(child) == Some(parent)) {
                    self.known.insert(child, process);
                }
            }
        }
    }
}

/// The parent of each process that runs.
fn parents() -> BTreeMap<i32, i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, parent_of(id)?))).collect()
}

fn parent_of(id: i32) -> Option<i32> {
    parse_parent(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Of the line in `/proc/ID/stat`: the 4th field. The second is the program's name in parentheses and may hold
/// anything.
fn parse_parent(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_may_hold_anything() {
        assert_eq!(parse_parent("7 (a) b) (S 9) S 12 7 7 0"), Some(12));
        assert_eq!(parse_parent("1 (init) S 0 1 1 0"), Some(0));
        assert_eq!(parse_parent("7 (a"), None);
    }
}
