//! Which daemons can be asked, and which of them do not answer.

use std::collections::BTreeMap;

use base::{MonoTime, NodeId};

use super::{FORGIVEN, SILENCE};

/// The daemons that the client is connected with.
#[derive(Debug)]
pub(super) struct Links {
    links: BTreeMap<NodeId, Link>,
    /// How many there were.
    count: u64,
}

#[derive(Debug, Default)]
struct Link {
    number: u64,
    /// Since when it owes a word.
    owes: Option<MonoTime>,
    /// When it said the last one.
    heard: Option<MonoTime>,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self { links: BTreeMap::new(), count: 0 }
    }

    pub(super) fn up(&mut self, node: NodeId) {
        self.count += 1;
        self.links.insert(node, Link { number: self.count, ..Link::default() });
    }

    /// Which of all connections is the one with it.
    pub(super) fn number(&self, node: NodeId) -> Option<u64> {
        Some(self.links.get(&node)?.number)
    }

    /// Whether it was up.
    pub(super) fn down(&mut self, node: NodeId) -> bool {
        self.links.remove(&node).is_some()
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.links.contains_key(&node)
    }

    /// Something was sent to it.
    pub(super) fn asked(&mut self, node: NodeId, now: MonoTime) {
        if let Some(Link { owes, .. }) = self.links.get_mut(&node) {
            *owes = owes.filter(|&since| now.since(since) < FORGIVEN).or(Some(now));
        }
    }

    /// It has said something.
    pub(super) fn heard(&mut self, node: NodeId, now: MonoTime) {
        if let Some(link) = self.links.get_mut(&node) {
            (link.owes, link.heard) = (None, Some(now));
        }
    }

    /// Whether it has said something not long ago: what it does not answer it has not come to yet.
    pub(super) fn is_busy(&self, node: NodeId, now: MonoTime) -> bool {
        let heard = self.links.get(&node).and_then(|link| link.heard);
        heard.is_some_and(|at| now.since(at) < SILENCE)
    }

    /// Whether it is there, and is not silent.
    pub(super) fn answers(&self, node: NodeId, now: MonoTime) -> bool {
        let is_silent = |since: MonoTime| (SILENCE..FORGIVEN).contains(&now.since(since));
        self.links.get(&node).is_some_and(|link| !link.owes.is_some_and(is_silent))
    }
}
