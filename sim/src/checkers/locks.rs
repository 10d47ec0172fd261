//! Locks: at every instant of true time at most one client believes to hold a lock, each asked as its library would
//! answer by its own clock at that instant. Frozen clients are asked, too: they may go on with what they were about.
//! And every grant has a higher token than all before it.
//!
//! While clocks are wrong there may be two. Then a grant has a higher token than all before it was asked for.

use std::collections::BTreeMap;

use base::ObjectId;
use node::{ClientId, Token};

use super::Violation;
use crate::TrueTime;

/// Watches who holds which lock by which token.
#[derive(Debug, Default)]
pub struct Locks {
    highest: BTreeMap<ObjectId, (Token, ClientId)>,
    /// Every token, and to whom it was granted.
    all: BTreeMap<(ObjectId, Token), ClientId>,
}

impl Locks {
    /// All that believe in holding the lock at this instant.
    pub fn observe(
        &self,
        at: TrueTime,
        cell: ObjectId,
        holders: &[(ClientId, Token)],
    ) -> Result<(), Violation> {
        if holders.len() <= 1 {
            return Ok(());
        }
        let what = format!("{} holders at once: {holders:?}", holders.len());
        Err(Violation { at, cell: Some(cell), checker: "locks", what })
    }

    /// The highest token so far: whoever asks from now on has a higher one.
    pub fn highest(&self, cell: ObjectId) -> Option<Token> {
        self.highest.get(&cell).map(|&(token, _)| token)
    }

    /// A client has been granted a lock that it asked for when `before` was the highest token.
    pub fn granted_late(
        &mut self,
        at: TrueTime,
        cell: ObjectId,
        (client, token): (ClientId, Token),
        before: Option<Token>,
    ) -> Result<(), Violation> {
        let wrong = |what: String| Err(Violation { at, cell: Some(cell), checker: "tokens", what });
        if let Some(before) = before.filter(|before| token <= *before) {
            return wrong(format!("{client:?} was granted {token:?}, and asked when there was {before:?}"));
        }
        if let Some(other) = self.all.insert((cell, token), client) {
            return wrong(format!("{client:?} was granted {token:?}, as {other:?} was"));
        }
        let highest = self.highest.entry(cell).or_insert((token, client));
        *highest = (*highest).max((token, client));
        Ok(())
    }

    /// A client has been granted a lock and believes in it.
    pub fn granted(
        &mut self,
        at: TrueTime,
        cell: ObjectId,
        (client, token): (ClientId, Token),
    ) -> Result<(), Violation> {
        if let Some((highest, before)) = self.highest.get(&cell)
            && token <= *highest
        {
            let what = format!("{client:?} was granted {token:?} after {before:?} had {highest:?}");
            return Err(Violation { at, cell: Some(cell), checker: "tokens", what });
        }
        self.granted_late(at, cell, (client, token), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: ObjectId = ObjectId::new(1 << 63, 1);
    const NOW: TrueTime = TrueTime::from_micros(5);

    fn client(program: u64) -> ClientId {
        ClientId { certificate: 1, program }
    }

    #[test]
    fn two_holders_at_once_break_it() {
        let locks = Locks::default();
        assert_eq!(locks.observe(NOW, CELL, &[]), Ok(()));
        assert_eq!(locks.observe(NOW, CELL, &[(client(1), Token(1))]), Ok(()));
        let both = [(client(1), Token(1)), (client(2), Token(2))];
        assert_eq!(locks.observe(NOW, CELL, &both).unwrap_err().checker, "locks");
    }

    #[test]
    fn a_token_that_does_not_grow_breaks_it() {
        let mut locks = Locks::default();
        assert_eq!(locks.granted(NOW, CELL, (client(1), Token(7))), Ok(()));
        assert_eq!(locks.granted(NOW, ObjectId::new(1 << 63, 2), (client(1), Token(3))), Ok(()));
        assert_eq!(locks.granted(NOW, CELL, (client(2), Token(8))), Ok(()));
        for token in [Token(8), Token(7)] {
            assert_eq!(locks.granted(NOW, CELL, (client(3), token)).unwrap_err().checker, "tokens");
        }
    }

    #[test]
    fn what_was_asked_for_before_may_come_late() {
        let mut locks = Locks::default();
        let asked = locks.highest(CELL);
        assert_eq!(locks.granted_late(NOW, CELL, (client(1), Token(7)), asked), Ok(()));
        assert_eq!(locks.granted_late(NOW, CELL, (client(2), Token(5)), asked), Ok(()));
        assert!(locks.granted_late(NOW, CELL, (client(2), Token(5)), asked).is_err(), "twice");
        let asked = locks.highest(CELL);
        assert!(
            locks.granted_late(NOW, CELL, (client(3), Token(6)), asked).is_err(),
            "there was a higher one"
        );
        assert_eq!(locks.granted_late(NOW, CELL, (client(3), Token(8)), asked), Ok(()));
    }
}
