//! Which daemons can be asked, and which of them do not answer.

use std::collections::BTreeMap;

use base::{MonoTime, NodeId};

use super::{FORGIVEN, SILENCE};

/// The daemons that the client is connected with, and since when they owe a word.
#[derive(Debug)]
pub(super) struct Links(BTreeMap<NodeId, Option<MonoTime>>);

impl Links {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn up(&mut self, node: NodeId) {
        self.0.insert(node, None);
    }

    /// Whether it was up.
    pub(super) fn down(&mut self, node: NodeId) -> bool {
        self.0.remove(&node).is_some()
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// Something was sent to it.
    pub(super) fn asked(&mut self, node: NodeId, now: MonoTime) {
        if let Some(owes) = self.0.get_mut(&node) {
            *owes = owes.filter(|&since| now.since(since) < FORGIVEN).or(Some(now));
        }
    }

    /// It has said something.
    pub(super) fn heard(&mut self, node: NodeId) {
        if let Some(owes) = self.0.get_mut(&node) {
            *owes = None;
        }
    }

    /// Whether it is there, and is not silent.
    pub(super) fn answers(&self, node: NodeId, now: MonoTime) -> bool {
        let is_silent = |since: MonoTime| (SILENCE..FORGIVEN).contains(&now.since(since));
        self.0.get(&node).is_some_and(|owes| !owes.is_some_and(is_silent))
    }
}
