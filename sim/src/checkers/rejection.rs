//! Rejection: a message that no correct node sends changes nothing and is counted, and no other message is ever taken
//! for one.

use base::Process;
use lease::{Counters, Reject};

use super::Violation;
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
    Err(Violation { at, cell: None, checker: "rejection", what })
}

/// How many messages a node has rejected, for whatever reason.
pub fn rejected(counters: &Counters) -> u64 {
    Reject::ALL.iter().map(|&why| counters.rejected(why)).sum()
}

/// A node took in one impossible message; its count of rejections was `before` and is `after`.
pub fn check(at: TrueTime, name: &str, before: u64, after: u64) -> Result<(), Violation> {
    if after == before + 1 {
        return Ok(());
    }
    let what = format!("an impossible message ({name}) was counted {} times as rejected", after - before);
    Err(Violation { at, cell: None, checker: "rejection", what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_message_that_is_taken_breaks_it() {
        assert_eq!(rejected(&Counters::default()), 0);
        assert_eq!(check(TrueTime::ZERO, "a", 3, 4), Ok(()));
        assert!(check(TrueTime::ZERO, "a", 3, 3).is_err());
    }

    #[test]
    fn suspecting_an_honest_message_breaks_it() {
        assert_eq!(suspected(&Counters::default()), 0);
        assert_eq!(check_honest(TrueTime::ZERO, Process::new(1, 1), 2, 2), Ok(()));
        assert!(check_honest(TrueTime::ZERO, Process::new(1, 1), 3, 2).is_err());
    }
}
