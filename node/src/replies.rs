//! What whoever asked for something is told of it.

use base::{ObjectId, WallTime};
use lease::Algorithm;
use namespace::{Answer as TreeAnswer, Ask, Done as TreeDone, InodeId, NameError};
use replication::{Ticket, Waiting};

use crate::access::About;
use crate::file::{Answer, Done, FileError, FileReply, FileReplyBody, Level, Mark, Query};
use crate::files::{Asker, Asking, Caller};
use crate::grants::Settled;
use crate::{Bug, Shard, Unavailable};

impl<A: Algorithm> Shard<A> {
    /// A change took effect, or cannot. Who wants it durable waits for that.
    pub(crate) fn tell_changed(
        &mut self,
        now: WallTime,
        object: ObjectId,
        ((asker, level), placed): ((Asker, Level), Option<&Settled>),
        (outcome, mark, until): (Result<Done, FileError>, Mark, WallTime),
    ) {
        let outcome = match (asker.from, outcome) {
            (Caller::Node(_), Err(FileError::Tree(NameError::Lent { inode, .. }))) => {
                self.lent_already(object, inode)
            }
            (_, outcome) => outcome,
        };
        self.note_end(object, &outcome);
        let asker = self.created_open(object, asker, &outcome);
        let is_early = self.config.breaks(Bug::DurableEarly) && outcome.is_ok();
        // What a daemon is refused may be because of what it has asked for before.
        let is_state = outcome.is_ok() || matches!(asker.from, Caller::Node(_));
        if is_state && level == Level::Durable && !is_early {
            let ticket = self.files.ticket();
            let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
            let change = Some((outcome.clone(), mark));
            let asking = Asking { change, ..Asking::new(asker, About::Itself) };
            hosted.asking.insert(ticket, Box::new(asking));
            if hosted.replica.sync(now, ticket, (mark, mark)).is_ok() {
                return;
            }
            // Its client may still ask for a sync.
            hosted.asking.remove(&ticket);
        }
        let level = if is_early { level } else { Level::Written };
        let grant = self.grant_changed(now, object, (asker, placed), &outcome);
        let body = FileReplyBody::Changed { outcome, mark, level, opened: None };
        let (body, proofs) = self.show(now, object, (asker, About::Itself), body);
        self.files.push_reply(asker.from, FileReply { id: asker.id, body, proofs, grant }, Some(until));
    }

    pub(crate) fn answer_ticket(
        &mut self,
        now: WallTime,
        object: ObjectId,
        ticket: Ticket,
        (body, until): (FileReplyBody, WallTime),
    ) {
        let asking = self.files.hosted.get_mut(&object).and_then(|hosted| hosted.asking.remove(&ticket));
        if let Some(asking) = asking {
            let Asking { asker, change, about, on, again } = *asking;
            if self.waits_with_answer(now, object, (asker, again.as_ref()), &body)
                || about == About::Lend && self.waits_until_durable(now, object, asker, &body)
            {
                return;
            }
            let Asker { from, id, .. } = asker;
            let (level, opened) = (Level::Durable, None);
            let changed = |(outcome, mark)| FileReplyBody::Changed { outcome, mark, level, opened };
            let body = change.map_or(body, changed);
            let grant = self.grant_answer(now, object, (asker, on), &body);
            let (body, proofs) = self.show(now, object, (asker, about), body);
            self.answer_file(object, (from, FileReply { id, body, proofs, grant }), Some(until));
        }
    }

    /// Keeps what a daemon is told of a lend until that would survive a power cut. False if there is nothing to tell.
    fn waits_until_durable(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        body: &FileReplyBody,
    ) -> bool {
        let FileReplyBody::Answer(Ok(Answer::Tree(answer))) = body else { return false };
        let TreeAnswer::Attributes(attributes) = &**answer else { return false };
        self.note_confirmed(object, attributes);
        let ticket = self.files.ticket();
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return true };
        let done = Done::Tree(Box::new(TreeDone::Changed { attributes: attributes.clone() }));
        let at = hosted.replica.committed();
        let mark = Mark { at, generation: at.epoch };
        if self.config.breaks(Bug::ConfirmNotDurable) {
            let (outcome, level, opened) = (Ok(done), Level::Durable, None);
            self.files.reply(asker, FileReplyBody::Changed { outcome, mark, level, opened }, None);
            return true;
        }
        let change = Some((Ok(done), mark));
        let asking = Asking { change, ..Asking::new(asker, About::Itself) };
        hosted.asking.insert(ticket, Box::new(asking));
        if hosted.replica.sync_committed(now, ticket).is_err() {
            hosted.asking.remove(&ticket);
            self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::Overloaded), None);
        }
        true
    }

    pub(crate) fn answer_unknown(&mut self, object: ObjectId, waiting: Waiting) {
        let unknown = FileReplyBody::Unavailable(Unavailable::NoMajority);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let askers: Vec<Asker> = match waiting {
            Waiting::Ticket(ticket) => {
                // What was to be deleted is found again.
                for (of, _) in hosted.preparing.remove(&ticket).unwrap_or_default() {
                    hosted.deleting.remove(&of.inode);
                }
                hosted.asking.remove(&ticket).map(|asking| asking.asker).into_iter().collect()
            }
            Waiting::Request(request) => {
                let key = (request.client, request.number);
                hosted.grants.end(key);
                let askers = hosted.changing.remove(&key).unwrap_or_default();
                askers.into_iter().map(|(asker, _)| asker).collect()
            }
        };
        askers.into_iter().for_each(|asker| self.files.reply(asker, unknown.clone(), None));
    }
}

/// The inode about which the answer says more than how one is.
pub(crate) fn looked_up(query: &Query) -> Option<InodeId> {
    let Query::Tree(query) = query else { return None };
    match query.ask {
        Ask::Lookup { dir, .. } | Ask::List { dir, .. } => Some(dir),
        Ask::Readlink { inode } => Some(inode),
        _ => None,
    }
}
