//! What things cost, in memory and in a message. Limits count bytes, because an entry may be small or large.
//!
//! What a machine says of its operations and parts is taken; the rest is charged by what it is at most.

use crate::{Body, Entry, Machine, Message, Page, Parts, Rest};

/// An entry without its operation.
pub(crate) const ENTRY_BYTES: u64 = 128;
/// A message without what it carries.
pub(crate) const MESSAGE_BYTES: u64 = 160;
/// The key of a part, which may be a name, and its version.
pub(crate) const VERSION_BYTES: u64 = 320;
/// All of a state but its machine and its requests.
const REST_BYTES: u64 = 1_024;
/// A client that is known, without what is kept for it.
const CLIENT_BYTES: u64 = 64;
/// An outcome that is kept, without itself.
const KEPT_BYTES: u64 = 16;
/// A client that is over.
const EXPIRED_BYTES: u64 = 32;
/// A node in a list.
const NODE_BYTES: u64 = 4;

/// What an entry costs.
pub(crate) fn entry_bytes<M: Machine>(entry: &Entry<M::Op>) -> u64 {
    let carried = match &entry.body {
        Body::Op { op, .. } => M::op_bytes(op),
        Body::View(members) => members.as_slice().len() as u64 * NODE_BYTES,
        Body::Barrier { .. } | Body::Expire { .. } | Body::Settled(_) => 0,
    };
    ENTRY_BYTES + carried
}

/// What a part costs.
pub(crate) fn part_bytes<M: Machine>(part: Option<&M::Part>) -> u64 {
    VERSION_BYTES + part.map_or(0, M::part_bytes)
}

fn parts_bytes<M: Machine>(parts: &Parts<M>) -> u64 {
    parts.iter().map(|(_, part)| part_bytes::<M>(part.as_ref().map(|(_, part)| part))).sum()
}

/// What the requests of so many clients cost at most.
pub(crate) const fn requests_bytes<M: Machine>(clients: usize, outcomes: usize, expired: usize) -> u64 {
    let outcomes = outcomes as u64 * (KEPT_BYTES + M::OUTCOME_BYTES_MAX);
    REST_BYTES + clients as u64 * CLIENT_BYTES + outcomes + expired as u64 * EXPIRED_BYTES
}

/// What goes with the end of a state.
pub(crate) fn rest_bytes<M: Machine>(rest: &Rest<M::Outcome>) -> u64 {
    let sessions = &rest.sessions;
    requests_bytes::<M>(sessions.clients(), sessions.kept(), sessions.expired())
}

impl<M: Machine> Message<M> {
    /// What the message costs, whoever has to keep or to carry it.
    pub fn bytes(&self) -> u64 {
        let carried = match self {
            Self::Append { entries, .. } => entries.iter().map(entry_bytes::<M>).sum(),
            Self::Pull { have, .. } => have.len() as u64 * VERSION_BYTES,
            Self::Lacks { parts, .. } => parts.len() as u64 * VERSION_BYTES,
            Self::Found { parts, .. } => parts_bytes::<M>(parts),
            Self::Pulled { page, .. } => page.bytes(),
            Self::WrongView { current: view, .. } | Self::Adopt { view, .. } => {
                view.members.as_slice().len() as u64 * NODE_BYTES
            }
            _ => 0,
        };
        MESSAGE_BYTES + carried
    }
}

impl<M: Machine> Page<M> {
    /// The last part that it says something about.
    pub(crate) fn last_key(&self) -> Option<&M::Key> {
        let parts = self.parts.iter().map(|(key, _)| key);
        parts.chain(self.same.iter().map(|(key, _)| key)).max()
    }

    pub(crate) fn bytes(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| rest_bytes::<M>(rest));
        parts_bytes::<M>(&self.parts) + self.same.len() as u64 * VERSION_BYTES + rest
    }
}
