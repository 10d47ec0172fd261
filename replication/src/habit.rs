//! What users of an object tend to ask for, so that it can be seen to before they do.

use std::hash::{Hash, Hasher};

use base::Seq;

/// So many entries at most between two demands that something be durable make a habit.
const ENTRIES: u64 = 2;
/// So many such demands in a row.
const DEMANDS: u32 = 4;

/// Whether those who change something make it durable at once. Only time depends on that, so it is no part of what is compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habit {
    /// The last entry that was to be made durable.
    demanded: Seq,
    /// How often in a row only a few entries came between such demands.
    demands: u32,
    /// All were asked to make entries durable up to here before anybody demanded it.
    pub(crate) asked: Seq,
}

impl Habit {
    /// Somebody wants the entries up to here to be durable. Whether all were asked for that already.
    pub(crate) fn note(&mut self, upto: Seq) -> bool {
        if upto > self.demanded {
            self.demanded = upto;
            self.demands = self.demands.saturating_add(1);
        }
        upto <= self.asked
    }

    /// Whether somebody will want this new entry to be durable.
    pub(crate) fn expects(&mut self, seq: Seq) -> bool {
        if seq.0.saturating_sub(self.demanded.0) > ENTRIES {
            self.demands = 0;
        }
        self.demands >= DEMANDS
    }
}

impl Hash for Habit {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
