//! What a model consists of: its nodes, what has happened before it begins, and what may happen how often.

use base::Span;
use replication::Config;

use crate::milestone::Milestone;
use crate::node::Input;

/// What has happened before a model begins.
#[derive(Clone, Debug)]
pub(crate) enum Before {
    /// This node gets the lease.
    Lead(u8),
    /// This happens to this node.
    Do(u8, Input),
    /// All disks are synced.
    Sync,
    /// Everything arrives that these nodes have sent to each other, and what follows from it; their timers are served
    /// once. What they have sent to others is lost.
    Settle(&'static [u8]),
}

/// One model.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) config: Config,
    pub(crate) nodes: u8,
    /// The first so many are members.
    pub(crate) members: u8,
    pub(crate) before: Vec<Before>,
    /// Who may get the lease, for each tenure of the model.
    pub(crate) tenures: Vec<Vec<u8>>,
    /// What clients ask for, of any primary that serves, and again.
    pub(crate) ops: Vec<u8>,
    /// Which of them are to be made durable, once they are done.
    pub(crate) syncs: Vec<u8>,
    /// Nodes whose disks write only when the model says so. The others' disks write at once.
    pub(crate) slow: Vec<u8>,
    /// Whose process may end and start again, and how often in all.
    pub(crate) kills: Vec<u8>,
    pub(crate) kills_max: u8,
    /// Whose power may fail and come back, and how often in all. If there are none, disks sync at once.
    pub(crate) powers: Vec<u8>,
    pub(crate) powers_max: u8,
    /// Of whose state a part may be damaged, and how often in all.
    pub(crate) rots: Vec<u8>,
    pub(crate) rots_max: u8,
    /// How often timers are served in all.
    pub(crate) retries_max: u8,
    /// Whose timers.
    pub(crate) retries: Vec<u8>,
    /// Whether a recovery may wait for so long that it goes on with those who forgot.
    pub(crate) patience: bool,
    /// Who may become a member, and be one no more.
    pub(crate) admit: Vec<u8>,
    pub(crate) dismiss: Vec<u8>,
    /// Pairs of nodes that never hear from each other.
    pub(crate) cut: Vec<(u8, u8)>,
    pub(crate) milestones: Vec<Milestone>,
}

impl Setup {
    /// Three members, and nothing that may happen.
    pub(crate) fn quiet(name: &'static str) -> Self {
        Self {
            name,
            config: config(),
            nodes: 3,
            members: 3,
            before: Vec::new(),
            tenures: Vec::new(),
            ops: Vec::new(),
            syncs: Vec::new(),
            slow: Vec::new(),
            kills: Vec::new(),
            kills_max: 0,
            powers: Vec::new(),
            powers_max: 0,
            rots: Vec::new(),
            rots_max: 0,
            retries_max: 0,
            retries: vec![0, 1, 2, 3],
            patience: false,
            admit: Vec::new(),
            dismiss: Vec::new(),
            cut: Vec::new(),
            milestones: Vec::new(),
        }
    }
}

/// Time stands still in a model, and timers are due whenever they are served.
pub(crate) fn config() -> Config {
    Config {
        retry_after: Span::ZERO,
        tell_after: Span::ZERO,
        retired_every: Span::ZERO,
        isolated_after: Span::from_secs(1_000),
        all_forgot_after: Span::from_secs(1),
        ..Config::default()
    }
}
