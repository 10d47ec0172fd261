//! Promises: a replica that has told somebody to follow nobody earlier follows nobody earlier.
//!
//! - What a node acknowledges, or says to be missing, is of no lower epoch than it has promised or acknowledged before: over
//!   all its processes, and also after its power has failed.
//! - What it keeps in memory is no lower than what it has told.
//! - An epoch is used by one process.
//! - Nothing is committed in an epoch after which the object is said to have begun.
//!
//! A node that was told to forget a file is another one for it when it comes again.
//!
//! What says that something is durable may be late: it is as true as it was.

use std::collections::BTreeMap;

use base::{Epoch, NodeId, ObjectId};
use node::file::File;
use replication::Message;

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Watches what replicas say to each other.
#[derive(Debug, Default)]
pub struct Promises {
    /// The latest epoch that a node has told to follow.
    told: BTreeMap<(NodeId, ObjectId), Told>,
    /// Which process of its node leads in an epoch, and since when.
    leads: BTreeMap<(ObjectId, Epoch), (u64, TrueTime)>,
    /// Above which number all epochs of an object are said to be, and the lowest that has entries.
    begins: BTreeMap<ObjectId, (u64, u64)>,
}

/// That a node follows nobody before an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    epoch: Epoch,
    at: TrueTime,
    how: &'static str,
}

impl Promises {
    /// A message of a node's process leaves.
    pub fn leaves(
        &mut self,
        at: TrueTime,
        (node, life): (NodeId, u64),
        object: ObjectId,
        message: &Message<File>,
    ) -> Result<(), Violation> {
        self.check_beginning(at, object, message)?;
        match *message {
            Message::Promised { epoch, .. }
            | Message::Appended { epoch, .. }
            | Message::Missing { epoch, .. } => {
                let how = match message {
                    Message::Promised { .. } => "promises to follow",
                    Message::Appended { .. } => "acknowledges to",
                    _ => "says that it lacks something to",
                };
                self.check(at, (node, object), (epoch, how))?;
                let told = self.told.entry((node, object)).or_default();
                if told.epoch < epoch {
                    *told = Told { epoch, at, how };
                }
            }
            Message::Promise { epoch, .. } | Message::Append { epoch, .. } if epoch.node == node => {
                let (first, since) = *self.leads.entry((object, epoch)).or_insert((life, at));
                if first != life {
                    let what =
                        format!("process {life} of {node:?} uses {epoch:?}, which process {first} has used");
                    let uses = |at, life| {
                        Fact::new(at, node, format!("process {life} of {node:?} leads in {epoch:?}"))
                    };
                    return Err(violation(at, object, what).shown_by([uses(since, first), uses(at, life)]));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_beginning(
        &mut self,
        at: TrueTime,
        object: ObjectId,
        message: &Message<File>,
    ) -> Result<(), Violation> {
        let (said, first) = self.begins.entry(object).or_insert((0, u64::MAX));
        match message {
            Message::Promise { begun_after, .. } => *said = (*said).max(*begun_after),
            Message::Append { entries, .. } => {
                let numbers = entries.iter().map(|entry| entry.at.epoch.number);
                *first = numbers.min().unwrap_or(u64::MAX).min(*first);
            }
            _ => return Ok(()),
        }
        if said < first {
            return Ok(());
        }
        let what = format!("it has entries of epoch {first}, and is said to have begun after {said}");
        Err(violation(at, object, what))
    }

    /// A node has nothing of a file any more, and nobody counts on what it promised: it is no member, and all know.
    pub fn bury(&mut self, whose: (NodeId, ObjectId)) {
        self.told.remove(&whose);
    }

    /// A node follows nobody before `epoch`.
    pub fn stands(&self, at: TrueTime, whose: (NodeId, ObjectId), epoch: Epoch) -> Result<(), Violation> {
        self.check(at, whose, (epoch, "knows of no promise later than that to"))
    }

    fn check(
        &self,
        at: TrueTime,
        (node, object): (NodeId, ObjectId),
        (epoch, how): (Epoch, &'static str),
    ) -> Result<(), Violation> {
        let told = self.told.get(&(node, object)).copied().unwrap_or_default();
        if told.epoch <= epoch {
            return Ok(());
        }
        let what = format!(
            "{node:?} follows {epoch:?}, and has told that it follows nobody before {:?}",
            told.epoch
        );
        let says = |at, how, epoch| Fact::new(at, node, format!("{node:?} {how} {epoch:?}"));
        Err(violation(at, object, what).shown_by([says(told.at, told.how, told.epoch), says(at, how, epoch)]))
    }
}

fn violation(at: TrueTime, object: ObjectId, what: String) -> Violation {
    Violation::new(at, "promises", what).about(object)
}

#[cfg(test)]
mod tests {
    use base::Seq;
    use replication::{Account, Memory, Position};

    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);

    const fn epoch(number: u64) -> Epoch {
        Epoch { number, node: NodeId(1) }
    }

    const fn promised(number: u64) -> Message<File> {
        let nothing = Position { epoch: epoch(0), seq: Seq(0) };
        let account = Account { tail: nothing, committed: nothing, memory: Memory::Clean, frozen_at: None };
        Message::Promised { epoch: epoch(number), account }
    }

    const fn appended(number: u64) -> Message<File> {
        Message::Appended { epoch: epoch(number), upto: Position { epoch: epoch(number), seq: Seq(1) } }
    }

    fn says(promises: &mut Promises, (node, life): (u32, u64), message: &Message<File>) -> bool {
        promises.leaves(TrueTime::ZERO, (NodeId(node), life), FILE, message).is_ok()
    }

    #[test]
    fn a_broken_promise_is_shown_with_what_broke_it() {
        let (mut promises, at) = (Promises::default(), TrueTime::from_micros);
        let mut says = |when, message| promises.leaves(at(when), (NodeId(2), 1), FILE, &message);
        says(3, promised(5)).unwrap();
        says(4, appended(5)).unwrap();
        let shown = says(9, appended(4)).unwrap_err().shown;
        let told: Vec<_> = shown.iter().map(|fact| (fact.at, &*fact.what)).collect();
        assert_eq!(told, [(at(3), "n2 promises to follow e5.1"), (at(9), "n2 acknowledges to e4.1")]);
    }

    #[test]
    fn who_has_promised_acknowledges_nothing_earlier() {
        let mut promises = Promises::default();
        assert!(says(&mut promises, (2, 1), &appended(3)) && says(&mut promises, (2, 1), &promised(5)));
        assert!(says(&mut promises, (2, 2), &appended(5)));
        assert!(!says(&mut promises, (2, 2), &appended(4)), "nor does its next process");
        assert!(says(&mut promises, (3, 1), &appended(4)), "another may");
    }

    #[test]
    fn a_promise_is_not_forgotten() {
        let mut promises = Promises::default();
        assert!(says(&mut promises, (2, 1), &promised(5)));
        let stands = |number| promises.stands(TrueTime::ZERO, (NodeId(2), FILE), epoch(number)).is_ok();
        assert!(stands(5) && stands(6) && !stands(4));
    }

    #[test]
    fn nothing_is_older_than_its_beginning() {
        let mut promises = Promises::default();
        let mut says = |number, message: &Message<File>| {
            promises.leaves(TrueTime::ZERO, (NodeId(1), number), FILE, message).is_ok()
        };
        let asks = |begun_after| Message::Promise { epoch: epoch(9), begun_after };
        let at = Position { epoch: epoch(5), seq: Seq(1) };
        let body = replication::Body::Barrier { generation: Epoch::default() };
        let entries = vec![replication::Entry { at, lease: 1, body }];
        let append = Message::Append { epoch: epoch(9), after: Position::START, entries, committed: Seq(0) };
        assert!(says(1, &asks(4)) && says(1, &append));
        assert!(!says(1, &asks(5)));
    }

    #[test]
    fn an_epoch_is_for_one_process() {
        let mut promises = Promises::default();
        let asks = Message::Promise { epoch: epoch(5), begun_after: 0 };
        assert!(says(&mut promises, (1, 1), &asks) && says(&mut promises, (1, 1), &asks));
        assert!(!says(&mut promises, (1, 2), &asks));
    }
}
