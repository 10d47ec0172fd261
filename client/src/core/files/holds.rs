//! What a client has open in volumes, and what it tells their primaries about it.
//!
//! A client is on record in a volume before it opens something there to hold it: whoever uses this core sees to that, by a change
//! that is durable, and then has it [attend](Files::attend_to) to the volume. From then on the client tells the volume's primary now and then what it
//! has open, until it is told that it has ended, or that there is no such volume any more.
//!
//! - Openings are counted. What is told is true of all openings up to one, before all that are under way.
//! - An opening that is under way counts as something that is open.
//! - What a creation that is under way will have opened nobody can name. So a new primary is told nothing before all creations have
//!   a result that were sent before this client knew of it.

use std::collections::{BTreeMap, BTreeSet};

use base::{Epoch, MonoTime, ObjectId, Span};
use namespace::limits::PAGE_MAX;
use namespace::{InodeId, NameError};
use node::Attendance;
use node::file::{Change, Done, FileError, FileReplyBody, Level};

use super::job::{Job, Opening, Task, Wish};
use super::{FileEvent, FileOutput, FileTicket, Files};

/// How often a volume is told what is open there, and how often that nothing is.
const EVERY: Span = Span::from_secs(1);
const EVERY_UNUSED: Span = Span::from_secs(5);

/// All volumes that a client attends to.
#[derive(Debug, Default)]
pub(super) struct Holds {
    volumes: BTreeMap<ObjectId, Attended>,
    /// Who has ended where.
    ended: BTreeSet<ObjectId>,
    /// When a volume is told something next.
    due: BTreeSet<(MonoTime, ObjectId)>,
}

/// One volume.
#[derive(Debug, Default)]
struct Attended {
    /// What is open, and how often.
    open: BTreeMap<InodeId, u32>,
    /// Counts openings.
    last: u64,
    /// Those that have no result, and of what they are, unless they create it.
    under_way: BTreeMap<u64, Option<InodeId>>,
    /// The tenure that is known of, and the creations that were under way when it came to be.
    tenure: Option<Epoch>,
    unsettled: BTreeSet<u64>,
    /// When the primary knew of the client last.
    known_at: MonoTime,
}

impl Attended {
    fn attendance(&self) -> Attendance {
        let stamp = self.under_way.first_key_value().map_or(self.last, |(first, _)| first - 1);
        let open: BTreeSet<InodeId> =
            self.open.keys().copied().chain(self.under_way.values().flatten().copied()).collect();
        let tenure = self.tenure.filter(|_| self.unsettled.is_empty());
        let open = (open.len() <= PAGE_MAX).then(|| open.into_iter().collect());
        Attendance { tenure, stamp, open }
    }

    fn is_used(&self) -> bool {
        !self.open.is_empty() || !self.under_way.is_empty()
    }
}

impl Holds {
    pub(super) const fn new() -> Self {
        Self { volumes: BTreeMap::new(), ended: BTreeSet::new(), due: BTreeSet::new() }
    }

    pub(super) fn next_due(&self) -> Option<MonoTime> {
        self.due.first().map(|&(at, _)| at)
    }

    /// What is told.
    pub(super) fn attendance(&self, volume: ObjectId) -> Attendance {
        let nothing = Attendance { tenure: None, stamp: 0, open: None };
        self.volumes.get(&volume).map_or(nothing, Attended::attendance)
    }

    /// Which opening this is, if there are any.
    pub(super) fn begin(&mut self, volume: ObjectId, task: &Task) -> Option<u64> {
        let attended = self.volumes.get_mut(&volume)?;
        attended.last += 1;
        let inode = if let Task::Open(Opening::Open(_, inode, _)) = task { Some(*inode) } else { None };
        attended.under_way.insert(attended.last, inode);
        Some(attended.last)
    }

    /// An opening has a result, and has opened this.
    pub(super) fn end(&mut self, volume: ObjectId, stamp: u64, opened: Option<InodeId>) {
        let Some(attended) = self.volumes.get_mut(&volume) else { return };
        attended.under_way.remove(&stamp);
        attended.unsettled.remove(&stamp);
        if let Some(inode) = opened {
            *attended.open.entry(inode).or_default() += 1;
        }
    }

    /// The primary knew of this client when it was asked at `at`, or later: the answer may have waited here for long.
    pub(super) fn note_known(&mut self, volume: ObjectId, at: MonoTime) {
        if let Some(attended) = self.volumes.get_mut(&volume) {
            attended.known_at = attended.known_at.max(at);
        }
    }

    fn remove(&mut self, volume: ObjectId) {
        self.volumes.remove(&volume);
        self.due.retain(|&(_, other)| other != volume);
    }
}

impl Files {
    /// From now on a volume, in which this client is on record, is told what the client has open.
    pub fn attend_to(&mut self, now: MonoTime, volume: ObjectId) {
        if !self.holds.ended.contains(&volume) && !self.holds.volumes.contains_key(&volume) {
            let known_at = now;
            self.holds.volumes.insert(volume, Attended { known_at, ..Attended::default() });
            self.holds.due.insert((now, volume));
            self.tell_volumes(now);
        }
    }

    /// Opens a file of a volume that this client attends to, and has it open until it is [closed](Self::close_held).
    pub fn open_to_hold(&mut self, now: MonoTime, volume: ObjectId, opening: Opening) -> FileTicket {
        self.begin_holding(now, volume, Wish::Open(opening))
    }

    /// The same of a file that the change creates, if what comes of it opens the file.
    pub fn create_to_hold(
        &mut self,
        now: MonoTime,
        volume: ObjectId,
        change: Change,
        level: Level,
    ) -> FileTicket {
        self.begin_holding(now, volume, Wish::Change(change, level))
    }

    /// What was opened once is not open any more, as far as that goes.
    pub fn close_held(&mut self, volume: ObjectId, inode: InodeId) {
        let Some(attended) = self.holds.volumes.get_mut(&volume) else { return };
        if let Some(count) = attended.open.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                attended.open.remove(&inode);
            }
        }
    }

    /// Whether this client attends to a volume.
    pub fn attends_to(&self, volume: ObjectId) -> bool {
        self.holds.volumes.contains_key(&volume)
    }

    /// The volumes that it attends to.
    pub fn attended(&self) -> impl Iterator<Item = ObjectId> {
        self.holds.volumes.keys().copied()
    }

    /// When the primary of a volume knew last that this client is there.
    pub fn known_at(&self, volume: ObjectId) -> Option<MonoTime> {
        self.holds.volumes.get(&volume).map(|attended| attended.known_at)
    }

    /// Whether this client was told that it has ended in a volume: what it had open and locked there is gone.
    pub fn has_ended(&self, volume: ObjectId) -> bool {
        self.holds.ended.contains(&volume)
    }

    /// What a client has open of a volume, in order.
    pub fn open_in(&self, volume: ObjectId) -> Vec<InodeId> {
        self.holds
            .volumes
            .get(&volume)
            .map(|attended| attended.open.keys().copied().collect())
            .unwrap_or_default()
    }

    /// Tells volumes what is open whose time it is.
    pub(super) fn tell_volumes(&mut self, now: MonoTime) {
        while let Some(&(at, volume)) = self.holds.due.first() {
            if at > now {
                return;
            }
            self.holds.due.remove(&(at, volume));
            if !self.know(now, volume) {
                self.holds.due.insert((now + EVERY, volume));
                continue;
            }
            if let Some(object) = self.objects.get_mut(&volume) {
                object.under_way += 1;
            }
            let key = self.ticket();
            self.jobs.insert(key, Job::new(volume, Task::Attend));
            self.send(now, key);
        }
    }

    /// What comes of telling a volume.
    pub(super) fn take_attended(&mut self, now: MonoTime, key: FileTicket, body: &FileReplyBody) {
        let Some(Job { object: volume, .. }) = self.drop_job(key) else { return };
        let next = match body {
            FileReplyBody::Attended { tenure, .. } => {
                let Some(attended) = self.holds.volumes.get_mut(&volume) else { return };
                if attended.tenure.replace(*tenure) == Some(*tenure) {
                    now + if attended.is_used() { EVERY } else { EVERY_UNUSED }
                } else {
                    let creations = attended.under_way.iter().filter(|(_, inode)| inode.is_none());
                    attended.unsettled = creations.map(|(&stamp, _)| stamp).collect();
                    now
                }
            }
            FileReplyBody::Refused(FileError::Tree(
                NameError::Expired { .. } | NameError::NoClient { .. },
            )) => {
                return self.end_in(volume);
            }
            FileReplyBody::NoSuchFile | FileReplyBody::Refused(FileError::Removed | FileError::NoTree) => {
                return self.holds.remove(volume);
            }
            _ => now + EVERY,
        };
        self.holds.due.insert((next, volume));
        self.tell_volumes(now);
    }

    /// A volume has taken this client for dead, if it is one that the client is in: nothing there will ever be changed by it again.
    pub(super) fn end_in(&mut self, volume: ObjectId) {
        if self.holds.volumes.contains_key(&volume) {
            self.holds.remove(volume);
            self.holds.ended.insert(volume);
            self.outputs.push_back(FileOutput::Event(FileEvent::Ended { volume }));
        }
    }

    /// What an opening came to is open, or not.
    pub(super) fn end_opening(&mut self, key: FileTicket, body: Option<&FileReplyBody>) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let Some(stamp) = job.holds.take() else { return };
        let opened = match body {
            Some(FileReplyBody::Opened { capability, .. }) => Some(capability.source.inode),
            Some(FileReplyBody::Changed { outcome: Ok(Done::Tree(_)), opened: Some(capability), .. }) => {
                Some(capability.source.inode)
            }
            _ => None,
        };
        let volume = job.object;
        self.holds.end(volume, stamp, opened);
    }

    pub(super) fn begin_holding(&mut self, now: MonoTime, volume: ObjectId, wish: Wish) -> FileTicket {
        let ticket = self.ticket();
        if self.take_in(now, ticket, volume, wish.bytes())
            && let Some(known) = self.objects.get_mut(&volume)
        {
            known.put(ticket, wish);
            self.holding.insert(ticket);
            self.go_ahead(now, volume);
        }
        ticket
    }
}
