//! The processes that this one has started, and those that they have started.
//!
//! The end of a script does not end what it has started, which would go on without the lock. So this process takes in
//! whatever loses its parent: nothing leaves the family before this process ends itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};

/// How often to look for processes that were started while others were told something.
const ROUNDS_MAX: u32 = 10;

/// The processes that were found last. Those that have ended do no harm: a descriptor names no other.
#[derive(Debug)]
pub(crate) struct Family {
    known: BTreeMap<i32, OwnedFd>,
}

impl Family {
    /// That of this process, which keeps together from now on.
    pub(crate) fn found() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self { known: BTreeMap::new() })
    }

    /// Sends a signal to all of them, once.
    pub(crate) fn tell(&mut self, what: Signal) {
        let mut told = BTreeMap::new();
        // Whoever is told may have started another before it heard.
        for _ in 0..ROUNDS_MAX {
            let before = told.len();
            for (id, process) in members(&told) {
                told.entry(id).or_insert_with(|| {
                    // It may have ended.
                    let _ = pidfd_send_signal(&process, what);
                    process
                });
            }
            if told.len() == before {
                break;
            }
        }
        self.known = told;
    }

    /// Kills all of them.
    pub(crate) fn kill(&mut self) {
        // Those that are known first: to look for others takes time, and the lock is somebody else's soon.
        for process in self.known.values() {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        self.tell(Signal::KILL);
    }

    /// Takes note of the ends of those that were taken in, but for `child`, whose end somebody waits for.
    pub(crate) fn bury_all_but(&self, child: Option<u32>) {
        let us = getpid().as_raw_nonzero().get();
        for (id, _) in
            parents().into_iter().filter(|(id, parent)| *parent == us && u32::try_from(*id).ok() != child)
        {
            if let Some(id) = Pid::from_raw(id) {
                // It may live.
                let _ = waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            }
        }
    }
}

/// All that are there now, `known` among them. One whose parent is just ending is found by that.
fn members(known: &BTreeMap<i32, OwnedFd>) -> BTreeMap<i32, OwnedFd> {
    let (us, parents) = (getpid().as_raw_nonzero().get(), parents());
    let mut grown: Vec<i32> = known.keys().copied().chain([us]).collect();
    let mut members = BTreeMap::new();
    while let Some(parent) = grown.pop() {
        for (&child, _) in parents.iter().filter(|(_, other)| **other == parent) {
            let Some(process) = Pid::from_raw(child).and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok())
            else {
                continue;
            };
            // Opened first and compared then: the id may have become another process's.
            if parent_of(child).is_some_and(|now| now == parent || now == us)
                && members.insert(child, process).is_none()
            {
                grown.push(child);
            }
        }
    }
    members
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
