//! Locks: at every instant of true time at most one client believes to hold a lock, each asked as its library would
//! answer by its own clock at that instant. Frozen clients are asked, too: they may go on with what they were about.
//! And every grant has a higher token than all before it.
//!
//! While clocks are wrong there may be two. Then a grant has a higher token than all before it was asked for.

use std::collections::BTreeMap;

use base::ObjectId;
use node::{ClientId, Token};

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Watches who holds which lock by which token.
#[derive(Debug, Default)]
pub struct Locks {
    highest: BTreeMap<ObjectId, (Token, ClientId)>,
    /// Every token, and to whom it was granted.
    all: BTreeMap<(ObjectId, Token), ClientId>,
    /// When a client was last granted a lock.
    granted: BTreeMap<(ObjectId, ClientId), (Token, TrueTime)>,
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
        let grants = holders.iter().filter_map(|&(client, _)| self.grant(cell, client));
        let both =
            Fact::new(at, super::evidence::Machines::default(), format!("all of them hold it: {holders:?}"));
        Err(Violation::new(at, "locks", what).about(cell).shown_by(grants.chain([both])))
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
        let grant = tell_grant(at, (client, token));
        let wrong = |what: String, before: Option<Fact>| {
            let facts = before.into_iter().chain([grant]);
            Err(Violation::new(at, "tokens", what).about(cell).shown_by(facts))
        };
        if let Some(before) = before.filter(|before| token <= *before) {
            let other = self.all.get(&(cell, before)).and_then(|&other| self.grant(cell, other));
            let what = format!("{client:?} was granted {token:?}, and asked when there was {before:?}");
            return wrong(what, other);
        }
        if let Some(other) = self.all.insert((cell, token), client) {
            return wrong(
                format!("{client:?} was granted {token:?}, as {other:?} was"),
                self.grant(cell, other),
            );
        }
        self.granted.insert((cell, client), (token, at));
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
            let facts = self.grant(cell, *before).into_iter().chain([tell_grant(at, (client, token))]);
            return Err(Violation::new(at, "tokens", what).about(cell).shown_by(facts));
        }
        self.granted_late(at, cell, (client, token), None)
    }

    fn grant(&self, cell: ObjectId, client: ClientId) -> Option<Fact> {
        let &(token, at) = self.granted.get(&(cell, client))?;
        Some(tell_grant(at, (client, token)))
    }
}

fn tell_grant(at: TrueTime, (client, token): (ClientId, Token)) -> Fact {
    Fact::new(at, client, format!("{client:?} is granted the lock by {token:?}"))
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
        let mut locks = Locks::default();
        assert_eq!(locks.observe(NOW, CELL, &[]), Ok(()));
        assert_eq!(locks.observe(NOW, CELL, &[(client(1), Token(1))]), Ok(()));
        let both = [(client(1), Token(1)), (client(2), Token(2))];
        both.iter().for_each(|&grant| locks.granted(TrueTime::ZERO, CELL, grant).unwrap());
        let broken = locks.observe(NOW, CELL, &both).unwrap_err();
        assert_eq!((broken.checker, broken.shown.len()), ("locks", 3), "two grants, and both at once");
    }

    #[test]
    fn a_token_that_does_not_grow_breaks_it() {
        let mut locks = Locks::default();
        assert_eq!(locks.granted(NOW, CELL, (client(1), Token(7))), Ok(()));
        assert_eq!(locks.granted(NOW, ObjectId::new(1 << 63, 2), (client(1), Token(3))), Ok(()));
        assert_eq!(locks.granted(NOW, CELL, (client(2), Token(8))), Ok(()));
        for token in [Token(8), Token(7)] {
            let broken = locks.granted(NOW, CELL, (client(3), token)).unwrap_err();
            assert_eq!((broken.checker, broken.shown.len()), ("tokens", 2));
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
