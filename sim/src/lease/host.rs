//! A simulated machine: a clock that goes on, a process that comes and goes, and what survives the process.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Incarnation, NodeId, ObjectId, Process, Random, View, WallTime};
use lease::{Algorithm, Batch, Config, LeaseNode, Start, ViewSource};

use crate::TrueTime;
use crate::checkers::exclusion::Owner;
use crate::clock::Clock;

/// The latest view of each cell that a node knows; its log keeps them across restarts.
#[derive(Debug)]
pub(super) struct Known(Vec<(usize, View)>);

/// One machine.
#[derive(Debug)]
pub(super) struct Host<A> {
    pub(super) id: NodeId,
    pub(super) clock: Clock,
    pub(super) known: Known,
    /// The process, unless it is down.
    pub(super) node: Option<LeaseNode<A>>,
    pub(super) incarnation: u32,
    /// A frozen process: its inbox fills, its timers do not fire.
    pub(super) paused: bool,
    pub(super) inbox: Vec<Batch>,
    /// Which processes the present process was told to be dead.
    pub(super) told_dead: Vec<(NodeId, Incarnation)>,
    /// Which leases were offered to the present process, and by whom.
    pub(super) offers: BTreeMap<ObjectId, Process>,
    /// How many forged messages the present process has seen through.
    pub(super) forged: u64,
    /// The present process's next timeout, by its clock and by true time.
    pub(super) wake: Option<(WallTime, TrueTime)>,
    /// What the clock showed when the last process ended.
    mark: WallTime,
    seeds: Random,
}

impl Known {
    /// Every cell's first view.
    pub(super) fn first(views: impl Iterator<Item = View>) -> Self {
        Self(views.map(|view| (0, view)).collect())
    }

    /// Which of a cell's views this is.
    pub(super) fn index(&self, cell: usize) -> usize {
        self.0[cell].0
    }

    /// The next view of the cell.
    pub(super) fn advance(&mut self, cell: usize, view: View) {
        let known = &mut self.0[cell];
        *known = (known.0 + 1, view);
    }
}

impl ViewSource for Known {
    fn view(&self, cell: ObjectId) -> Option<Cow<'_, View>> {
        let (_, view) = self.0.get(usize::try_from(cell.low).ok()?)?;
        Some(Cow::Borrowed(view))
    }
}

impl<A: Algorithm> Host<A> {
    pub(super) fn new(id: NodeId, clock: Clock, known: Known, seeds: Random) -> Self {
        Self {
            id,
            clock,
            known,
            node: None,
            incarnation: 0,
            paused: false,
            inbox: Vec::new(),
            told_dead: Vec::new(),
            offers: BTreeMap::new(),
            forged: 0,
            wake: None,
            mark: WallTime::ZERO,
            seeds,
        }
    }

    pub(super) fn start(&mut self, now: TrueTime, config: &Arc<Config>) {
        let start = if self.incarnation == 0 { Start::Fresh } else { Start::Again };
        self.incarnation += 1;
        self.clock.raise_to(now, self.mark);
        let (reading, seed) = (self.clock.reading(now), self.seeds.next_u64());
        let node = LeaseNode::new(config.clone(), self.process(), start, reading, seed);
        self.node = Some(node.expect("plans are tested to pass the check"));
        self.told_dead.clear();
        self.offers.clear();
        self.forged = 0;
    }

    /// Ends the process: memory is lost, the mark on disk stays.
    pub(super) fn end(&mut self, now: TrueTime) {
        self.mark = self.mark.max(self.clock.reading(now));
        (self.node, self.paused, self.wake) = (None, false, None);
        self.inbox.clear();
    }

    /// The present process, or the last one.
    pub(super) const fn process(&self) -> Process {
        Process { node: self.id, incarnation: Incarnation(self.incarnation) }
    }

    /// Whether the process is there and not frozen.
    pub(super) const fn runs(&self) -> bool {
        self.node.is_some() && !self.paused
    }

    pub(super) fn holds(&self, now: TrueTime, cell: ObjectId) -> bool {
        self.node.as_ref().is_some_and(|node| node.holds(self.clock.reading(now), cell))
    }

    /// This machine's claim to a cell, as its process would state it at this instant if asked.
    pub(super) fn owner(&self, now: TrueTime, cell: ObjectId) -> Option<Owner> {
        let node = self.node.as_ref()?;
        let reading = self.clock.reading(now);
        if !node.holds(reading, cell) {
            return None;
        }
        let until = node.valid_until(reading, cell).unwrap_or(reading);
        Some(Owner { process: node.me(), reading, until, ended: false })
    }
}
