//! Who is connected over which link.

use std::collections::BTreeMap;

use base::{Dead, Incarnation, NodeId, Process};
use net::{Link, LinkId};
use node::SessionId;
use wire::{NodeIntroduction, Notice, StartId};

/// The connections of a daemon, by what they mean to it.
#[derive(Default)]
pub(crate) struct Links {
    nodes: BTreeMap<NodeId, (Process, Link)>,
    /// The line of the newest start of each daemon that was ever connected.
    lines: BTreeMap<NodeId, StartId>,
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
        let Process { node, incarnation } = told.process;
        self.lines.insert(node, told.line);
        let last = Incarnation(incarnation.0.checked_sub(1)?);
        dead(node, told.line.incarnation, last)
    }

    /// Whom a notice names, if it is of the line that is known. Another line is that of a copied data directory, whose
    /// starts have the same numbers.
    pub(crate) fn named_by(&self, notice: &Notice) -> Option<Dead> {
        let Process { node, incarnation } = notice.dead;
        let is_known = self.lines.get(&node) == Some(&notice.line);
        is_known.then(|| dead(node, notice.line.incarnation, incarnation)).flatten()
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

fn dead(node: NodeId, first: Incarnation, last: Incarnation) -> Option<Dead> {
    (first <= last).then_some(Dead { node, first, last })
}

/// The session that a client's link stands for.
pub(crate) fn session_of(link: &Link) -> SessionId {
    SessionId(link.id().0)
}

#[cfg(test)]
mod tests {
    use base::StoreId;

    use super::*;

    fn introduction(incarnation: u32, line: StartId) -> NodeIntroduction {
        let process = Process::new(2, incarnation);
        NodeIntroduction { process, store: StoreId([1; 16]), nonce: incarnation.into(), line, knows: None }
    }

    fn line(incarnation: u32, nonce: u64) -> StartId {
        StartId { incarnation: Incarnation(incarnation), nonce }
    }

    #[test]
    fn a_start_proves_the_death_of_those_before_it_in_its_line() {
        let mut links = Links::default();
        assert_eq!(links.note_line(&introduction(5, line(5, 50))), None);
        let dead = Dead { node: NodeId(2), first: Incarnation(5), last: Incarnation(6) };
        assert_eq!(links.note_line(&introduction(7, line(5, 50))), Some(dead));
        assert_eq!(links.note_line(&introduction(0, line(5, 50))), None, "said by a broken peer");
    }

    #[test]
    fn a_notice_is_taken_only_of_the_line_that_is_known() {
        let mut links = Links::default();
        let notice = |incarnation, line| Notice { dead: Process::new(2, incarnation), line };
        assert_eq!(links.named_by(&notice(5, line(5, 50))), None, "a daemon never seen");
        links.note_line(&introduction(6, line(5, 50)));
        assert_eq!(links.named_by(&notice(6, line(5, 51))), None, "a copy that also counted to 6");
        let dead = Dead { node: NodeId(2), first: Incarnation(5), last: Incarnation(6) };
        assert_eq!(links.named_by(&notice(6, line(5, 50))), Some(dead));
        assert_eq!(links.named_by(&notice(4, line(5, 50))), None, "said by a broken supervisor");
    }
}
