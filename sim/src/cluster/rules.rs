//! What is looked at while daemons do what they do for files: whether they keep to the rules of replication.

use base::{NodeId, ObjectId};
use lease::Algorithm;
use node::file::{File, FileError, FileReplyBody, Level, Mark};
use node::{FileMessage, Unavailable};
use replication::Record;

use super::files::Question;
use super::world::{Checkers, World};
use crate::checkers::answers::{self, Answering};
use crate::checkers::endings::{Declaring, Heard, Part};
use crate::checkers::evidence::{Fact, Machines};
use crate::{TrueTime, Violation};

impl<A: Algorithm> World<'_, A> {
    /// Whether a daemon runs on its newest directory. Nobody listens to one that does not.
    pub(super) fn is_genuine(&self, daemon: usize) -> bool {
        self.daemons[daemon].set_aside.is_none()
    }

    /// A message between replicas leaves.
    pub(super) fn watch_message(&mut self, daemon: usize, message: &FileMessage) -> Result<(), Violation> {
        let machine = &self.daemons[daemon];
        if machine.set_aside.is_some() {
            return Ok(());
        }
        let whose = (machine.id, machine.running.life);
        self.checkers.promises.leaves(self.now, whose, message.object, &message.message)
    }

    /// A record is handed over to the journal.
    pub(super) fn watch_disk(&mut self, daemon: usize, of: (u64, ObjectId), record: &Record<File>) {
        let tail = match record {
            Record::Appended { entries, .. } => entries.last().map(|entry| entry.at),
            Record::Ended(rest) => Some(rest.at),
            Record::Promised(_)
            | Record::Damaged { .. }
            | Record::Mended(_)
            | Record::Repaired(_)
            | Record::Began { .. }
            | Record::Placed(_)
            | Record::Adopted(_)
            | Record::Buried(_) => None,
        };
        if let Some(tail) = tail {
            self.checkers.durability.write(self.daemons[daemon].id, of, tail);
        }
    }

    /// A daemon's process has begun with what is on its disk.
    pub(super) fn watch_beginning(&mut self, daemon: usize) {
        let machine = &self.daemons[daemon];
        let Some(shard) = machine.shard.as_ref().filter(|_| machine.set_aside.is_none()) else { return };
        let whole = |object| shard.file(object).filter(|replica| replica.is_whole());
        let files = shard.files().filter_map(|object| Some((object, whole(object)?.tail())));
        self.checkers.durability.begin(machine.id, files);
        let is_damaged = |&object: &ObjectId| shard.file(object).is_some_and(|replica| !replica.is_sound());
        let damaged = shard.files().filter(is_damaged).collect();
        self.daemons[daemon].began_damaged = damaged;
    }

    /// A replica follows whom it has told.
    pub(super) fn watch_replica(&self, daemon: usize, object: ObjectId) -> Result<(), Violation> {
        let whose = (self.daemons[daemon].id, object);
        let shard = self.daemons[daemon].shard.as_ref();
        let Some(replica) = shard.and_then(|shard| shard.file(object)) else { return Ok(()) };
        self.checkers.promises.stands(self.now, whose, replica.promised())
    }

    /// A daemon tells a client something about a file.
    pub(super) fn watch_answer(
        &self,
        daemon: usize,
        (question, body): (&Question, &FileReplyBody),
    ) -> Result<(), Violation> {
        let machine = &self.daemons[daemon];
        let Question { object, marks, asked, .. } = *question;
        // What a tree refuses is as true of it as anything else.
        let is_fact = matches!(
            body,
            FileReplyBody::Changed { outcome: Ok(_) | Err(FileError::Tree(_)), .. }
                | FileReplyBody::Answer(Ok(_) | Err(FileError::Tree(_)))
                | FileReplyBody::Opened { .. }
                | FileReplyBody::Durable
        );
        if machine.set_aside.is_some() || !is_fact {
            return Ok(());
        }
        let shard = machine.shard.as_ref();
        let Some(replica) = shard.and_then(|shard| shard.file(object)) else { return Ok(()) };
        let is_leased = machine.owner(self.now, object).is_some();
        let answering = Answering { node: machine.id, is_leased, committed: replica.committed(), asked };
        let owned = || self.checkers.exclusion.owned(object);
        // Who leads by a wrong clock need not know what another leads to.
        let latest = self.checkers.entries.latest(object).filter(|_| !self.wrong_clocks.is_loose);
        answers::check(self.now, object, answering, (latest, owned))?;
        match (body, marks) {
            (&FileReplyBody::Changed { outcome: Ok(_), level: Level::Durable, mark: newest, .. }, _)
            | (FileReplyBody::Durable, Some((_, newest))) => {
                self.watch_durable((object, asked), newest, replica.view().members.as_slice())
            }
            _ => Ok(()),
        }
    }

    /// A daemon declares that a client is over for a file.
    pub(super) fn watch_declared(&mut self, daemon: usize, part: Part) -> Result<(), Violation> {
        if !self.is_genuine(daemon) {
            return Ok(());
        }
        let lease = &self.plan.shard.lease;
        // The clock of who declares it may run fast, and be led back to the others.
        let silent =
            self.plan.shard.client_silent * 1_000_000 / (1_000_000 + u64::from(lease.rate_error_ppm));
        let declaring = Declaring {
            by: self.daemons[daemon].id,
            silent: silent.saturating_sub(lease.epsilon),
            has_session: self.has_session(daemon, part.1),
            right_since: self.wrong_clocks.right_since(daemon),
        };
        self.checkers.endings.declared(self.now, part, declaring)
    }

    /// What a client is told of a file shows whether it is over for that.
    pub(super) fn watch_end(
        &mut self,
        daemon: usize,
        question: &Question,
        body: &FileReplyBody,
    ) -> Result<(), Violation> {
        let Question { object, client, asked, .. } = *question;
        let (machine, part) = (&self.daemons[daemon], (object, client));
        let by = machine.id;
        if machine.set_aside.is_some() {
            return Ok(());
        }
        let Checkers { entries, endings, .. } = &mut self.checkers;
        let heard = Heard { asked, is_exclusive: !self.wrong_clocks.is_loose };
        match body {
            FileReplyBody::Changed { outcome, mark, .. } => {
                if outcome.is_ok() {
                    endings.heard(part, by, heard);
                }
                let end = entries.end_of(part, mark.at);
                endings.took_effect(self.now, part, (by, end), || entries.story_of(object, mark.at))
            }
            FileReplyBody::Expired => {
                let replica = machine.shard.as_ref().and_then(|shard| shard.file(object));
                let end = replica.and_then(|replica| entries.end_of(part, replica.committed()));
                endings.told(self.now, part, by, end)
            }
            FileReplyBody::Unavailable(Unavailable::Overloaded) => {
                self.summary.file_overloaded += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Something is confirmed to be durable: a majority of the members has it on disk.
    fn watch_durable(
        &self,
        (object, asked): (ObjectId, TrueTime),
        newest: Mark,
        members: &[NodeId],
    ) -> Result<(), Violation> {
        let entries = &self.checkers.entries;
        let is_before = |upto| entries.is_before(object, newest.at, upto);
        let before = || {
            let mut story = entries.story_of(object, newest.at);
            story.push(Fact::new(
                asked,
                Machines::default(),
                format!("a sync is asked for up to {:?}", newest.at),
            ));
            story
        };
        let whose = (object, newest.at);
        self.checkers.durability.confirmed(self.now, whose, members, (is_before, before))
    }
}
