//! What clients' processes know of volumes under grants: their users ask there first.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::NodeId;
use client::core::files::{FileEvent, FileTicket, Files};
use client::core::grants::{Cache, ChangeId, Told as Came};
use client::core::{Core, Rules};
use lease::Algorithm;
use namespace::{Answer, NameError, Op, Query as TreeQuery};
use node::file::{Answer as FileAnswer, Change, Done, FileError, Position, Query};

use super::shape::Wanted;
use super::world::World;
use crate::check::volume::{Told, VolumeOp};

/// A cache, and what is under way that it is to hear of.
#[derive(Debug)]
pub(super) struct Caching {
    pub(super) cache: Cache,
    /// What tickets are about, and in which volume.
    asked: BTreeMap<FileTicket, (base::ObjectId, Asked)>,
    /// What came with the result that is told next.
    came: Option<(FileTicket, Came)>,
}

#[derive(Clone, Debug)]
enum Asked {
    Question(Arc<TreeQuery>),
    Change(ChangeId, Arc<Op>),
}

impl Caching {
    pub(super) fn new(rules: Rules) -> Self {
        Self { cache: Cache::new().with_rules(rules), asked: BTreeMap::new(), came: None }
    }

    /// The same, if something did.
    pub(super) fn keep_all(&mut self, came: Option<(FileTicket, Came)>) {
        self.came = came;
    }

    /// What came with the result that is told next, if that is of this ticket.
    pub(super) fn take_came(&mut self, ticket: FileTicket) -> Option<(FileTicket, Came)> {
        self.came.take_if(|(of, _)| *of == ticket)
    }

    /// Something came with the result of a ticket.
    pub(super) fn keep(&mut self, ticket: FileTicket, came: Came) {
        self.came = Some((ticket, came));
    }

    /// A ticket has a result.
    pub(super) fn take_in(&mut self, event: &FileEvent) {
        let came = self.came.take();
        let ticket = match event {
            FileEvent::Changed { ticket, .. }
            | FileEvent::Answered { ticket, .. }
            | FileEvent::Refused { ticket, .. }
            | FileEvent::NoSuchFile { ticket }
            | FileEvent::Expired { ticket }
            | FileEvent::Settled { ticket }
            | FileEvent::GivenUp { ticket, .. }
            | FileEvent::Full { ticket } => *ticket,
            FileEvent::Created { .. }
            | FileEvent::Opened { .. }
            | FileEvent::Synced { .. }
            | FileEvent::Lost { .. }
            | FileEvent::Ended { .. } => return,
        };
        let Some((object, asked)) = self.asked.remove(&ticket) else { return };
        let came = came.filter(|(of, _)| *of == ticket).map(|(_, came)| came);
        match (asked, event, came) {
            (Asked::Question(query), FileEvent::Answered { answer, .. }, Some(came)) => {
                if let Some(answer) = of_tree(answer) {
                    self.cache.tell(object, (&query.who, &query.ask), (&came, &answer));
                }
            }
            (Asked::Question(_), ..) => {}
            (Asked::Change(id, op), FileEvent::Changed { outcome, .. }, Some(came)) => {
                let done = match outcome {
                    Ok(Done::Tree(done)) => Some(&**done),
                    _ => None,
                };
                self.cache.end(id, &op, (&came, done));
            }
            (Asked::Change(id, op), FileEvent::Refused { .. }, Some(came)) => {
                self.cache.end(id, &op, (&came, None));
            }
            (Asked::Change(id, _), ..) => self.cache.abandon(id),
        }
    }
}

fn of_tree(answer: &Result<FileAnswer, FileError>) -> Option<Result<Answer, NameError>> {
    match answer {
        Ok(FileAnswer::Tree(answer)) => Some(Ok((**answer).clone())),
        Err(FileError::Tree(error)) => Some(Err(*error)),
        _ => None,
    }
}

impl<A: Algorithm> World<'_, A> {
    /// A client's process has started.
    pub(super) fn files_of_client(&self) -> (Files, Option<Caching>) {
        let files = Files::new(self.plan.shard.map.clone());
        if self.plan.volumes.keeps() {
            (files.caching(), Some(Caching::new(self.plan.volumes.rules)))
        } else {
            (files, None)
        }
    }

    /// A connection of a client is there, or gone.
    pub(super) fn link_cache(&mut self, client: usize, node: NodeId) {
        let uses = &mut self.clients[client].files;
        let (Some(caching), Some(files)) = (&mut uses.caching, &uses.core) else { return };
        match files.connection(node) {
            Some(connection) => caching.cache.handle_up(connection),
            None => drop(caching.cache.handle_down(node)),
        }
    }

    /// All is taken in that daemons have said: sessions last as long as they have confirmed.
    pub(super) fn confirm_cache(&mut self, client: usize) {
        let machine = &mut self.clients[client];
        let (Some(caching), Some(core)) = (&mut machine.files.caching, &machine.core) else { return };
        let until = |node| Core::session_until(core, node).map(|until| (node, until));
        let sessions = self.daemons.iter().filter_map(|daemon| until(daemon.id));
        sessions.for_each(|(node, until)| caching.cache.confirm(node, until));
    }

    /// What a client is about to want of a volume. What changes it is not answered meanwhile.
    pub(super) fn before_wanted(&mut self, client: usize, file: usize, wanted: &Wanted) -> Option<ChangeId> {
        let object = self.files[file];
        let caching = self.clients[client].files.caching.as_mut()?;
        match wanted {
            Wanted::Change(Change::Tree(op)) => Some(caching.cache.begin(object, &op.change)),
            _ => None,
        }
    }

    /// It is wanted by that ticket.
    pub(super) fn after_wanted(
        &mut self,
        client: usize,
        file: usize,
        (wanted, change): (&Wanted, Option<ChangeId>),
        ticket: FileTicket,
    ) {
        let object = self.files[file];
        let Some(caching) = self.clients[client].files.caching.as_mut() else { return };
        let asked = match (wanted, change) {
            (Wanted::Change(Change::Tree(op)), Some(change)) => Asked::Change(change, Arc::clone(op)),
            (Wanted::Ask(Query::Tree(query)), _) => Asked::Question(Arc::clone(query)),
            _ => return,
        };
        caching.asked.insert(ticket, (object, asked));
    }

    /// Answers a question of a user without asking a daemon, if that is possible: it takes no time.
    pub(super) fn answer_from_cache(&mut self, client: usize, (file, op): (usize, &VolumeOp)) -> bool {
        !self.is_calm && self.known_answer(client, (file, op)).is_some()
    }

    /// The answer to a question, if a client knows it.
    pub(super) fn known_answer(
        &mut self,
        client: usize,
        (file, op): (usize, &VolumeOp),
    ) -> Option<Result<Told, FileError>> {
        let VolumeOp::Ask(query) = op else { return None };
        let object = self.files[file];
        let reading = self.clients[client].reading(self.now);
        let caching = self.clients[client].files.caching.as_mut()?;
        let answer = caching.cache.answer(reading, object, (&query.who, &query.ask))?;
        // Then this is the question that goes to the daemon.
        if caching.cache.is_due(reading, object) {
            return None;
        }
        let behind = self.clients[client].files.behind.as_ref();
        if behind.is_some_and(|behind| behind.is_leaving(object, &answer)) {
            return None;
        }
        let told = answer.map(|answer| Told::Answer(Box::new(answer))).map_err(FileError::from);
        if self.is_traced() {
            self.note(Some(object), format_args!("client {client} knows of {query:?}: {told:?}"));
        }
        let (id, _) = self.call_volume(client, file, op);
        self.note_answered_ahead(client, object, id);
        self.summary.trees.note(op, &told);
        self.summary.trees.known += 1;
        self.clients[client].files.trees.entry(file).or_default().learn(op, &told);
        let latest = self.checkers.entries.latest(object).map_or(Position::START, |seen| seen.at);
        self.checkers.trees.answered(self.now, id, told.clone(), latest);
        Some(told)
    }
}
