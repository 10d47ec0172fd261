//! Promises: a replica that has told somebody to follow nobody earlier follows nobody earlier.
//!
//! - What a node acknowledges, or says to be missing, is of no lower epoch than it has promised or acknowledged before: over
//!   all its processes, and also after its power has failed.
//! - What it keeps in memory is no lower than what it has told.
//! - An epoch is used by one process.
//!
//! A node that was told to forget a file is another one for it when it comes again.
//!
//! What says that something is durable may be late: it is as true as it was.

use std::collections::BTreeMap;

use base::{Epoch, NodeId, ObjectId};
use node::file::File;
use replication::Message;

use super::Violation;
use crate::TrueTime;

/// Watches what replicas say to each other.
#[derive(Debug, Default)]
pub struct Promises {
    /// The latest epoch that a node has told to follow.
    told: BTreeMap<(NodeId, ObjectId), Epoch>,
    /// Which process of its node leads in an epoch.
    leads: BTreeMap<(ObjectId, Epoch), u64>,
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
        match *message {
            Message::Promised { epoch, .. }
            | Message::Appended { epoch, .. }
            | Message::Missing { epoch, .. } => {
                self.stands(at, (node, object), epoch)?;
                self.told.insert((node, object), epoch);
            }
            Message::Promise { epoch } | Message::Append { epoch, .. } if epoch.node == node => {
                let first = *self.leads.entry((object, epoch)).or_insert(life);
                if first != life {
                    let what =
                        format!("process {life} of {node:?} uses {epoch:?}, which process {first} has used");
                    return Err(violation(at, object, what));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A node has nothing of a file any more, and nobody counts on what it promised: it is no member, and all know.
    pub fn bury(&mut self, whose: (NodeId, ObjectId)) {
        self.told.remove(&whose);
    }

    /// A node follows nobody before `epoch`.
    pub fn stands(
        &self,
        at: TrueTime,
        (node, object): (NodeId, ObjectId),
        epoch: Epoch,
    ) -> Result<(), Violation> {
        let told = self.told.get(&(node, object)).copied().unwrap_or_default();
        if told <= epoch {
            return Ok(());
        }
        let what = format!("{node:?} follows {epoch:?}, and has told that it follows nobody before {told:?}");
        Err(violation(at, object, what))
    }
}

fn violation(at: TrueTime, object: ObjectId, what: String) -> Violation {
    Violation { at, cell: Some(object), checker: "promises", what }
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
        let account = Account { tail: nothing, committed: nothing, memory: Memory::Clean };
        Message::Promised { epoch: epoch(number), account }
    }

    const fn appended(number: u64) -> Message<File> {
        Message::Appended { epoch: epoch(number), upto: Position { epoch: epoch(number), seq: Seq(1) } }
    }

    fn says(promises: &mut Promises, (node, life): (u32, u64), message: &Message<File>) -> bool {
        promises.leaves(TrueTime::ZERO, (NodeId(node), life), FILE, message).is_ok()
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
    fn an_epoch_is_for_one_process() {
        let mut promises = Promises::default();
        let asks = Message::Promise { epoch: epoch(5) };
        assert!(says(&mut promises, (1, 1), &asks) && says(&mut promises, (1, 1), &asks));
        assert!(!says(&mut promises, (1, 2), &asks));
    }
}
