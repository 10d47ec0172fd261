//! Stores and starts: what a daemon is told to be durable is on its disk; a store is opened only with all that, and knowing
//! what it lost; and no store or directory is refused that nothing happened to.

use base::NodeId;

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// A daemon was told that its records up to one are durable, of which `missing` is not. That was handed over at
/// `handed_over`.
pub fn not_durable(at: TrueTime, node: NodeId, (missing, handed_over): (u64, TrueTime)) -> Violation {
    let what = format!("{node:?} takes record {missing} for durable, which it is not");
    let facts = [
        Fact::new(handed_over, node, format!("{node:?} hands record {missing} over to its disk")),
        Fact::new(at, node, format!("{node:?} is told that record {missing} is durable, and it is not")),
    ];
    Violation::new(at, "stores", what).shown_by(facts)
}

/// A store was opened, or refused, as it must not be. `before` is what happened to its disk.
pub fn wrong(at: TrueTime, node: NodeId, what: &str, before: Vec<Fact>) -> Violation {
    let what = format!("{node:?} {what}");
    let now = Fact::new(at, node, what.clone());
    Violation::new(at, "stores", what).shown_by(before.into_iter().chain([now]))
}

/// A daemon did not start, or stopped at once, though nothing was wrong with its directory. `before` is what happened to it.
pub fn not_started(at: TrueTime, node: NodeId, what: &str, before: Vec<Fact>) -> Violation {
    let now = Fact::new(at, node, format!("{node:?} starts, and ends"));
    Violation::new(at, "starts", what.to_owned()).shown_by(before.into_iter().chain([now]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    #[test]
    fn what_was_handed_over_is_shown() {
        let broken = not_durable(TrueTime::from_micros(9), NODE, (7, TrueTime::from_micros(3)));
        let shown: Vec<String> = broken.shown.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "0.000003 n1 hands record 7 over to its disk",
                "0.000009 n1 is told that record 7 is durable, and it is not",
            ]
        );
    }

    #[test]
    fn what_happened_to_the_disk_is_shown() {
        let before = || vec![Fact::new(TrueTime::from_micros(3), NODE, "n1: a sync fails".into())];
        for broken in [
            wrong(TrueTime::from_micros(9), NODE, "opens a store that has failed", before()),
            not_started(TrueTime::from_micros(9), NODE, "n1 takes itself for a copy, and is none", before()),
        ] {
            assert_eq!((broken.shown.len(), &*broken.shown[0].what), (2, "n1: a sync fails"), "{broken}");
        }
    }
}
