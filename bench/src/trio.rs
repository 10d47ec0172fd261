//! Three lease nodes in one process that exchange encoded frames: the protocol and the codec, and nothing else.

use std::sync::Arc;

use base::{Members, NodeId, ObjectId, Process, Span, View, ViewId, WallTime};
use lease::{Algorithm, Config, Event, LeaseNode, Start};
use wire::{decode_lease_frame, encode_lease_frames};

/// What a loopback packet carries beside the headers of QUIC.
const FRAME_MAX: usize = net::LOOPBACK_PACKET_BYTES as usize - 150;

/// How many cells a node asks for in one turn of its loop.
const TURN: usize = 1024;

/// Three members, each proposer and acceptor, on one thread.
#[derive(Debug)]
pub struct Trio<A> {
    nodes: Vec<LeaseNode<A>>,
    view: View,
    now: WallTime,
    frames: Vec<(usize, NodeId, Vec<u8>)>,
    /// What came of it.
    pub outcome: Outcome,
}

/// Counts of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Leases acquired.
    pub acquired: u64,
    /// Leases renewed.
    pub renewed: u64,
    /// Leases denied or lost, and frames that could not be read.
    pub failed: u64,
}

impl<A: Algorithm> Trio<A> {
    /// Three fresh nodes with the default settings.
    ///
    /// # Panics
    ///
    /// If the default settings contradict each other, which a test of theirs excludes.
    pub fn new() -> Self {
        let config = Arc::new(Config::default());
        let now = WallTime::from_micros(1_700_000_000_000_000);
        let start = |node| {
            LeaseNode::new(Arc::clone(&config), Process::new(node, 1), Start::Fresh, now, u64::from(node))
        };
        let nodes = (0..3).map(start).collect::<Result<_, _>>().expect("the defaults hold");
        let members = Members::new((0..3).map(NodeId)).expect("three distinct members");
        let view = View { id: ViewId::default(), members };
        Self { nodes, view, now, frames: Vec::new(), outcome: Outcome::default() }
    }

    /// Acquires `count` cells from number `first` on, a third by each node, in turns of the loop.
    pub fn acquire(&mut self, first: u64, count: u64) {
        let cells: Vec<u64> = (first..first + count).collect();
        for turn in cells.chunks(TURN * self.nodes.len()) {
            let share = turn.len().div_ceil(self.nodes.len());
            for (node, cells) in turn.chunks(share).enumerate() {
                for &cell in cells {
                    self.acquire_by(node, cell);
                }
            }
            self.exchange();
        }
    }

    /// Acquires cells `0..count`, all by the first node, so that the others are nothing but acceptors.
    pub fn acquire_by_first(&mut self, count: u64) {
        for first in (0..count).step_by(TURN) {
            (first..count.min(first + TURN as u64)).for_each(|cell| self.acquire_by(0, cell));
            self.exchange();
        }
    }

    /// Lets `span` pass in steps of a millisecond, exchanging what is due in each.
    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Span::from_millis(1);
            for node in &mut self.nodes {
                node.handle_timeout(self.now);
            }
            self.exchange();
        }
    }

    /// The registers of the last node.
    pub fn registers(&self) -> usize {
        self.nodes.last().map_or(0, LeaseNode::registers)
    }

    /// Takes a node out, to see what it takes with it.
    pub fn take_last(&mut self) -> Option<LeaseNode<A>> {
        self.nodes.pop()
    }

    fn acquire_by(&mut self, node: usize, cell: u64) {
        let cell = ObjectId::new(1, cell);
        if self.nodes[node].acquire(self.now, cell, &self.view).is_err() {
            self.outcome.failed += 1;
        }
    }

    /// Carries frames to and fro until nobody has anything to say.
    fn exchange(&mut self) {
        loop {
            for node in 0..self.nodes.len() {
                self.collect(node);
            }
            if self.frames.is_empty() {
                return;
            }
            for (from, to, frame) in std::mem::take(&mut self.frames) {
                self.deliver(from, to, &frame);
            }
        }
    }

    fn collect(&mut self, from: usize) {
        while let Some((to, batch)) = self.nodes[from].poll_transmit(self.now) {
            encode_lease_frames(&batch, FRAME_MAX, &mut |frame| self.frames.push((from, to, frame.to_vec())));
        }
        while let Some(event) = self.nodes[from].poll_event() {
            match event {
                Event::Acquired { .. } => self.outcome.acquired += 1,
                Event::Renewed { .. } => self.outcome.renewed += 1,
                Event::Denied { .. } | Event::Lost { .. } => self.outcome.failed += 1,
                _ => {}
            }
        }
    }

    fn deliver(&mut self, from: usize, to: NodeId, frame: &[u8]) {
        let sender = self.nodes[from].me().node;
        match decode_lease_frame(frame, sender) {
            Ok(batch) => self.nodes[to.0 as usize].handle_batch(self.now, &batch, &self.view),
            Err(_) => self.outcome.failed += 1,
        }
    }
}

impl<A: Algorithm> Default for Trio<A> {
    fn default() -> Self {
        Self::new()
    }
}
