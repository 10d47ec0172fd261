//! One request that is under way, however often it is sent.

use std::collections::VecDeque;

use base::{MonoTime, NodeId, ObjectId, Span};
use namespace::{Generation, InodeId, Who};
use node::file::{Change, FileBody, Level, Mark, Query};
use node::{Capability, OpenMode, RequestId, Unavailable};

use super::{BACKOFF_MAX, BACKOFF_MIN, FileTicket, SILENCE};

/// Of so many sendings the replies are still known.
const SENDINGS_MAX: usize = 16;
/// Whoever is slow, and not gone, is not sent the same too often: a second silence is twice as long.
const DOUBLINGS_MAX: u32 = 1;

/// What a caller wants, before it has its turn.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Create,
    Change(Change, Level),
    /// Its number was kept.
    Enter(Change, Level),
    /// Under a lend to this client.
    Flush(Change, Generation, Level),
    Ask(Query),
    Open(Opening),
    /// Of what this client has opened already. A number was kept for that, which is not needed.
    OpenOwn(Opening),
}

/// What opens a file of a volume, or keeps it open.
#[derive(Clone, Debug)]
pub enum Opening {
    /// For whom which inode is opened, and for what.
    Open(Who, InodeId, OpenMode),
    /// What was told last.
    Renew(Box<Capability>),
}

/// What is asked.
#[derive(Debug)]
pub(super) enum Task {
    Create,
    Change {
        number: u64,
        level: Level,
        change: Change,
        under: Option<Generation>,
    },
    Ask(Query),
    Open(Opening),
    Sync(Syncing),
    /// What is open is told; what that is is said when it is sent.
    Attend,
}

impl Task {
    /// Whether it is about a volume's tree.
    pub(super) const fn is_of_tree(&self) -> bool {
        matches!(self, Self::Ask(Query::Tree(_)) | Self::Change { change: Change::Tree(_), .. })
    }
}

/// Changes that are being made durable.
#[derive(Debug)]
pub(super) struct Syncing {
    pub(super) oldest: Mark,
    pub(super) newest: Mark,
    /// The last acknowledgement that is covered.
    pub(super) upto: u64,
    /// Who waits for it; nobody if the client does it of itself.
    pub(super) waiters: Vec<FileTicket>,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) object: ObjectId,
    pub(super) task: Task,
    /// The last sending, if nothing came of it yet, and to whom.
    pub(super) last: Option<(RequestId, NodeId)>,
    /// Whom the last one asked has named for it. Other requests of the file may move what is believed meanwhile.
    pub(super) named: Option<NodeId>,
    /// Whether that one was named by somebody who is not believed in.
    has_strayed: bool,
    /// When it is sent, or sent again. None while nobody can be asked.
    pub(super) due: Option<MonoTime>,
    /// Which opening it is, if its client is to have open what it opens.
    pub(super) holds: Option<u64>,
    /// Why it has no result, as far as somebody said.
    pub(super) obstacle: Option<Unavailable>,
    /// All sendings that may still be replied to, the oldest first.
    sendings: VecDeque<RequestId>,
    times: u32,
    failures: u32,
    silences: u32,
}

impl Wish {
    /// How much memory its data takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Change(change, _) | Self::Enter(change, _) | Self::Flush(change, ..) => {
                usize::try_from(change.data_bytes()).unwrap_or(usize::MAX)
            }
            Self::Create | Self::Ask(_) | Self::Open(_) | Self::OpenOwn(_) => 0,
        }
    }
}

impl Job {
    pub(super) fn holding(self, holds: Option<u64>) -> Self {
        Self { holds, ..self }
    }

    pub(super) const fn new(object: ObjectId, task: Task) -> Self {
        Self {
            object,
            task,
            last: None,
            named: None,
            has_strayed: false,
            due: None,
            holds: None,
            obstacle: None,
            sendings: VecDeque::new(),
            times: 0,
            failures: 0,
            silences: 0,
        }
    }

    /// What is sent, by a client that has the replies to all changes below `settled`.
    pub(super) fn body(&self, settled: u64) -> FileBody {
        match &self.task {
            Task::Create => FileBody::Create,
            &Task::Change { number, level, ref change, under } => {
                assert!(settled <= number, "change {number} has no reply, but {settled} is settled");
                FileBody::Change { number, settled, level, under, change: change.clone() }
            }
            Task::Ask(query) => FileBody::Ask(query.clone()),
            Task::Open(Opening::Open(who, inode, mode)) => {
                FileBody::Open { who: who.clone(), inode: *inode, mode: *mode }
            }
            Task::Open(Opening::Renew(capability)) => FileBody::Renew { capability: capability.clone() },
            &Task::Sync(Syncing { oldest, newest, .. }) => FileBody::Sync { oldest, newest },
            Task::Attend => unreachable!("what is open says who knows it"),
        }
    }

    /// The one that was asked, believed in or not, has named somebody. Two that are not believed in and name each other would
    /// have it for ever, so every other time whoever is believed in has it.
    pub(super) fn follow(&mut self, named: Option<NodeId>, is_believed: bool) {
        let strays = named.is_some() && !is_believed;
        self.named = named.filter(|_| !strays || !self.has_strayed);
        self.has_strayed = strays && !self.has_strayed;
    }

    /// It is sent once more. Returns a sending whose reply will not be known any longer.
    pub(super) fn sent(&mut self, id: RequestId, to: NodeId) -> Option<RequestId> {
        (self.last, self.times) = (Some((id, to)), self.times.saturating_add(1));
        self.sendings.push_back(id);
        if self.sendings.len() > SENDINGS_MAX { self.sendings.pop_front() } else { None }
    }

    /// Nothing more will come of this sending. Returns whether it was the last one.
    pub(super) fn is_over(&mut self, id: RequestId) -> bool {
        self.sendings.retain(|&sending| sending != id);
        self.last.take_if(|(last, _)| *last == id).is_some()
    }

    /// Whether somebody may have it.
    pub(super) const fn was_sent(&self) -> bool {
        self.times > 0
    }

    /// Whether nobody but who was asked last may have it.
    pub(super) const fn was_sent_once(&self) -> bool {
        self.times == 1
    }

    pub(super) fn sendings(&self) -> impl Iterator<Item = RequestId> {
        self.sendings.iter().copied()
    }

    /// Somebody could not answer.
    pub(super) const fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// How often nothing came of it. To be told so takes less time than to hear nothing.
    pub(super) const fn tries(&self) -> u32 {
        self.failures.saturating_add(self.silences.saturating_mul(8))
    }

    /// The last sending was not replied to for too long. Returns who was silent.
    pub(super) fn fall_silent(&mut self) -> Option<NodeId> {
        let (_, node) = self.last.take()?;
        self.silences = self.silences.saturating_add(1);
        Some(node)
    }

    /// How long a reply is waited for.
    pub(super) fn patience(&self) -> Span {
        SILENCE * (1 << self.silences.min(DOUBLINGS_MAX))
    }

    /// None the first time: most often the one named is right.
    pub(super) fn backoff(&self) -> Span {
        match self.failures {
            0 | 1 => Span::ZERO,
            failures => (BACKOFF_MIN * (1 << (failures - 2).min(8))).min(BACKOFF_MAX),
        }
    }
}
