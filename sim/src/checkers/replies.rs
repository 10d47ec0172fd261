//! Replies: what a client must not be told about a file.
//!
//! - That its change is settled, which it does not say before it has the outcome.
//! - That a change may be lost, if the file has not begun anew since.
//! - That a file is gone that somebody was told is there, unless something may have been lost.
//! - Anything that is no answer to what it wanted.

use std::collections::BTreeMap;

use base::{ClientId, ObjectId};
use client::core::files::FileEvent;

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Watches what clients are told of files.
#[derive(Debug, Default)]
pub struct Replies {
    /// The files that somebody was told are there.
    made: BTreeMap<ObjectId, (ClientId, TrueTime)>,
}

/// Something that a client wanted, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Who.
    pub client: ClientId,
    /// When.
    pub at: TrueTime,
    /// What, for people to read.
    pub what: String,
}

impl Replies {
    /// A client was told that a file is there.
    pub fn made(&mut self, now: TrueTime, object: ObjectId, client: ClientId) {
        self.made.entry(object).or_insert((client, now));
    }

    /// Whether somebody was told that a file is there.
    pub fn is_made(&self, object: ObjectId) -> bool {
        self.made.contains_key(&object)
    }

    /// A client was told that there is no such file.
    pub fn gone(
        &self,
        now: TrueTime,
        object: ObjectId,
        (asked, event): (&Asked, &FileEvent),
        may_lose: bool,
    ) -> Result<(), Violation> {
        match self.made.get(&object) {
            Some(&(client, since)) if !may_lose => {
                let there = Fact::new(since, client, format!("{client:?} is told that the file is there"));
                let violation = self.wrong(now, object, (asked, event));
                Err(violation.shown_by([there]))
            }
            _ => Ok(()),
        }
    }

    /// A client was told what no client is told.
    pub fn wrong(&self, now: TrueTime, object: ObjectId, (asked, event): (&Asked, &FileEvent)) -> Violation {
        let Asked { client, at, ref what } = *asked;
        let facts = [
            Fact::new(at, client, format!("{client:?} wants: {what}")),
            Fact::new(now, client, format!("{client:?} is told: {event:?}")),
        ];
        let what = format!("a client was told {event:?}");
        Violation::new(now, "replies", what).about(object).shown_by(facts)
    }
}

#[cfg(test)]
mod tests {
    use client::core::files::FileTicket;

    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);
    const CLIENT: ClientId = ClientId { certificate: 5, program: 1 };
    const TICKET: FileTicket = FileTicket(3);

    fn at(micros: u64) -> TrueTime {
        TrueTime::from_micros(micros)
    }

    fn asked() -> Asked {
        Asked { client: CLIENT, at: at(4), what: "to append".into() }
    }

    #[test]
    fn a_file_that_is_gone_breaks_it() {
        let mut replies = Replies::default();
        let gone = FileEvent::NoSuchFile { ticket: TICKET };
        assert_eq!(replies.gone(at(5), FILE, (&asked(), &gone), false), Ok(()), "nobody has made it");
        replies.made(at(1), FILE, CLIENT);
        assert_eq!(replies.gone(at(5), FILE, (&asked(), &gone), true), Ok(()), "it may be lost");
        let broken = replies.gone(at(5), FILE, (&asked(), &gone), false).unwrap_err();
        let times: Vec<TrueTime> = broken.shown.iter().map(|fact| fact.at).collect();
        assert_eq!((broken.checker, times), ("replies", vec![at(1), at(4), at(5)]));
    }

    #[test]
    fn what_nobody_is_told_is_shown_with_what_was_wanted() {
        let settled = FileEvent::Settled { ticket: TICKET };
        let broken = Replies::default().wrong(at(5), FILE, (&asked(), &settled));
        assert_eq!((broken.checker, broken.cell, broken.shown.len()), ("replies", Some(FILE), 2));
        assert!(broken.shown[0].what.contains("to append") && broken.shown[1].what.contains("Settled"));
    }
}
