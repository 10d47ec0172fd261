//! The users of volumes have files open, also such as have no name any more, and lock them.

use base::ObjectId;
use client::core::files::FileEvent;
use lease::Algorithm;
use namespace::{Change as TreeChange, ClientState, Done as TreeDone, Key, Make};
use node::Capability;
use node::file::{Change, Done, FileError, Level};
use replication::Position;

use super::trees;
use super::world::World;
use super::writers::Work;
use crate::Violation;
use crate::checkers::evidence::Fact;

impl<A: Algorithm> World<'_, A> {
    /// What a user wants of a volume: to come, to open or to close something, to lock what is open, or something else.
    pub(super) fn draw_volume_work(&mut self, client: usize, file: usize) -> Work {
        let object = self.files[file];
        let is_cleared = self.clearing.contains(&file);
        let random = &mut self.dice.holds;
        let uses = &mut self.clients[client].files;
        let known = uses.trees.entry(file).or_default();
        if let Some(core) = uses.core.as_mut()
            && known.state == trees::State::Planted
            && !core.has_ended(object)
        {
            if !core.attends_to(object) {
                if random.chance(1, 6) {
                    return Work::Tree(trees::come(), None);
                }
                return Work::Tree(self.draw_tree_operation(client, file), None);
            }
            let open = core.open_in(object);
            let may_open = !self.plan.volumes.lends;
            if may_open
                && let Some(&inode) = random.pick(&open)
                && random.chance(if is_cleared { 4 } else { 1 }, 6)
            {
                core.close_held(object, inode);
            }
            if !is_cleared
                && may_open
                && random.chance(1, 8)
                && let Some(inode) = known.some_file(random)
            {
                return Work::Open(inode);
            }
            if may_open
                && random.chance(1, 6)
                && let Some(op) = known.draw_lock(&open, random)
            {
                return Work::Tree(op, None);
            }
        }
        Work::Tree(self.draw_tree_operation(client, file), None)
    }

    /// What came of a change may have brought the client on record, or have opened something.
    pub(super) fn note_held(
        &mut self,
        client: usize,
        object: ObjectId,
        (outcome, level): (&Result<Done, FileError>, Level),
        opened: Option<&Capability>,
    ) {
        let reading = self.clients[client].reading(self.now);
        let Some(core) = self.clients[client].files.core.as_mut() else { return };
        if let Some(capability) = opened {
            core.show(reading, *capability);
        }
        if let Ok(Done::Tree(done)) = outcome
            && **done == TreeDone::Welcomed
            && level == Level::Durable
        {
            core.attend_to(reading, object);
        }
        if let Some(capability) = opened {
            self.note_content(client, capability);
        }
    }

    /// A file was opened, or could not be.
    pub(super) fn note_opened(&mut self, client: usize, event: &FileEvent) {
        let reading = self.clients[client].reading(self.now);
        if let (FileEvent::Opened { capability, .. }, Some(core)) =
            (event, self.clients[client].files.core.as_mut())
        {
            core.show(reading, **capability);
            self.summary.trees.opened += 1;
            self.note_content(client, capability);
        }
    }

    /// What came to be open by the way nobody has open where files are opened by those who use what may be lent.
    pub(super) fn leave_to_hands(&mut self, client: usize, event: &FileEvent) {
        let uses = &mut self.clients[client].files;
        if let (Some(_), Some(core), FileEvent::Changed { opened: Some(capability), .. }) =
            (&uses.behind, &mut uses.core, event)
        {
            core.close_held(capability.source.volume, capability.source.inode);
        }
    }

    /// Whoever has come to a volume goes. Whose changes are refused for ever can only end.
    pub(super) fn leave_volumes(&mut self) -> Result<(), Violation> {
        for file in self.volumes() {
            for client in 0..self.clients.len() {
                let object = self.files[file];
                let who = self.clients[client].id(self.daemons.len() + client);
                let state = self.latest_of(object).and_then(|file| file.machine().tree().client(who));
                let core = self.clients[client].files.core.as_ref();
                // It may have locked something, and opened nothing.
                let is_there = state.is_some_and(|state| state == ClientState::Alive);
                if core.is_some_and(|core| is_there || core.attends_to(object)) {
                    self.work(client, 0, (file, Work::Tree(trees::go(), None)))?;
                    self.run_until(self.now + self.slack())?;
                }
                if self.clients[client].files.is_over {
                    self.crash_client(self.daemons.len() + client);
                }
            }
        }
        Ok(())
    }

    /// What a client has open that has not ended is there.
    pub(super) fn check_held(&self, daemon: usize, file: usize) -> Result<(), Violation> {
        let object = self.files[file];
        let machine = &self.daemons[daemon];
        let replica = machine.shard.as_ref().and_then(|shard| shard.file(object));
        // Of what lacks parts nothing can be said to be gone.
        let Some(replica) = replica.filter(|replica| replica.is_whole() && !replica.lacks()) else {
            return Ok(());
        };
        if self.checkers.entries.may_lose || replica.machine().attributes().1.is_removed() {
            return Ok(());
        }
        let (tree, committed) = (replica.machine().tree(), replica.committed());
        for (number, client) in self.clients.iter().enumerate() {
            let Some(core) = &client.files.core else { continue };
            let who = client.id(self.daemons.len() + number);
            if tree.client(who) != Some(ClientState::Alive) {
                continue;
            }
            for inode in core.open_in(object) {
                let is_later = |at: Position| at.seq.0 >= inode.number;
                if is_later(committed) && tree.part(&Key::Inode(inode)).is_none() {
                    let what = format!("{who:?} has {inode} open, which is gone at {committed:?}");
                    let facts = [Fact::new(self.now, machine.id, what.clone())];
                    return Err(Violation::new(self.now, "holders", what).about(object).shown_by(facts));
                }
            }
        }
        Ok(())
    }
}

/// Whether it brings a client on record.
pub(super) fn comes(change: &Change) -> bool {
    matches!(change, Change::Tree(op) if matches!(op.change, TreeChange::Welcome { .. }))
}

/// Whether it creates a file that is not there.
pub(super) fn makes_file(change: &Change) -> bool {
    let Change::Tree(op) = change else { return false };
    matches!(op.change, TreeChange::Create { make: Make::File { .. }, is_exclusive: true, .. })
}
