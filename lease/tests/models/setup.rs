//! What a model consists of: its nodes, their clocks, what they may be told, and the bounds.

use base::{Epoch, Members, NodeId, Seq, Span, View, ViewId};
use lease::Config;

use crate::milestone::Milestone;

/// The reading that clocks start from, in ticks: above zero, so that ages and ballots have room below.
pub(crate) const START: u8 = 8;

/// Something that a node is told to do or that befalls it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Move {
    Acquire(u8),
    Release(u8),
    HandOver {
        from: u8,
        to: u8,
    },
    /// Dies and starts again at once, as a new incarnation. Happens once.
    Restart(u8),
    /// `to` hears that the earlier incarnations of `dead` are dead.
    Notice {
        dead: u8,
        to: u8,
    },
    /// Happens once.
    StandDown(u8),
    /// Happens once.
    Resume(u8),
    /// The owner puts the next view in force for itself.
    Propose(u8),
    /// Follows to the next view that somebody proposed.
    Adopt(u8),
}

/// How clocks move.
#[derive(Clone, Debug)]
pub(crate) enum Clocks {
    /// Any way they like, while no two differ by more than this many ticks.
    Within(u8),
    /// From these readings, all together, except that each may lose one tick on the way.
    Together { offsets: Vec<u8>, may_lose_a_tick: bool },
}

/// What a primary waits for between two changes of view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// Its lease is decided by a majority of the view in force (L9).
    Decided,
    /// A majority of the view in force has adopted it, as every commit needs.
    Adopted,
}

/// One model.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) config: Config,
    pub(crate) nodes: u8,
    /// The views in the order in which they come into force.
    pub(crate) views: Vec<View>,
    pub(crate) gate: Gate,
    pub(crate) clocks: Clocks,
    /// If not empty: node 0 holds the lease from the start, by the votes of one of these and its own.
    pub(crate) voters: Vec<u8>,
    /// How many ticks a clock makes at most.
    pub(crate) horizon: u8,
    /// How many rounds reach other nodes, beside the one that made the first owner; the messages of later rounds are lost.
    pub(crate) rounds_max: u8,
    pub(crate) moves: Vec<Move>,
    /// Pairs of nodes that never hear from each other.
    pub(crate) cut: Vec<(u8, u8)>,
    /// Nodes whose timers are not served in time, or ever: messages overtake them, as after a long stop.
    pub(crate) late: Vec<u8>,
    pub(crate) milestones: Vec<Milestone>,
}

impl Setup {
    /// Three nodes on Flease with a lease of three ticks, and nothing that may happen.
    pub(crate) fn flease(name: &'static str) -> Self {
        Self {
            name,
            config: config(3, 1),
            nodes: 3,
            views: vec![view(0, &[0, 1, 2])],
            gate: Gate::Decided,
            clocks: Clocks::Within(1),
            voters: Vec::new(),
            horizon: 8,
            rounds_max: 3,
            moves: Vec::new(),
            cut: Vec::new(),
            late: Vec::new(),
            milestones: Vec::new(),
        }
    }

    /// Three nodes on PaxosLease, their clocks far apart.
    pub(crate) fn paxos(name: &'static str) -> Self {
        let clocks = Clocks::Together { offsets: vec![0, 40, 20, 60], may_lose_a_tick: false };
        Self { clocks, config: config(3, 0), ..Self::flease(name) }
    }
}

/// A lease of `t_max` ticks on clocks that differ by `epsilon` ticks. A tick is a microsecond.
pub(crate) fn config(t_max: u64, epsilon: u64) -> Config {
    Config {
        t_max: Span::from_micros(t_max),
        epsilon: Span::from_micros(epsilon),
        session: Span::ZERO,
        rate_error_ppm: 0,
        round_trip_max: Span::ZERO,
        renew_after: Span::from_micros(1),
        gather: Span::ZERO,
        // One attempt for each command, and for each renewal: retries are other rounds of the same kind.
        attempts_max: 1,
        backoff_min: Span::from_micros(64),
        backoff_max: Span::from_micros(64),
        trail_len: 0,
        // Registers are dropped only in the model of that; elsewhere the time of their last use is of no account.
        linger: Span::from_secs(1),
        ..Config::default()
    }
}

/// The `number`th view of the cell.
pub(crate) fn view(number: u64, members: &[u32]) -> View {
    let id = ViewId { epoch: Epoch::default(), seq: Seq(number) };
    let members = members.iter().copied().map(NodeId);
    View { id, members: Members::new(members).expect("models name each member once") }
}
