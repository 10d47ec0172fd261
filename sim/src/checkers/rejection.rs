//! Rejection: a message that no correct node sends changes nothing and is counted.

use lease::{Counters, Reject};

use super::Violation;
use crate::TrueTime;

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
}
