//! Rejection: a message that no correct node sends changes nothing and is counted, and no other message is ever taken
//! for one.

use base::Process;
use lease::{Counters, Reject};

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Reasons that only a message of no correct node gives.
const SUSPICIOUS: &[Reject] = &[
    Reject::SettingsDiffer,
    Reject::ForeignBallot,
    Reject::FutureBallot,
    Reject::LeaseTooLong,
    Reject::Malformed,
    Reject::TwoValues,
];

/// How many messages a node has taken for impossible.
pub fn suspected(counters: &Counters) -> u64 {
    SUSPICIOUS.iter().map(|&why| counters.rejected(why)).sum()
}

/// A process has taken `suspected` messages for impossible, and `forged` of them were.
pub fn check_honest(at: TrueTime, who: Process, suspected: u64, forged: u64) -> Result<(), Violation> {
    if suspected == forged {
        return Ok(());
    }
    let what = format!("{who:?} took {suspected} messages for impossible, but {forged} were");
    let fact =
        Fact::new(at, who.node, format!("{who:?} has rejected {suspected} messages that nobody may send"));
    Err(Violation::new(at, "rejection", what).shown_by([fact]))
}

/// How many messages a node has rejected, for whatever reason.
pub fn rejected(counters: &Counters) -> u64 {
    Reject::ALL.iter().map(|&why| counters.rejected(why)).sum()
}

/// `who` took in one impossible message; its count of rejections was the first number and is the second.
pub fn check(at: TrueTime, who: Process, name: &str, (before, after): (u64, u64)) -> Result<(), Violation> {
    if after == before + 1 {
        return Ok(());
    }
    let what = format!("an impossible message ({name}) was counted {} times as rejected", after - before);
    let fact = |what| Fact::new(at, who.node, what);
    let facts = [
        fact(format!("{who:?} has rejected {before} messages, and gets one that is impossible: {name}")),
        fact(format!("it has rejected {after}")),
    ];
    Err(Violation::new(at, "rejection", what).shown_by(facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_message_that_is_taken_breaks_it() {
        assert_eq!(rejected(&Counters::default()), 0);
        let check = |after| check(TrueTime::ZERO, Process::new(1, 1), "a", (3, after));
        assert_eq!(check(4), Ok(()));
        assert_eq!(check(3).unwrap_err().shown.len(), 2);
    }

    #[test]
    fn suspecting_an_honest_message_breaks_it() {
        assert_eq!(suspected(&Counters::default()), 0);
        assert_eq!(check_honest(TrueTime::ZERO, Process::new(1, 1), 2, 2), Ok(()));
        let broken = check_honest(TrueTime::ZERO, Process::new(1, 1), 3, 2).unwrap_err();
        assert!(broken.shown[0].what.contains("3 messages"));
    }
}
