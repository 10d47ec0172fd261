//! What is watched of lends, and how what users did with them comes to its end.

use base::{ObjectId, Span};
use client::core::content::FileId;
use lease::Algorithm;
use namespace::{InodeId, Key};
use node::file::{FileOf, Position};

use super::calm::STEP;
use super::trees;
use super::world::World;
use crate::Violation;
use crate::check::file::FileOp;
use crate::checkers::evidence::{Fact, Machines};

/// So many files are used in the calm.
const USED_ONCE_MORE: usize = 6;
/// What is asked for takes no longer once everything is healed: each user's patience, and a flush before it, several times.
const SETTLED_WITHIN: Span = Span::from_secs(180);

impl<A: Algorithm> World<'_, A> {
    /// Replicas of a volume know more to be committed, or more of its files are watched: what is lent may have changed.
    pub(super) fn watch_lends(&mut self, volume: ObjectId) {
        if !self.plan.volumes.lends {
            return;
        }
        let Some(replica) = self.latest_of(volume).filter(|replica| !replica.lacks()) else { return };
        let (at, tree) = (replica.committed(), replica.machine().tree());
        let of_it = self.contents.iter().enumerate().filter(|(_, of)| of.volume == volume);
        let lent = |of: &FileOf| {
            let is_there = tree.part(&Key::Inode(of.inode)).is_some();
            is_there.then(|| tree.lent(of.inode).map(|lent| lent.generation))
        };
        let all: Vec<_> =
            of_it.map(|(place, of)| (self.files[self.volumes().end + place], lent(of))).collect();
        if !self.checkers.contents.is_news(volume, at) {
            return;
        }
        for (object, present) in all {
            let upto = self.checkers.entries.latest(object).map_or(Position::START, |seen| seen.at);
            match present {
                Some(present) => self.checkers.contents.lent(self.now, object, (present, upto)),
                // It was removed, and nobody has it open.
                None => self.checkers.contents.gone(self.now, object),
            }
        }
    }

    /// A file begins with less than somebody was told. Whether it is a content that may be lent, of which nothing more is said.
    pub(super) fn stops_lends(&mut self, file: usize) -> bool {
        if !self.plan.volumes.lends {
            return false;
        }
        let (object, is_volume) = (self.files[file], self.is_volume(file));
        let is_meant = |(place, of): (usize, &FileOf)| {
            let meant = if is_volume {
                of.volume == object
            } else {
                self.files[self.volumes().end + place] == object
            };
            meant.then(|| self.files[self.volumes().end + place])
        };
        let meant: Vec<ObjectId> = self.contents.iter().enumerate().filter_map(is_meant).collect();
        meant.iter().for_each(|&content| self.checkers.contents.stop(self.now, content));
        self.is_content(object)
    }

    /// Everybody comes to an end with what he is about. Then each file is used by two clients once more, and all that is lent is returned.
    pub(super) fn settle_lends(&mut self) -> Result<(), Violation> {
        if !self.plan.volumes.lends {
            return Ok(());
        }
        self.await_hands()?;
        let last = self.contents.len().saturating_sub(USED_ONCE_MORE);
        for place in last..self.contents.len() {
            self.use_once_more(place)?;
        }
        for client in 0..self.clients.len() {
            for opening in self.used_by(client) {
                self.hand_closes(client, opening)?;
            }
            if let Some(behind) = self.clients[client].files.behind.as_mut() {
                behind.is_on = false;
                behind.contents.recall_all();
            }
            self.drain_client(client)?;
        }
        let has_lends = |world: &Self| {
            let mut behind = world.clients.iter().filter_map(|client| client.files.behind.as_ref());
            behind.any(|behind| !behind.contents.has_no_lends() || behind.ahead.is_busy())
        };
        let end = self.now + SETTLED_WITHIN;
        while has_lends(self) {
            self.must_be_before(end, "some client has not returned what is lent to it")?;
            self.run_until(self.now + STEP)?;
        }
        Ok(())
    }

    fn used_by(&self, client: usize) -> Vec<u64> {
        self.clients[client].files.behind.as_ref().map(super::behind::Behind::used).unwrap_or_default()
    }

    fn must_be_before(&self, end: crate::TrueTime, what: &str) -> Result<(), Violation> {
        if self.now <= end {
            return Ok(());
        }
        let facts = [Fact::new(self.now, Machines::ALL, what.to_owned())];
        Err(Violation::new(self.now, "lends", what.to_owned()).shown_by(facts))
    }

    fn await_hands(&mut self) -> Result<(), Violation> {
        let end = self.now + SETTLED_WITHIN;
        let is_busy = |world: &Self| {
            let mut hands = world.clients.iter().flat_map(|client| &client.files.hands);
            hands.any(|hand| !hand.is_idle())
        };
        while is_busy(self) {
            self.must_be_before(end, "somebody who uses a file is told nothing")?;
            self.run_until(self.now + STEP)?;
        }
        Ok(())
    }

    fn use_once_more(&mut self, place: usize) -> Result<(), Violation> {
        let of = self.contents[place];
        let file = self.volumes().end + place;
        let Some(volume) = self.volumes().find(|&volume| self.files[volume] == of.volume) else {
            return Ok(());
        };
        let shape = self.shape(file);
        let one = self.opens_once_more(0, (volume, of.inode))?;
        let other = self.opens_once_more(1, (volume, of.inode))?;
        let (Some(one), Some(other)) = (one, other) else { return Ok(()) };
        let number = self.summary.trees.content_wanted + 1;
        self.summary.trees.content_wanted += 2;
        let write = shape.draw_write(number, &mut self.dice.lends);
        let again = shape.draw_write(number + 1, &mut self.dice.lends);
        let uses = [
            (0, one, write),
            (1, other, FileOp::Stat),
            (1, other, shape.read_all()),
            (1, other, again),
            (0, one, shape.read_all()),
        ];
        for (client, opening, op) in uses {
            self.hand_uses(client, 0, (opening, op))?;
            self.await_hands()?;
        }
        for (client, opening) in [(0, one), (1, other)] {
            self.hand_syncs(client, 0, opening)?;
            self.await_hands()?;
        }
        Ok(())
    }

    /// A client opens a file, if it can. By which opening it has it open then.
    pub(super) fn opens_once_more(
        &mut self,
        client: usize,
        (volume, inode): (usize, InodeId),
    ) -> Result<Option<u64>, Violation> {
        let object = self.files[volume];
        let core = |world: &Self| {
            let core = world.clients[client].files.core.as_ref();
            core.map(|core| (core.attends_to(object), core.has_ended(object)))
        };
        if core(self) == Some((false, false)) {
            self.hand_comes(client, 0, (volume, trees::come()))?;
            self.await_hands()?;
        }
        if core(self) != Some((true, false)) {
            return Ok(None);
        }
        self.hand_opens(client, 0, (volume, inode))?;
        self.await_hands()?;
        let id = FileId { volume: object, inode };
        let behind = self.clients[client].files.behind.as_ref();
        Ok(behind
            .and_then(|behind| behind.used().into_iter().find(|opening| behind.openings[opening].id == id)))
    }
}
