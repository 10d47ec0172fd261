//! The users of files use volumes, too: what they want done, and what they are told.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{ClientId, ObjectId};
use client::core::files::{FileEvent, FileTicket};
use lease::Algorithm;
use namespace::{Ask, InodeId, Lock};
use node::file::{Answer, Change, Done, File, FileError, Position, Query};

use super::shape::Wanted;
use super::trees::{self, Known};
use super::world::World;
use super::writers::Work;
use crate::Violation;
use crate::check::volume::{Told, Volume, VolumeOp};
use crate::checkers::evidence::Fact;
use crate::checkers::histories::OperationId;

/// Whoever this is, the primary of the volume says.
pub(super) const SELF: ClientId = ClientId { certificate: 0, program: 0 };

impl<A: Algorithm> World<'_, A> {
    /// Which of the files are volumes.
    pub(super) fn volumes(&self) -> Range<usize> {
        let first = self.plan.files.count as usize;
        first..first + self.plan.volumes.count as usize
    }

    pub(super) fn is_volume(&self, file: usize) -> bool {
        self.volumes().contains(&file)
    }

    /// What a user wants done to a volume. One begins to take it away, and then all do, until it is removed.
    pub(super) fn draw_tree_operation(&mut self, client: usize, file: usize) -> VolumeOp {
        let habits = self.plan.volumes.habits;
        let random = &mut self.dice.trees;
        if random.chance(habits.clear_permille, 1_000) {
            self.clearing.insert(file);
        }
        let known = self.clients[client].files.trees.entry(file).or_default();
        let op = known.draw(habits, self.clearing.contains(&file), random);
        // What is created by clients alone and finds no place is lost.
        if self.plan.volumes.ahead && trees::limits(&op) { trees::ask(Ask::Statfs) } else { op }
    }

    /// What a client has asked a volume is noted, and gets a name.
    pub(super) fn call_volume(&mut self, client: usize, file: usize, op: &VolumeOp) -> (OperationId, Wanted) {
        let who = self.clients[client].id(self.daemons.len() + client);
        let name = who.certificate * 1_000 + who.program;
        if let Some(inode) = trees::sets_time_of(op) {
            let object = node::file_object(self.files[file], inode);
            self.checkers.contents.redated(self.now, object);
        }
        let asked = as_asked(op, who);
        let id = self.checkers.trees.called(self.now, self.files[file], name, asked.into());
        (id, to_real(op))
    }

    /// Something was done to a volume, or was answered.
    pub(super) fn note_tree_result(
        &mut self,
        client: usize,
        (file, ticket): (usize, FileTicket),
        (op, id): (&VolumeOp, OperationId),
        event: &FileEvent,
    ) -> Result<bool, Violation> {
        let object = self.files[file];
        let told = match event {
            FileEvent::Changed { outcome, level, opened, .. } => {
                if outcome.is_ok() {
                    self.acknowledged(client, (file, ticket), *level)?;
                }
                self.note_held(client, object, (outcome, *level), opened.as_deref());
                changed(outcome)
            }
            FileEvent::Answered { answer, .. } => answered(answer),
            _ => return Ok(false),
        };
        // What is no answer to a question about a tree has no place here.
        let Some(told) = told else { return Ok(false) };
        if *op == VolumeOp::Remove && told.is_ok() || told == Err(FileError::Removed) {
            self.clearing.remove(&file);
        }
        if let Ok(Told::Changed(done)) = &told {
            self.note_gone(client, object, done);
        }
        self.summary.trees.note(op, &told);
        self.clients[client].files.trees.entry(file).or_default().learn(op, &told);
        let latest = self.checkers.entries.latest(object).map_or(Position::START, |seen| seen.at);
        self.checkers.trees.answered(self.now, id, told, latest);
        Ok(true)
    }

    /// What is done to a volume in the calm. Whatever became of it before, then it has a tree.
    pub(super) fn last_works(&mut self, file: usize) -> Vec<Work> {
        self.clearing.remove(&file);
        let number = self.summary.file_operations;
        let list = Ask::List { dir: InodeId::ROOT, after: None, entries_max: 100, with_attributes: true };
        let ops = [
            VolumeOp::Begin,
            trees::plant(&mut self.dice.trees),
            trees::last_directory(number),
            trees::ask(Ask::Statfs),
            trees::ask(list),
        ];
        let tree = |op| Work::Tree(op, None);
        let works = [Work::Create].into_iter().chain(ops.map(tree)).chain([Work::Sync(Vec::new())]);
        works.collect()
    }

    /// In the end nothing is left of what was doomed.
    pub(super) fn check_deleted(&self, file: usize) -> Result<(), Violation> {
        let object = self.files[file];
        for machine in &self.daemons {
            let replica = machine.shard.as_ref().and_then(|shard| shard.file(object));
            let Some(replica) = replica.filter(|replica| replica.is_sound()) else { continue };
            let doomed = replica.machine().tree().doomed(1);
            if let Some(inode) = doomed.first() {
                let what = format!("{:?} still has {inode} to delete", machine.id);
                let facts = [Fact::new(self.now, machine.id, what.clone())];
                return Err(Violation::new(self.now, "leftovers", what).about(object).shown_by(facts));
            }
        }
        Ok(())
    }
}

/// What a volume is that a replica has like this.
pub(super) fn volume_of(file: &File) -> Volume {
    if file.attributes().1.is_removed() {
        return Volume::Removed;
    }
    let parts = file.tree().versions(None, usize::MAX);
    if parts.is_empty() {
        return Volume::Bare;
    }
    let mut tree = namespace::Tree::bare(namespace::Memory::default());
    for (key, at) in parts {
        let part = file.tree().part(&key).map(|part| (at, part));
        tree.place(key, part);
    }
    Volume::Tree(tree)
}

/// A question as the primary takes it from a client.
fn as_asked(op: &VolumeOp, client: ClientId) -> VolumeOp {
    let mut op = op.clone();
    if let VolumeOp::Ask(query) = &mut op
        && let Ask::TestLock { lock: Lock { owner, .. }, .. } | Ask::Wish { lock: Lock { owner, .. }, .. } =
            &mut Arc::make_mut(query).ask
    {
        owner.client = client;
    }
    op
}

/// The same for a replicated file.
pub(super) fn to_real(op: &VolumeOp) -> Wanted {
    match op {
        VolumeOp::Plant(root) => Wanted::Change(Change::Plant(root.clone())),
        VolumeOp::Change(op) => Wanted::Change(Change::Tree(op.clone())),
        VolumeOp::Ask(query) => Wanted::Ask(Query::Tree(query.clone())),
        VolumeOp::Remove => Wanted::Change(Change::Remove),
        VolumeOp::Begin | VolumeOp::NoSpace | VolumeOp::Nothing => Wanted::Change(Change::Begin),
    }
}

/// What came of a change.
fn changed(outcome: &Result<Done, FileError>) -> Option<Result<Told, FileError>> {
    match outcome {
        Ok(Done::Changed { .. }) => Some(Ok(Told::Done)),
        Ok(Done::Tree(done)) => Some(Ok(Told::Changed(done.clone()))),
        Ok(Done::Written { .. } | Done::Returned { .. }) => None,
        Err(error) => Some(Err(*error)),
    }
}

/// What was answered.
fn answered(answer: &Result<Answer, FileError>) -> Option<Result<Told, FileError>> {
    match answer {
        Ok(Answer::Tree(answer)) => Some(Ok(Told::Answer(answer.clone()))),
        Ok(Answer::Data(_) | Answer::Stat(_) | Answer::Extent(_)) => None,
        Err(error) => Some(Err(*error)),
    }
}

/// What a client's process knows of the volumes.
pub(super) type KnownTrees = BTreeMap<usize, Known>;

/// The objects of volumes.
pub(super) fn volume_objects(count: u32) -> impl Iterator<Item = ObjectId> {
    (0..count.into()).map(|number| ObjectId::new(0x7ee, number))
}
