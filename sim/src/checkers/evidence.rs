//! What shows a violation: the fewest events that do, found by the checker itself, because it knows what it needs.
//!
//! What went wrong meanwhile with the machines that these are about belongs to it. Of that the last of each kind is
//! enough.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use base::{ClientId, NodeId};

use super::Violation;
use crate::TrueTime;

/// So many mishaps are remembered.
const MISHAPS_MAX: usize = 4_096;
/// A fact is told in so many characters at most: some states are large.
const WHAT_MAX: usize = 400;

/// Some machines, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Machines(u64);

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// When.
    pub at: TrueTime,
    /// To whom: what went wrong there between the first fact and the last is told, too.
    pub whose: Machines,
    /// What.
    pub what: String,
}

/// What went wrong lately.
#[derive(Debug, Default)]
pub struct Mishaps {
    /// The first so many machines are daemons' or nodes', and the others clients'.
    nodes: usize,
    list: VecDeque<Mishap>,
}

#[derive(Clone, Copy, Debug)]
struct Mishap {
    at: TrueTime,
    whose: Machines,
    what: &'static str,
}

impl Machines {
    /// All that a simulation may have.
    pub const ALL: Self = Self(u64::MAX);

    /// One of them.
    pub const fn one(machine: usize) -> Self {
        Self(1 << (machine % 64))
    }

    /// These and those.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether one of these is among those.
    pub const fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl Machines {
    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&machine| self.meets(Self::one(machine)))
    }
}

impl FromIterator<usize> for Machines {
    fn from_iter<I: IntoIterator<Item = usize>>(machines: I) -> Self {
        machines.into_iter().fold(Self::default(), |all, machine| all.and(Self::one(machine)))
    }
}

impl From<NodeId> for Machines {
    fn from(node: NodeId) -> Self {
        Self::one(node.0 as usize)
    }
}

/// A simulated client has the number of its machine for a certificate.
impl From<ClientId> for Machines {
    fn from(client: ClientId) -> Self {
        usize::try_from(client.certificate).map_or_else(|_| Self::default(), Self::one)
    }
}

impl Fact {
    /// Something that happened to these machines.
    pub fn new(at: TrueTime, whose: impl Into<Machines>, mut what: String) -> Self {
        if let Some((end, _)) = what.char_indices().nth(WHAT_MAX) {
            what.truncate(end);
            what += " …";
        }
        Self { at, whose: whose.into(), what }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.what)
    }
}

impl Mishaps {
    /// Nothing has gone wrong yet. The first `nodes` machines are of nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, list: VecDeque::new() }
    }

    /// Something goes wrong with these machines, or is right again.
    pub fn note(&mut self, at: TrueTime, whose: Machines, what: &'static str) {
        if self.list.len() == MISHAPS_MAX {
            self.list.pop_front();
        }
        self.list.push_back(Mishap { at, whose, what });
    }

    /// Of all that went wrong with these machines since then, the last of each kind.
    pub fn since(&self, begin: TrueTime, whose: Machines) -> Vec<Fact> {
        let mut told = BTreeSet::new();
        let recent = self.list.iter().rev().take_while(|mishap| mishap.at >= begin);
        let about = recent.filter(|mishap| mishap.whose.meets(whose));
        let mut facts: Vec<Fact> = about
            .filter(|mishap| told.insert((mishap.what, mishap.whose)))
            .map(|mishap| Fact::new(mishap.at, mishap.whose, self.tell(mishap)))
            .collect();
        facts.reverse();
        facts
    }

    /// Puts between the facts of a violation what went wrong meanwhile, and all in order.
    pub fn complete(&self, violation: &mut Violation) {
        let whose = violation.shown.iter().fold(Machines::default(), |all, fact| all.and(fact.whose));
        let first = violation.shown.iter().map(|fact| fact.at).min().unwrap_or(violation.at);
        let mut shown = self.since(first, whose);
        shown.append(&mut violation.shown);
        shown.sort_by_key(|fact| fact.at);
        let mut told = BTreeSet::new();
        shown.retain(|fact| told.insert((fact.at, fact.what.clone())));
        violation.shown = shown;
    }

    fn tell(&self, mishap: &Mishap) -> String {
        if mishap.whose == Machines::ALL {
            return mishap.what.to_owned();
        }
        let name = |machine| {
            if machine < self.nodes { format!("n{machine}") } else { format!("the client on {machine}") }
        };
        let names = mishap.whose.iter().map(name);
        format!("{}: {}", names.collect::<Vec<_>>().join(", "), mishap.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> TrueTime {
        TrueTime::from_micros(micros)
    }

    fn told(facts: &[Fact]) -> Vec<String> {
        facts.iter().map(|fact| fact.what.clone()).collect()
    }

    #[test]
    fn what_went_wrong_in_between_is_told_once_and_in_order() {
        let mut mishaps = Mishaps::new(2);
        for (when, machine, what) in
            [(1, 0, "ends"), (3, 0, "ends"), (4, 1, "ends"), (5, 0, "starts"), (6, 0, "ends"), (7, 2, "ends")]
        {
            mishaps.note(at(when), Machines::one(machine), what);
        }
        mishaps.note(at(8), Machines::ALL, "everything is healed");
        let mut violation = Violation::new(at(9), "any", "it is broken".into()).shown_by([
            Fact::new(at(9), NodeId(0), "b".into()),
            Fact::new(at(9), Machines::default(), "b".into()),
            Fact::new(at(2), Machines::one(2), "a".into()),
        ]);
        mishaps.complete(&mut violation);
        let expected = ["a", "n0: starts", "n0: ends", "the client on 2: ends", "everything is healed", "b"];
        assert_eq!(told(&violation.shown), expected);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut mishaps = Mishaps::new(1);
        (0..5_000).for_each(|n| mishaps.note(at(n), Machines::one(0), "ends"));
        assert_eq!(mishaps.list.len(), MISHAPS_MAX);
        assert_eq!(
            mishaps.since(at(0), Machines::one(0)),
            [Fact::new(at(4_999), NodeId(0), "n0: ends".into())]
        );
    }

    #[test]
    fn a_long_fact_is_cut() {
        let fact = Fact::new(at(1), NodeId(0), "ä".repeat(1_000));
        assert_eq!(fact.what.chars().count(), WHAT_MAX + 2);
    }
}
