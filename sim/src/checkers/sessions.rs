//! Sessions: a daemon takes no client for gone while that client may still count on its session.
//!
//! A client counts on it from when it sent the last frame that was confirmed, by its own clock. What the daemon has
//! confirmed counts from when it said so, however long that takes to arrive.

use base::{MonoTime, NodeId};
use node::ClientId;

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Watches the ends of sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    /// How many ended because their client was silent.
    pub ended: u64,
}

impl Sessions {
    /// A daemon ends a client's session, which the client may count on until `covered_until`, because it was confirmed at
    /// `confirmed`. Its clock shows `reading`.
    pub fn ended(
        &mut self,
        at: TrueTime,
        (daemon, client): (NodeId, ClientId),
        (reading, covered_until, confirmed): (MonoTime, MonoTime, TrueTime),
    ) -> Result<(), Violation> {
        self.ended += 1;
        if covered_until <= reading {
            return Ok(());
        }
        let left = covered_until.since(reading);
        let what = format!("{daemon:?} ended the session of {client:?}, which counts on it for {left} more");
        let counts = format!("{daemon:?} confirms {client:?} until {covered_until:?} by its clock");
        let ends = format!("{daemon:?} ends the session of {client:?}, whose clock shows {reading:?}");
        let facts = [Fact::new(confirmed, client, counts), Fact::new(at, daemon, ends)];
        Err(Violation::new(at, "sessions", what).shown_by(facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_a_session_that_is_counted_on_breaks_it() {
        let mut sessions = Sessions::default();
        let who = (NodeId(1), ClientId { certificate: 1, program: 1 });
        let times =
            |reading, until| (MonoTime::from_micros(reading), MonoTime::from_micros(until), TrueTime::ZERO);
        let at = TrueTime::from_micros(9);
        assert_eq!(sessions.ended(at, who, times(7, 7)), Ok(()));
        let broken = sessions.ended(at, who, times(6, 7)).unwrap_err();
        assert_eq!((broken.checker, broken.shown.len()), ("sessions", 2));
        assert_eq!(sessions.ended, 2);
    }
}
