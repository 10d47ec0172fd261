//! Sessions: a daemon takes no client for gone while that client may still count on its session.
//!
//! A client counts on it from when it sent the last frame that was confirmed, by its own clock. What the daemon has
//! confirmed counts from when it said so, however long that takes to arrive.

use base::{MonoTime, NodeId};
use node::ClientId;

use super::Violation;
use crate::TrueTime;

/// Watches the ends of sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    /// How many ended because their client was silent.
    pub ended: u64,
}

impl Sessions {
    /// A daemon ends a client's session, which the client may count on until `covered_until`. Its clock shows `reading`.
    pub fn ended(
        &mut self,
        at: TrueTime,
        (daemon, client): (NodeId, ClientId),
        (reading, covered_until): (MonoTime, MonoTime),
    ) -> Result<(), Violation> {
        self.ended += 1;
        if covered_until <= reading {
            return Ok(());
        }
        let left = covered_until.since(reading);
        let what = format!("{daemon:?} ended the session of {client:?}, which counts on it for {left} more");
        Err(Violation { at, cell: None, checker: "sessions", what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_a_session_that_is_counted_on_breaks_it() {
        let mut sessions = Sessions::default();
        let who = (NodeId(1), ClientId { certificate: 1, program: 1 });
        let times = |reading, until| (MonoTime::from_micros(reading), MonoTime::from_micros(until));
        assert_eq!(sessions.ended(TrueTime::ZERO, who, times(7, 7)), Ok(()));
        assert_eq!(sessions.ended(TrueTime::ZERO, who, times(6, 7)).unwrap_err().checker, "sessions");
        assert_eq!(sessions.ended, 2);
    }
}
