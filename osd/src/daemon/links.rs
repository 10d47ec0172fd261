//! Who is connected over which link.

use std::collections::BTreeMap;

use base::{Dead, NodeId, Process};
use net::{Link, LinkId};
use node::{Lines, SessionId};
use wire::{NodeIntroduction, Notice};

/// The connections of a daemon, by what they mean to it.
#[derive(Default)]
pub(crate) struct Links {
    nodes: BTreeMap<NodeId, (Process, Link)>,
    lines: Lines,
    clients: BTreeMap<SessionId, Link>,
}

impl Links {
    /// Takes a daemon's new connection. Of two connections the one of the later process stays, then the newer one;
    /// returns whether that is this one.
    pub(crate) fn open_node(&mut self, process: Process, link: &Link) -> bool {
        if let Some((before, old)) = self.nodes.get(&process.node) {
            if before.incarnation > process.incarnation {
                link.close("a later process of this node is connected");
                return false;
            }
            old.close("a newer connection takes its place");
        }
        self.nodes.insert(process.node, (process, link.clone()));
        true
    }

    /// Remembers the line of a daemon that is connected. Returns who is dead because it is alive.
    pub(crate) fn note_line(&mut self, told: &NodeIntroduction) -> Option<Dead> {
        self.lines.note(told.process, told.line)
    }

    /// Whom a notice names.
    pub(crate) fn named_by(&self, notice: &Notice) -> Option<Dead> {
        self.lines.named_by(notice.dead, notice.line)
    }

    /// A daemon's connection has ended. Whether it was the one in use.
    pub(crate) fn close_node(&mut self, node: NodeId, link: LinkId) -> bool {
        let is_in_use = self.nodes.get(&node).is_some_and(|(_, present)| present.id() == link);
        if is_in_use {
            self.nodes.remove(&node);
        }
        is_in_use
    }

    pub(crate) fn node(&self, node: NodeId) -> Option<&(Process, Link)> {
        self.nodes.get(&node)
    }

    /// The daemons that are connected.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &(Process, Link)> {
        self.nodes.values()
    }

    /// The process at the other end, if this is the link in use to it.
    pub(crate) fn process(&self, link: &Link) -> Option<Process> {
        let (process, present) = self.nodes.get(&link.peer().role.node()?)?;
        (present.id() == link.id()).then_some(*process)
    }

    pub(crate) fn open_client(&mut self, link: &Link) -> SessionId {
        let session = session_of(link);
        self.clients.insert(session, link.clone());
        session
    }

    pub(crate) fn close_client(&mut self, session: SessionId) -> Option<Link> {
        self.clients.remove(&session)
    }

    pub(crate) fn client(&self, session: SessionId) -> Option<&Link> {
        self.clients.get(&session)
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Link> {
        self.nodes.values().map(|(_, link)| link).chain(self.clients.values())
    }
}

/// The session that a client's link stands for.
pub(crate) fn session_of(link: &Link) -> SessionId {
    SessionId(link.id().0)
}
