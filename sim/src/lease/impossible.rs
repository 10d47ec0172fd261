//! Messages that no correct node sends, as if a member had sent them: each must be refused, be counted, and change
//! nothing.

use base::{Epoch, NodeId, Process, Seq, Span, ViewId, WallTime};
use lease::{
    Algorithm, Ballot, Batch, Body, Expiry, INTERVAL_MAX, Lease, LeaseId, LeaseNode, Message, ROUND_MAX,
    Stamp,
};

use super::world::{Task, World};
use crate::checkers::rejection;
use crate::{FaultKind, Violation};

/// What is wrong with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    /// A ballot that no clock has come to yet.
    FutureRead,
    FutureWrite,
    /// A lease beyond `t_max`.
    TooLong,
    Stranger,
    FutureView,
    ForeignBallot,
    /// An expiry of the other algorithm.
    OtherExpiry,
    NoId,
    OtherSettings,
    /// An answer to an attempt that there never was, from far in the future.
    Unasked,
}

const ALWAYS_WRONG: &[Wrong] = &[
    Wrong::TooLong,
    Wrong::Stranger,
    Wrong::FutureView,
    Wrong::ForeignBallot,
    Wrong::OtherExpiry,
    Wrong::NoId,
    Wrong::OtherSettings,
    Wrong::Unasked,
];

/// Ballots say when they were made only where clocks are synchronised.
const WRONG_WITH_CLOCKS: &[Wrong] = &[Wrong::FutureRead, Wrong::FutureWrite];

impl<A: Algorithm> World<'_, A> {
    /// A running node receives something impossible.
    pub(super) fn say_the_impossible(&mut self, to: usize) -> Result<(), Violation> {
        let synchronised = self.plan.clocks.window.is_some();
        let kinds =
            if synchronised { [ALWAYS_WRONG, WRONG_WITH_CLOCKS].concat() } else { ALWAYS_WRONG.to_vec() };
        let Some(&wrong) = self.dice.faults.pick(&kinds) else { return Ok(()) };
        let cell = self.dice.faults.index(self.cells.len());
        let from = self.dice.faults.index(self.hosts.len());
        if !self.hosts[to].runs() || from == to || self.settings == 0 {
            return Ok(());
        }
        let batch = self.forge(wrong, from, to, cell);
        self.summary.faults.count(FaultKind::Impossible);
        let [(suspected, before), (suspected_after, after)] = {
            let counted = self.rejections(to);
            self.deliver(to, batch)?;
            [counted, self.rejections(to)]
        };
        self.hosts[to].forged += suspected_after - suspected;
        rejection::check(self.now, self.hosts[to].process(), &format!("{wrong:?}"), (before, after))
    }

    /// How many messages a node has taken for impossible, and how many it has rejected for whatever reason.
    fn rejections(&self, node: usize) -> (u64, u64) {
        let counters = self.hosts[node].node.as_ref().map(LeaseNode::counters);
        counters.map_or((0, 0), |counters| (rejection::suspected(counters), rejection::rejected(counters)))
    }

    /// No node takes an honest message for an impossible one.
    pub(super) fn check_suspicions(&self) -> Result<(), Violation> {
        for host in &self.hosts {
            if let Some(process) = &host.node {
                let suspected = rejection::suspected(process.counters());
                rejection::check_honest(self.now, process.me(), suspected, host.forged)?;
            }
        }
        Ok(())
    }

    fn forge(&mut self, wrong: Wrong, from: usize, to: usize, cell: usize) -> Batch {
        let now = self.hosts[to].clock.reading(self.now);
        let state = &self.cells[cell];
        let known = &state.views[self.hosts[to].known.index(cell)];
        let sender = match wrong {
            Wrong::Stranger => Process::new(99, 1),
            _ => self.hosts[from].process(),
        };
        let interval = Stamp::interval_at(now, self.config.t_max.saturating_sub(self.config.epsilon));
        let stamp = match wrong {
            Wrong::FutureRead => Stamp::new(INTERVAL_MAX, ROUND_MAX),
            Wrong::FutureWrite => Stamp::new(interval + 4, 0),
            _ => Stamp::new(interval, 0),
        };
        let process = if wrong == Wrong::ForeignBallot { Process::new(sender.node.0, 9_999) } else { sender };
        let view = match wrong {
            Wrong::FutureView => ViewId { epoch: Epoch { number: 9_999, node: NodeId(0) }, seq: Seq(1) },
            _ => known.id,
        };
        let body = self.forge_body(wrong, now);
        Batch {
            sender,
            settings: if wrong == Wrong::OtherSettings { !self.settings } else { self.settings },
            sent: now,
            messages: vec![Message { cell: state.id, view, ballot: Ballot { stamp, process }, body }],
        }
    }

    fn forge_body(&self, wrong: Wrong, now: WallTime) -> Body {
        let t_max = self.config.t_max;
        let synchronised = self.plan.clocks.window.is_some();
        let expiry = match (synchronised, wrong == Wrong::OtherExpiry) {
            (true, false) | (false, true) => Expiry::At(now + t_max),
            (false, false) | (true, true) => Expiry::After(t_max),
        };
        let too_long = match expiry {
            Expiry::At(_) => Expiry::At(now + t_max + self.config.epsilon + Span::from_micros(1)),
            Expiry::After(_) => Expiry::After(t_max + Span::from_micros(1)),
        };
        let lease = Lease {
            id: if wrong == Wrong::NoId { LeaseId::NONE } else { LeaseId(1) },
            expiry: if wrong == Wrong::TooLong { too_long } else { expiry },
            previous: LeaseId::NONE,
            ended: lease::Ended::Unknown,
            given: None,
        };
        match wrong {
            Wrong::FutureRead | Wrong::Stranger | Wrong::FutureView | Wrong::ForeignBallot => Body::Read,
            Wrong::Unasked => Body::Nack { highest: Ballot::ceiling_of(Stamp::MAX) },
            _ => Body::Write(lease),
        }
    }
}

/// Kept here so that the queue's tasks stay small: a delivery is the largest of them.
const _: () = assert!(size_of::<Task>() <= 64, "every event in the queue pays for the largest");
