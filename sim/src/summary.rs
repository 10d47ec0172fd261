//! What a run did, for people and for scripts.

use std::fmt;

use base::Span;

use crate::{Outcome, Violation};

/// Below this much simulated time a run proves nothing.
pub const SIMULATED_MIN: Span = Span::from_secs(60);
/// Below this many leases acquired a run proves nothing.
pub const ACQUIRED_MIN: u64 = 1_000;
/// Below this many faults a run proves nothing.
pub const FAULTS_MIN: u64 = 3;

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Everything that can go wrong.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum FaultKind { $($(#[$doc])* $name,)* }

        impl FaultKind {
            /// All kinds, in the order of the summary.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The kind as the summary names it.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

fault_kinds! {
    /// A process ended and lost its memory; it is started again later.
    Crash = "crashes",
    /// A process stood still for a while and went on.
    Pause = "pauses",
    /// Two groups of nodes could not talk.
    Partition = "partitions",
    /// One node could not be reached, or could not reach others.
    OneWay = "one-way partitions",
    /// A link kept its messages and delivered them together.
    Clog = "clogs",
    /// A clock stepped.
    ClockStep = "clock steps",
    /// A clock changed its rate.
    ClockRate = "clock rate changes",
    /// A node stopped acting because it did not trust its clock.
    StandDown = "stand-downs",
    /// A witness told the others of a crash.
    Notice = "death notices",
    /// An old death notice was told again.
    NoticeReplay = "replayed death notices",
    /// All processes ended at once.
    CrashAll = "crashes of all",
    /// A connection broke, and what was on its way with it.
    Break = "broken connections",
    /// A clock went astray, beyond what its peers tolerate.
    ClockStray = "clocks astray",
    /// A clock did what nobody expects of a clock.
    ClockWrong = "wrong clocks",
    /// A daemon gave up what it had, stopped and was started again.
    Drain = "drains",
    /// A disk took its time.
    DiskStall = "disk stalls",
    /// A disk had no room for a while.
    DiskFull = "full disks",
    /// A record that was not synced was torn when the power failed.
    Torn = "torn records",
    /// A disk refused to read when a daemon started.
    ReadError = "read errors",
    /// A disk refused to write.
    WriteError = "write errors",
    /// A sync failed, and some of what it was about is on no disk.
    SyncError = "sync errors",
    /// Something on a disk was not what had been written any more.
    BitRot = "bit rot",
    /// Parts of a file's content were found damaged, by a read or by a start.
    ContentRot = "parts of files damaged",
    /// A write went elsewhere: it damaged what stood there, and is missing where it should be.
    Misdirected = "misdirected writes",
    /// A store did not open any more, and its node did not come back.
    StoreLost = "stores lost",
    /// An operator gave up what only a lost store had.
    LossAccepted = "losses accepted",
    /// The power of one machine or of some failed, and with it what was not synced.
    PowerCut = "power cuts",
    /// The power of all machines failed at once.
    PowerCutAll = "power cuts of all",
    /// A data directory was emptied, and put back later.
    DirectoryEmptied = "emptied directories",
    /// A data directory was set back to an old copy, and put back later.
    DirectoryRestored = "restored directories",
    /// A copy of a running daemon's data directory was started elsewhere and died.
    CopyDies = "deaths of copies",
    /// A client's process ended; another one took its place.
    ClientCrash = "client crashes",
    /// A client's process stood still for a while and went on.
    ClientPause = "client pauses",
    /// A cell's members changed.
    ViewChange = "view changes",
    /// A message that no correct node sends.
    Impossible = "impossible messages",
    /// A message was lost.
    Loss = "messages lost",
    /// A message met a partition.
    Cut = "messages cut off",
    /// A message arrived twice.
    Duplicate = "messages doubled",
    /// A message arrived late.
    Late = "messages late",
    /// A message waited in a clogged link.
    Clogged = "messages clogged",
}

/// How often each kind of fault happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faults([u64; FaultKind::ALL.len()]);

impl Default for Faults {
    fn default() -> Self {
        Self([0; FaultKind::ALL.len()])
    }
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// Which algorithm.
    pub algorithm: &'static str,
    /// How many nodes.
    pub nodes: u32,
    /// How many cells.
    pub cells: u32,
    /// The longest lease.
    pub t_max: Span,
    /// How long the run was.
    pub simulated: Span,
    /// Leases acquired.
    pub acquired: u64,
    /// Leases renewed.
    pub renewed: u64,
    /// Leases released.
    pub released: u64,
    /// Leases handed over to a named successor.
    pub handed_over: u64,
    /// Leases lost against their owner's will.
    pub lost: u64,
    /// Operations that owners answered.
    pub acts: u64,
    /// Messages delivered.
    pub messages: u64,
    /// The faults.
    pub faults: Faults,
    /// How long the slowest cell took to get an owner after everything was healed, if the run came that far.
    pub recovered_in: Option<Span>,
    /// The promises that were broken. The first one ends a run.
    pub violations: Vec<Violation>,
}

impl Faults {
    /// Counts one.
    pub const fn count(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// How many of a kind there were.
    pub const fn of(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// How many there were, without what happened to single messages.
    pub fn injected(&self) -> u64 {
        FaultKind::ALL.iter().filter(|&&kind| kind < FaultKind::Loss).map(|&kind| self.of(kind)).sum()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = FaultKind::ALL.iter().filter(|&&kind| self.of(kind) > 0);
        for (index, &kind) in happened.enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{} {}", self.of(kind), kind.label())?;
        }
        Ok(())
    }
}

impl Summary {
    /// Whether enough happened for the run to mean something.
    pub fn counts(&self) -> bool {
        self.simulated >= SIMULATED_MIN
            && self.acquired >= ACQUIRED_MIN
            && self.faults.injected() >= FAULTS_MIN
    }
}

impl Outcome for Summary {
    fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.counts()
    }

    fn simulated(&self) -> Span {
        self.simulated
    }

    fn violations(&self) -> &[Violation] {
        &self.violations
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {} {}: {} nodes, {} cells, leases of {}, {:.1} s simulated",
            self.seed,
            self.algorithm,
            self.nodes,
            self.cells,
            self.t_max,
            self.simulated.as_secs_f64()
        )?;
        writeln!(
            f,
            "  leases: {} acquired, {} renewed, {} released, {} handed over, {} lost; {} operations answered",
            self.acquired, self.renewed, self.released, self.handed_over, self.lost, self.acts
        )?;
        writeln!(f, "  faults: {}", self.faults)?;
        writeln!(f, "  messages: {} delivered", self.messages)?;
        if let Some(recovered) = self.recovered_in {
            writeln!(f, "  healed: every cell had an owner after {:.3} s", recovered.as_secs_f64())?;
        }
        if !self.counts() && self.violations.is_empty() {
            writeln!(f, "  PROVED NOTHING: too little happened")?;
        }
        for violation in &self.violations {
            writeln!(f, "  VIOLATION {violation}")?;
        }
        write!(f, "  violations: {}", self.violations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_little_happened_is_not_clean() {
        let mut summary = Summary { simulated: SIMULATED_MIN, acquired: ACQUIRED_MIN, ..Summary::default() };
        assert!(!summary.is_clean());
        summary.faults.count(FaultKind::Loss);
        (0..FAULTS_MIN).for_each(|_| summary.faults.count(FaultKind::Crash));
        assert!(summary.is_clean());
        assert_eq!(summary.faults.injected(), 3, "a lost message is weather, not a fault that was injected");
        summary.acquired -= 1;
        assert!(!summary.is_clean());
        assert!(summary.to_string().contains("PROVED NOTHING"));
    }
}
