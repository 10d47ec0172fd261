//! Counts what happened, so that a test that reaches nothing fails.

use std::collections::BTreeMap;
use std::fmt::Debug;

use namespace::{Done, Fate, NameError, Op};

/// How often what happened.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    /// Of each kind of operation, how often it was done and how often refused.
    pub(crate) changes: BTreeMap<String, (u64, u64)>,
    /// Of each reason for a refusal, how often it was given.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Other things worth reaching.
    pub(crate) events: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(crate) fn count(&mut self, op: &Op, done: &Result<Done, NameError>) {
        let (done_so_far, refused) = self.changes.entry(variant(&op.change)).or_default();
        match done {
            Ok(done) => {
                *done_so_far += 1;
                for event in events(done) {
                    *self.events.entry(event).or_default() += 1;
                }
            }
            Err(error) => {
                *refused += 1;
                *self.errors.entry(variant(error)).or_default() += 1;
            }
        }
    }

    /// How many operations there were, and how many of them were done.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.changes.values().fold((0, 0), |(all, done), (ok, refused)| (all + ok + refused, done + ok))
    }
}

fn events(done: &Done) -> Vec<&'static str> {
    let fate = |fate: &Fate| match fate {
        Fate::Named { .. } => "named",
        Fate::Orphan { .. } => "orphan",
        Fate::Doomed => "doomed",
        Fate::Gone => "gone",
    };
    match done {
        Done::Created { is_new: false, .. } => vec!["opened"],
        Done::Removed { fate: is, .. } | Done::Released { fate: is } => vec![fate(is)],
        Done::Renamed { fate: Some(is), .. } => vec!["replaced", fate(is)],
        Done::Renamed { other: Some(_), .. } => vec!["exchanged"],
        Done::Locked { waits, granted } => {
            let waits = waits.map(|_| "waits");
            waits.into_iter().chain((!granted.all.is_empty()).then_some("granted by a lock")).collect()
        }
        Done::Unlocked { granted } if granted.more => vec!["granted in part"],
        Done::Unlocked { granted } if !granted.all.is_empty() => vec!["granted"],
        Done::Expired { dooms, granted, more } => {
            let (dooms, grants, more) = (*dooms, !granted.all.is_empty(), *more);
            let all = [(dooms, "doomed by expiry"), (grants, "granted by expiry"), (more, "expired in part")];
            all.into_iter().filter(|(is, _)| *is).map(|(_, event)| event).collect()
        }
        _ => Vec::new(),
    }
}

/// The name of a variant.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}
