//! The users of volumes write to files that they have open, and read them: the content of each is an object of its own, which lends
//! and removals of the volume are about.
//!
//! To the checkers such an object is a file like any other. Beside that, at the end: a file that the volume still has is as long in
//! its tree as its content is, and of one that it has no more nobody has anything.

use base::{ObjectId, Span};
use client::core::files::FileEvent;
use lease::Algorithm;
use namespace::{Body, Key, Part};
use node::file::{FileError, FileOf, Position, Query};
use node::{CAPABILITY_LASTS, Capability};
use replication::Replica;

use super::world::World;
use super::writers::{Pending, Work};
use crate::Violation;
use crate::check::file::{FileOp, FileOutcome};
use crate::checkers::evidence::{Fact, Machines};
use crate::checkers::replies::Asked;

/// Daemons look for marks that nobody needs this often, and each has its turn.
const ROUND: Span = Span::from_secs(10);
/// Replicas are looked at this often until they are alike.
const LOOK_AGAIN: Span = Span::from_millis(20);

impl<A: Algorithm> World<'_, A> {
    /// The file of a volume whose content this is.
    pub(super) fn content(&self, file: usize) -> Option<FileOf> {
        self.contents.get(file.checked_sub(self.volumes().end)?).copied()
    }

    /// Whether an object is the content of a file of a volume.
    pub(super) fn is_content(&self, object: ObjectId) -> bool {
        self.files[self.volumes().end..].contains(&object)
    }

    /// A client may use the content of a file from now on.
    pub(super) fn note_content(&mut self, client: usize, capability: &Capability) {
        let (object, source) = (capability.open.file, capability.source);
        let place = self.place_content(FileOf { volume: source.volume, inode: source.inode });
        self.clients[client].files.contents.extend(place);
        self.watch_lends(source.volume);
        // Who told the client may have ended before anybody else knew.
        if self.plan.volumes.lends && place.is_some() && !self.checkers.contents.knows(object) {
            self.checkers.contents.lent(self.now, object, (source.lend, Position::START));
        }
    }

    /// The place among all files of the content of a file, if it is watched.
    pub(super) fn place_content(&mut self, of: FileOf) -> Option<usize> {
        let place = self.contents.iter().position(|known| *known == of);
        let place = place.or_else(|| {
            (self.contents.len() < self.plan.volumes.contents).then(|| {
                self.contents.push(of);
                self.files.push(node::file_object(of.volume, of.inode));
                self.contents.len() - 1
            })
        })?;
        Some(self.volumes().end + place)
    }

    /// What a user wants of a file of a volume that is open, if it wants anything.
    pub(super) fn draw_content_work(&mut self, client: usize, volume: usize) -> Option<(usize, Work)> {
        if self.contents.is_empty() || self.plan.volumes.lends {
            return None;
        }
        let object = self.files[volume];
        let of = |&file: &usize| self.content(file).filter(|of| of.volume == object);
        let uses = &self.clients[client].files;
        let open = uses.core.as_ref()?.open_in(object);
        let is_open = |file: &usize| of(file).is_some_and(|of| open.contains(&of.inode));
        let usable: Vec<usize> = uses.contents.iter().copied().filter(is_open).collect();
        let &file = self.dice.contents.pick(&usable)?;
        if !self.dice.contents.chance(1, 2) {
            return None;
        }
        self.summary.trees.content_wanted += 1;
        if self.dice.contents.chance(1, 6) {
            return Some((file, Work::Sync(Vec::new())));
        }
        let op = self.shape(file).draw(self.summary.trees.content_wanted, &mut self.dice.contents);
        Some((file, Work::Operation(op, None)))
    }

    /// What a user is told that only content can be told. False if it is told what any file may be.
    pub(super) fn note_content_result(
        &mut self,
        client: usize,
        (pending, asked): (&Pending, &Asked),
        event: &FileEvent,
    ) -> Result<bool, Violation> {
        let is_expired = matches!(event, FileEvent::Refused { error: FileError::Capability(_), .. });
        let Some(of) = self.content(pending.file) else {
            // A lock needs it shown that the file is open.
            return Ok(is_expired && self.void(&pending.work));
        };
        let object = self.files[pending.file];
        let is_gone = match event {
            FileEvent::Changed { outcome: Ok(_), .. } => {
                self.checkers.replies.made(self.now, object, asked.client);
                return Ok(false);
            }
            FileEvent::NoSuchFile { .. } => {
                let is_known = self.checkers.entries.latest(object).is_some();
                if let Work::Operation(op, Some(id)) = &pending.work
                    && !is_known
                {
                    // Nothing was ever written to it.
                    let outcome = empty(op);
                    self.checkers.histories.answered(self.now, *id, outcome, Position::START);
                    return Ok(true);
                }
                is_known && !self.checkers.entries.may_be_gone(object)
            }
            FileEvent::Changed { outcome: Err(FileError::Removed), .. }
            | FileEvent::Answered { answer: Err(FileError::Removed), .. } => {
                return self.must_be_gone(of, (asked, event)).map(|()| false);
            }
            FileEvent::Refused { error: FileError::Tree(_) | FileError::Removed, .. } => true,
            FileEvent::Refused { .. } if is_expired => {
                let Some(core) = self.clients[client].files.core.as_mut() else { return Ok(true) };
                core.close_held(of.volume, of.inode);
                false
            }
            FileEvent::Expired { .. } => return Ok(false),
            _ => return Ok(false),
        };
        self.void(&pending.work);
        if matches!(pending.work, Work::Sync(_)) {
            self.clients[client].files.owed.remove(&pending.file);
        }
        if is_gone {
            self.must_be_gone(of, (asked, event))?;
        }
        Ok(true)
    }

    /// A file that somebody says is gone has no name, and nobody on record has it open.
    fn must_be_gone(&self, of: FileOf, (asked, event): (&Asked, &FileEvent)) -> Result<(), Violation> {
        let Some(replica) = self.latest_of(of.volume) else { return Ok(()) };
        let tree = replica.machine().tree();
        let inode = match tree.part(&Key::Inode(of.inode)) {
            Some(Part::Inode(inode)) if !self.checkers.entries.may_lose => inode,
            _ => return Ok(()),
        };
        if inode.links == 0 && tree.doomed(usize::MAX).contains(&of.inode) {
            return Ok(());
        }
        Err(self.checkers.replies.wrong(self.now, of.volume, (asked, event)))
    }

    /// The replica of an object that knows most of it to be committed.
    pub(super) fn latest_of(&self, object: ObjectId) -> Option<&Replica<node::file::File>> {
        let shards = self.daemons.iter().filter_map(|daemon| daemon.shard.as_ref());
        let replicas = shards.filter_map(|shard| shard.file(object)).filter(|replica| replica.is_whole());
        replicas.max_by_key(|replica| replica.committed())
    }

    /// Each file is opened and used once more, if the volume has it still, and then its replicas must be alike.
    pub(super) fn settle_contents(&mut self) -> Result<(), Violation> {
        for place in 0..self.contents.len() {
            let (of, file) = (self.contents[place], self.volumes().end + place);
            let Some(volume) = self.volumes().find(|&volume| self.files[volume] == of.volume) else {
                continue;
            };
            if self.plan.volumes.lends {
                self.content_becomes_alike(file)?;
                continue;
            }
            self.must_do(volume, Work::Open(of.inode))?;
            if !self.clients[0].files.contents.contains(&file) || !self.is_in_tree(of) {
                continue;
            }
            let shape = self.shape(file);
            let write = shape.draw_write(self.summary.file_operations, &mut self.dice.contents);
            let works = [
                Work::Operation(write, None),
                Work::Sync(Vec::new()),
                Work::Operation(shape.read_all(), None),
            ];
            works.into_iter().try_for_each(|work| self.must_do(file, work))?;
            self.become_alike(file)?;
        }
        Ok(())
    }

    /// Its replicas become alike while nobody does anything to it.
    fn content_becomes_alike(&mut self, file: usize) -> Result<(), Violation> {
        let replication = &self.plan.shard.replication;
        let end = self.now
            + self.file_recovery_bound()
            + replication.retired_every * 4
            + self.plan.shard.file_idle * 2;
        let (object, of) = (self.files[file], self.content(file));
        if !of.is_some_and(|of| self.is_in_tree(of)) || self.checkers.entries.latest(object).is_none() {
            return Ok(());
        }
        let volume = of.and_then(|of| self.volumes().find(|&volume| self.files[volume] == of.volume));
        if let (Some(of), Some(volume)) = (of, volume)
            && self.opens_once_more(0, (volume, of.inode))?.is_none()
        {
            return Ok(());
        }
        self.notice_rot(object)?;
        let mut opened = self.now;
        while let Err(violation) = self.check_alike(file) {
            if self.now > end {
                return Err(violation);
            }
            if let (Some(of), Some(volume)) = (of, volume)
                && self.now.since(opened) > CAPABILITY_LASTS / 2
            {
                opened = self.now;
                self.opens_once_more(0, (volume, of.inode))?;
            }
            // Who is asked leads it, and tells whoever lags.
            self.call_files(0, |files, now| _ = files.ask(now, object, Query::Stat))?;
            self.run_until(self.now + LOOK_AGAIN)?;
        }
        Ok(())
    }

    pub(super) fn is_in_tree(&self, of: FileOf) -> bool {
        let replica = self.latest_of(of.volume);
        replica.is_some_and(|replica| replica.machine().tree().part(&Key::Inode(of.inode)).is_some())
    }

    /// How long it takes at most until marks are gone that nobody needs, and what is lent is given back.
    pub(super) fn forgotten_within(&self) -> Span {
        let is_unfinished = |(place, of): (usize, &FileOf)| {
            let content = self.latest_of(self.files[self.volumes().end + place]);
            !self.is_in_tree(*of) || content.is_some_and(is_lent)
        };
        if self.contents.iter().enumerate().any(is_unfinished) {
            ROUND * 12 + self.plan.shard.file_idle * 6
        } else {
            Span::ZERO
        }
    }

    /// In the end a file is as long in its tree as its content is, and of what is in no tree nobody has anything.
    pub(super) fn check_contents(&self) -> Result<(), Violation> {
        for (place, &of) in self.contents.iter().enumerate() {
            let object = self.files[self.volumes().end + place];
            let (Some(volume), content) = (self.latest_of(of.volume), self.latest_of(object)) else {
                continue;
            };
            let wrong = |what: String| {
                let facts = [Fact::new(self.now, Machines::ALL, what.clone())];
                Err(Violation::new(self.now, "contents", what).about(object).shown_by(facts))
            };
            match (volume.machine().tree().part(&Key::Inode(of.inode)), content) {
                (Some(Part::Inode(inode)), Some(content)) => {
                    let is_removed = content.machine().attributes().1.is_removed();
                    if is_lent(content) {
                        return wrong(format!("{of:?} has not given back what it was lent"));
                    }
                    let Body::File { size, lent: None, .. } = inode.body else {
                        // What it was lent it has lost. Whoever looks at it asks the content.
                        continue;
                    };
                    let there = content.machine().stat().size;
                    if size != there || is_removed {
                        return wrong(format!(
                            "{of:?} has {size} bytes in its tree, and {there} of content, removed: {is_removed}"
                        ));
                    }
                }
                (None, Some(content))
                    if content.view().id == base::ViewId::default() && self.stores_lost() == 0 =>
                {
                    return wrong(format!(
                        "{of:?} is gone, and somebody has {:?} of it",
                        content.machine().stat()
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether size and times are lent to a content, as far as that knows.
fn is_lent(content: &Replica<node::file::File>) -> bool {
    content.machine().attributes().1.lend().is_some_and(|lend| lend.is_open())
}

/// What comes of a question about a file that is empty.
fn empty(op: &FileOp) -> FileOutcome {
    match op {
        FileOp::Stat => FileOutcome::Size(0),
        _ => FileOutcome::Data(Vec::new()),
    }
}
