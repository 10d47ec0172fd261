//! What a run of a cluster did, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt;

use base::Span;
use node::file::FileError;
use replication::Reached;

use super::plan::ClusterPlan;
use crate::check::file::{FileOp, FileOutcome};
use crate::check::volume::{Told, VolumeOp};
use crate::checkers::contents::Counts;
use crate::checkers::histories::Judgement;
use crate::checkers::promptness::Expected;
use crate::summary::Faults;
use crate::{FaultKind, Outcome, Violation};

/// Below this much simulated time a run proves nothing.
pub const SIMULATED_MIN: Span = Span::from_secs(60);
/// Below this many grants a run proves nothing.
pub const GRANTED_MIN: u64 = 30;
/// Below this many operations that were acknowledged, on files and locks together, a run proves nothing.
pub const ACKNOWLEDGED_MIN: u64 = 1_000;
/// Below this many faults a run proves nothing.
pub const FAULTS_MIN: u64 = 3;

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterSummary {
    /// The seed.
    pub seed: u64,
    /// Which algorithm decides the leases.
    pub algorithm: &'static str,
    /// How many daemons.
    pub daemons: usize,
    /// How many clients.
    pub clients: u32,
    /// How many locks.
    pub locks: u32,
    /// The longest lease.
    pub t_max: Span,
    /// How long the run was.
    pub simulated: Span,
    /// How often somebody wanted a lock.
    pub wanted: u64,
    /// Locks granted.
    pub granted: u64,
    /// How often a lock was busy for somebody who did not want to wait.
    pub busy: u64,
    /// How often nobody could answer for a lock.
    pub unavailable: u64,
    /// Locks lost against their holder's will.
    pub lost: u64,
    /// Locks taken over from a daemon that did not give them up free.
    pub taken_over: u64,
    /// Locks detached because their lease might end too early.
    pub detached: u64,
    /// How often a lock was seen to have two holders while clocks were wrong.
    pub locks_shared: u64,
    /// How many files.
    pub files: u32,
    /// What users wanted done to files, without syncs.
    pub file_operations: u64,
    /// How much of it, and how many syncs, were acknowledged.
    pub file_acknowledged: u64,
    /// The syncs among that.
    pub file_synced: u64,
    /// The changes among it that were durable at once.
    pub file_durable: u64,
    /// How much was given up.
    pub file_given_up: u64,
    /// Clients that a daemon declared over for a file.
    pub file_clients_over: u64,
    /// How often a client was told so, and how often the change had taken effect all the same.
    pub file_told_over: u64,
    /// See there.
    pub file_over_effective: u64,
    /// How often a daemon had no room for what a client wanted of a file.
    pub file_overloaded: u64,
    /// Changes that were acknowledged, and that a sync found to be perhaps lost.
    pub file_changes_lost: u64,
    /// How often what was only written to a file may have been lost.
    pub losses: u64,
    /// How often a recovery had to wait for somebody who remembers.
    pub blocked: u64,
    /// States that were taken over.
    pub transfers: u64,
    /// How often parts that could not be read came back as they were.
    pub parts_mended: u64,
    /// Changes of the members of files that an operator was told are done.
    pub members_changed: u64,
    /// How often a file was removed, and how often somebody was told that it was.
    pub file_removals: u64,
    /// See there.
    pub file_told_removed: u64,
    /// How many changes found no space.
    pub file_no_space: u64,
    /// What was done with volumes.
    pub trees: TreeCounts,
    /// What was done with files that were lent to clients.
    pub lends: LendCounts,
    /// How often which limit was reached.
    pub limits: Reached,
    /// What the histories of files were found to be.
    pub judgement: Judgement,
    /// Sessions opened.
    pub sessions: u64,
    /// Sessions that daemons ended because their client was silent.
    pub sessions_over: u64,
    /// Messages sent.
    pub messages: u64,
    /// The faults.
    pub faults: Faults,
    /// How long it took until everybody had what they waited for, if the run came that far.
    pub recovered_in: Option<Span>,
    /// The longest that each expected thing took in the calm.
    pub worst: BTreeMap<Expected, Span>,
    /// The promises that were broken. The first one ends a run.
    pub violations: Vec<Violation>,
}

/// What was done with files that were lent to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LendCounts {
    /// How often a client heard that something is lent to it, and how often that was taken back.
    pub adopted: u64,
    /// See there.
    pub recalled: u64,
    /// How many changes, reads and questions were done and answered without a message.
    pub changes_here: u64,
    /// See there.
    pub reads_here: u64,
    /// See there.
    pub stats_here: u64,
    /// How many changes a content was asked for although a client might have had it lent.
    pub through: u64,
    /// How much was sent of what was written here, and how much of that was refused.
    pub flushes: u64,
    /// See there.
    pub lost: u64,
    /// How often all of a file was made durable.
    pub synced: u64,
    /// How many directories were lent to whoever made them, and how often one was wanted back while something was not entered.
    pub dirs: u64,
    /// See there.
    pub dirs_waited_for: u64,
    /// How many files were created without a message, and removed; how many of them were entered, and how much of both was refused.
    pub created_here: u64,
    /// See there.
    pub removed_here: u64,
    /// Of those, how many their volume had not entered by then.
    pub removed_early: u64,
    /// Of those, how many were refused because others may have found them.
    pub removed_late: u64,
    /// See there.
    pub entered: u64,
    /// See there.
    pub entries_lost: u64,
    /// What the histories were found to be.
    pub judged: Counts,
}

/// What was done with volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeCounts {
    /// How many there were.
    pub volumes: u32,
    /// How much users wanted done to them, and asked them.
    pub wanted: u64,
    /// How many changes of their trees took effect, and how many a tree refused.
    pub changed: u64,
    /// See there.
    pub refused: u64,
    /// How many questions were answered, and how many of these answers were that a tree refuses.
    pub answered: u64,
    /// See there.
    pub answers_refused: u64,
    /// How many times a tree was made.
    pub planted: u64,
    /// How many times a volume was removed, and how often somebody was told that it is gone or has no tree.
    pub removed: u64,
    /// See there.
    pub told_gone: u64,
    /// How many changes found no space.
    pub no_space: u64,
    /// How often a file was opened.
    pub opened: u64,
    /// How much users wanted of the content of files that they had open.
    pub content_wanted: u64,
    /// How many of the answers a client knew.
    pub known: u64,
}

impl TreeCounts {
    /// Something has a result.
    pub(super) fn note(&mut self, op: &VolumeOp, told: &Result<Told, FileError>) {
        let is_question = matches!(op, VolumeOp::Ask(_));
        let count = match (op, told) {
            (_, Err(FileError::Removed | FileError::NoTree)) => &mut self.told_gone,
            (_, Err(FileError::NoSpace)) => &mut self.no_space,
            (_, Err(_)) if is_question => &mut self.answers_refused,
            (_, Err(_)) => &mut self.refused,
            (VolumeOp::Plant(_), Ok(_)) => &mut self.planted,
            (VolumeOp::Remove, Ok(_)) => &mut self.removed,
            (VolumeOp::Ask(_), Ok(_)) => &mut self.answered,
            (VolumeOp::Change(_), Ok(_)) => &mut self.changed,
            (VolumeOp::Begin | VolumeOp::NoSpace | VolumeOp::Nothing, Ok(_)) => return,
        };
        *count += 1;
        if is_question && told.is_err() {
            self.answered += 1;
        }
    }
}

impl ClusterSummary {
    pub(super) fn new(plan: &ClusterPlan, algorithm: &'static str) -> Self {
        Self {
            seed: plan.seed,
            algorithm,
            daemons: plan.daemons(),
            clients: plan.clients,
            locks: plan.locks,
            files: plan.files.count,
            trees: TreeCounts { volumes: plan.volumes.count, ..TreeCounts::default() },
            t_max: plan.shard.lease.t_max,
            ..Self::default()
        }
    }

    /// A change has a result.
    pub(super) fn note_removed(&mut self, op: &FileOp, outcome: &FileOutcome) {
        match (op, outcome) {
            (_, FileOutcome::Removed) => self.file_told_removed += 1,
            (_, FileOutcome::NoSpace) => self.file_no_space += 1,
            (FileOp::Remove, FileOutcome::Done) => self.file_removals += 1,
            _ => {}
        }
    }

    /// Whether enough happened for the run to mean something.
    pub fn counts(&self) -> bool {
        let acknowledged = self.granted + self.file_acknowledged;
        self.granted >= GRANTED_MIN
            && acknowledged >= ACKNOWLEDGED_MIN
            && self.faults.injected() >= FAULTS_MIN
    }
}

impl Outcome for ClusterSummary {
    fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.counts() && self.simulated >= SIMULATED_MIN
    }

    fn simulated(&self) -> Span {
        self.simulated
    }

    fn violations(&self) -> &[Violation] {
        &self.violations
    }

    fn judgement(&self) -> Judgement {
        self.judgement
    }
}

impl ClusterSummary {
    fn write_files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  files: {}; {} operations wanted, {} acknowledged, {} of them syncs and {} changes that were durable at once, {} given up; {} changes lost in {} \
             losses; {} recoveries blocked, {} states taken over, {} times parts got back, members changed {} times; {} histories in the order of \
             the replicas, {} in another",
            self.files,
            self.file_operations,
            self.file_acknowledged,
            self.file_synced,
            self.file_durable,
            self.file_given_up,
            self.file_changes_lost,
            self.losses,
            self.blocked,
            self.transfers,
            self.parts_mended,
            self.members_changed,
            self.judgement.linearizable,
            self.judgement.searched
        )?;
        writeln!(
            f,
            "  limits: {} times no room, {} clients declared over, {} times told so, {} of these changes took effect before",
            self.file_overloaded, self.file_clients_over, self.file_told_over, self.file_over_effective
        )?;
        write!(f, "  limits reached:")?;
        for (index, (limit, times)) in self.limits.iter().enumerate() {
            write!(f, "{} {} {times} times", if index == 0 { "" } else { "," }, limit.label())?;
        }
        writeln!(
            f,
            "\n  removed: {} files, {} changes refused since; {} changes found no space",
            self.file_removals, self.file_told_removed, self.file_no_space
        )?;
        let trees = self.trees;
        writeln!(
            f,
            "  volumes: {}; {} operations wanted, {} changes took effect and {} were refused, {} questions were answered, {} of \
             them with a refusal; planted {} times, removed {} times, told to be gone {} times, {} changes found no space, {} files opened, {} operations on their content wanted",
            trees.volumes,
            trees.wanted,
            trees.changed,
            trees.refused,
            trees.answered,
            trees.answers_refused,
            trees.planted,
            trees.removed,
            trees.told_gone,
            trees.no_space,
            trees.opened,
            trees.content_wanted
        )
    }
}

impl fmt::Display for ClusterSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} {}: {} daemons, {} clients, {} locks, leases of {}, {:.1} s simulated",
            self.seed,
            self.algorithm,
            self.daemons,
            self.clients,
            self.locks,
            self.t_max,
            self.simulated.as_secs_f64()
        )?;
        writeln!(
            f,
            "  locks: {} wanted, {} granted, {} busy, {} unavailable, {} lost; {} taken over, {} detached",
            self.wanted, self.granted, self.busy, self.unavailable, self.lost, self.taken_over, self.detached
        )?;
        self.write_files(f)?;
        writeln!(
            f,
            "  sessions: {} opened, {} timed out; {} messages sent",
            self.sessions, self.sessions_over, self.messages
        )?;
        writeln!(f, "  faults: {}", self.faults)?;
        if self.faults.of(FaultKind::ClockWrong) > 0 {
            let Judgement { loose, stale, .. } = self.judgement;
            writeln!(
                f,
                "  while clocks were wrong: {loose} answers about files, {stale} of them stale; locks seen to be shared {} times",
                self.locks_shared
            )?;
        }
        if let Some(span) = self.recovered_in {
            write!(
                f,
                "  healed: everybody had what they waited for after {:.3} s; at worst",
                span.as_secs_f64()
            )?;
            for (index, (expected, took)) in self.worst.iter().enumerate() {
                let separator = if index == 0 { "" } else { "," };
                write!(f, "{separator} {} {:.3} s", expected.label(), took.as_secs_f64())?;
            }
            writeln!(f)?;
        }
        write!(f, "  violations: {}", self.violations.len())?;
        for violation in &self.violations {
            write!(f, "\n    {violation}")?;
        }
        if self.violations.is_empty() && !self.is_clean() {
            write!(f, "\n  this run proves nothing: too little happened")?;
        }
        Ok(())
    }
}
