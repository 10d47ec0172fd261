//! Counts what happened, so that a test that reaches nothing fails.

use std::collections::BTreeMap;
use std::fmt::Debug;

use namespace::{Done, Fate, NameError, Op};

/// What comes of each kind of operation: it is done, and, but for these, refused.
const CHANGES: [&str; 23] = [
    "Cancel",
    "Create",
    "Deleted",
    "Enter",
    "Expire",
    "Forget",
    "GiveBack",
    "Hold",
    "Lend",
    "Limit",
    "Link",
    "Lock",
    "Release",
    "RemoveDirectory",
    "RemoveXattr",
    "Rename",
    "Return",
    "SetAttributes",
    "SetXattr",
    "Settle",
    "Unlink",
    "Unlock",
    "Welcome",
];
const NEVER_REFUSED: [&str; 3] = ["Expire", "Limit", "Settle"];
/// Refused only after a client's end.
const SELDOM_REFUSED: &str = "Welcome";

/// Each reason for a refusal but those that take a tree of 4,096 levels, or 65,000 names or clients.
const ERRORS: [&str; 36] = [
    "Deadlock",
    "Denied",
    "Exists",
    "Expired",
    "Foreign",
    "IsDirectory",
    "Lent",
    "Locked",
    "Loop",
    "NoClient",
    "NoEntry",
    "NoInode",
    "NoInodes",
    "NoSpace",
    "NoStretch",
    "NoXattr",
    "NoXattrSpace",
    "NotAcl",
    "NotDirectory",
    "NotDoomed",
    "NotEmpty",
    "NotExpired",
    "NotHeld",
    "NotLent",
    "NotOrphan",
    "NotPermitted",
    "NotSupported",
    "NotWaiting",
    "Orphan",
    "Stale",
    "TooLong",
    "TooManyHolders",
    "TooManyLocks",
    "WrongKind",
    "XattrExists",
    "XattrTooLong",
];

const EVENTS: [&str; 15] = [
    "doomed",
    "doomed by expiry",
    "ends with lends",
    "exchanged",
    "expired in part",
    "gone",
    "granted",
    "granted by a lock",
    "granted by expiry",
    "granted in part",
    "named",
    "opened",
    "orphan",
    "replaced",
    "waits",
];

/// Of each kind of operation so many are done, and so many refused, or little is proved.
const EACH_MIN: u64 = 50;
/// In a hundred operations so many are done.
const DONE_PERCENT_MIN: u64 = 40;

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

    /// What was not reached.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for change in CHANGES {
            let (done, refused) = self.changes.get(change).copied().unwrap_or_default();
            let is_refused = refused >= EACH_MIN
                || NEVER_REFUSED.contains(&change)
                || change == SELDOM_REFUSED && refused > 0;
            if done < EACH_MIN || !is_refused {
                missing.push(format!("{change}: {done} done, {refused} refused"));
            }
        }
        missing.extend(
            ERRORS.iter().filter(|error| !self.errors.contains_key(**error)).map(|it| (*it).to_owned()),
        );
        missing.extend(
            EVENTS.iter().filter(|event| !self.events.contains_key(**event)).map(|it| (*it).to_owned()),
        );
        let totals = self.changes.values();
        let (done, refused) = totals.fold((0, 0), |(all, not), (done, refused)| (all + done, not + refused));
        if done * 100 < (done + refused) * DONE_PERCENT_MIN {
            missing.push(format!("{done} done, {refused} refused"));
        }
        missing
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
        Done::Expired { dooms, granted, lends, more } => {
            let (dooms, grants, lends, more) = (*dooms, !granted.all.is_empty(), *lends, *more);
            let all = [
                (dooms, "doomed by expiry"),
                (grants, "granted by expiry"),
                (more, "expired in part"),
                (lends, "ends with lends"),
            ];
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
