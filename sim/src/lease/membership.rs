//! Views: who replicates a cell changes, one member at a time, and everybody learns of it at another time.
//!
//! A cell's views are entries of its log. Only a primary appends one, and only after it re-acquired its lease from a
//! majority of the view before. A node applies the views one after the other, as it would replay a log.

use base::{Members, NodeId, ObjectId, Seq, Span, View, ViewId};
use lease::{Algorithm, Membership};

use super::world::{Task, World};
use crate::plan::span_between;
use crate::{FaultKind, Violation};

/// How often a cell is drawn until one has a primary that may change its view.
const TRIES: usize = 20;
/// A node that cannot learn now tries again after this part of `t_max`.
const LEARN_AGAIN_PART: u64 = 10;
/// A cell never has fewer members: a single one could not tell anybody.
const MEMBERS_MIN: usize = 2;

impl<A: Algorithm> World<'_, A> {
    pub(super) fn change_some_view(&mut self) -> Result<(), Violation> {
        for _ in 0..TRIES {
            let cell = self.dice.faults.index(self.cells.len());
            if let Some(primary) = self.owner_of(cell)
                && self.may_change(primary, cell)
            {
                return self.change_view(primary, cell);
            }
        }
        Ok(())
    }

    /// The primary knows the latest view and got its lease from a majority of it.
    fn may_change(&self, primary: usize, cell: usize) -> bool {
        let state = &self.cells[cell];
        let host = &self.hosts[primary];
        let decided_in = host.node.as_ref().and_then(|node| node.decided_in(state.id));
        host.known.index(cell) + 1 == state.views.len()
            && decided_in == state.views.last().map(|view| view.id)
    }

    fn change_view(&mut self, primary: usize, cell: usize) -> Result<(), Violation> {
        let Some(next) = self.draw_view(cell) else { return Ok(()) };
        self.summary.faults.count(FaultKind::ViewChange);
        let id = self.cells[cell].id;
        self.note(Some(id), format_args!("n{primary} changes the view to {next:?}"));
        self.cells[cell].views.push(next);
        for node in (0..self.hosts.len()).filter(|&node| node != primary) {
            let delay = self.time_to_learn();
            self.queue.push(self.now + delay, Task::Learn { node, cell });
        }
        self.learn(primary, cell)
    }

    /// The latest view with one member more or less.
    fn draw_view(&mut self, cell: usize) -> Option<View> {
        let last = self.cells[cell].views.last()?;
        let mut members = last.members.as_slice().to_vec();
        let others: Vec<NodeId> =
            self.hosts.iter().map(|host| host.id).filter(|&node| !last.members.contains(node)).collect();
        let grows = members.len() <= MEMBERS_MIN || self.dice.faults.chance(1, 2);
        match self.dice.faults.pick(&others) {
            Some(&newcomer) if grows => members.push(newcomer),
            _ if members.len() > MEMBERS_MIN => {
                let gone = self.dice.faults.index(members.len());
                members.remove(gone);
            }
            _ => return None,
        }
        let id = ViewId { seq: Seq(last.id.seq.0 + 1), ..last.id };
        Some(View { id, members: Members::new(members).ok()? })
    }

    fn time_to_learn(&mut self) -> Span {
        let t_max = self.config.t_max;
        let longest = [self.plan.network.latency_max, t_max / 10, t_max, t_max * 3];
        let longest = self.dice.faults.pick(&longest).copied().unwrap_or(t_max);
        span_between(Span::ZERO, longest, &mut self.dice.faults)
    }

    /// A peer knows more: the node asks it for the log.
    pub(super) fn catch_up(&mut self, node: usize, cell: ObjectId) {
        let Some(cell) = self.index(cell) else { return };
        if self.hosts[node].known.index(cell) + 1 < self.cells[cell].views.len() {
            let delay = span_between(Span::ZERO, self.config.t_max / 4, &mut self.dice.faults);
            self.queue.push(self.now + delay, Task::Learn { node, cell });
        }
    }

    /// The node applies the views that it does not know yet, in their order.
    pub(super) fn learn(&mut self, node: usize, cell: usize) -> Result<(), Violation> {
        if !self.hosts[node].runs() {
            let later = self.now + self.config.t_max / LEARN_AGAIN_PART;
            self.queue.push(later, Task::Learn { node, cell });
            return Ok(());
        }
        let id = self.cells[cell].id;
        loop {
            let known = self.hosts[node].known.index(cell);
            let Some(next) = self.cells[cell].views.get(known + 1).cloned() else { return Ok(()) };
            let was_member = self.cells[cell].views[known].members.contains(self.hosts[node].id);
            let membership = if was_member { Membership::Kept } else { Membership::Joined };
            self.note(Some(id), format_args!("n{node} learns of {:?}", next.id));
            self.hosts[node].known.advance(cell, next.clone());
            self.call(node, |process, now, _| process.change_view(now, id, &next, membership))?;
        }
    }
}
