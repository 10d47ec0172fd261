//! Who owns which leases and holds which locks now, also by what processes did that have ended since.

use base::{Dead, ObjectId, Process, WallTime};
use lease::Algorithm;
use node::{ClientId, Token};

use super::world::{LOOK_EVERY, Task, World};
use crate::Violation;
use crate::checkers::exclusion::Owner;

/// What a dead process owned, as far as its clients may rely on it.
#[derive(Debug)]
pub(super) struct Ghost {
    cell: ObjectId,
    process: Process,
    until: WallTime,
}

impl<A: Algorithm> World<'_, A> {
    /// Everybody who believes to hold a lock.
    pub(super) fn holders(&self, lock: usize) -> Vec<(ClientId, Token)> {
        let mut holders = Vec::new();
        for (client, machine) in self.clients.iter().enumerate() {
            for user in 0..machine.users.len() {
                if machine.users[user].lock() == Some(lock)
                    && let Some((_, token)) = machine.belief(self.now, user)
                {
                    holders.push((machine.id(self.daemons.len() + client), token));
                }
            }
        }
        holders
    }

    pub(super) fn look_around(&mut self) -> Result<(), Violation> {
        self.look_at_clocks();
        let may_overlap = self.wrong_clocks.is_loose;
        for cell in self.leased().into_iter().filter(|_| !may_overlap) {
            let owners = self.owners(cell);
            self.checkers.exclusion.observe(self.now, cell, &owners)?;
        }
        self.checkers.promptness.check(self.now)?;
        self.queue.push(self.now + LOOK_EVERY, Task::Look);
        Ok(())
    }

    /// All cells that may have an owner.
    fn leased(&self) -> Vec<ObjectId> {
        self.cells.iter().chain(&self.files).copied().collect()
    }

    /// Everybody who owns the lease of a cell now.
    fn owners(&self, cell: ObjectId) -> Vec<Owner> {
        let living = self.daemons.iter().filter_map(|daemon| daemon.owner(self.now, cell));
        let ended = self.ghosts.iter().filter(|ghost| ghost.cell == cell).filter_map(|ghost| {
            let reading = self.daemons[ghost.process.node.0 as usize].clock.reading(self.now);
            let owner = Owner { process: ghost.process, reading, until: ghost.until, ended: true };
            (reading < ghost.until).then_some(owner)
        });
        living.chain(ended).collect()
    }

    /// What a daemon owned goes on until its clock passes the expiry, although nobody can act on it.
    pub(super) fn leave_ghosts(&mut self, daemon: usize) {
        let machine = &self.daemons[daemon];
        let reading = machine.clock.reading(self.now);
        self.ghosts.retain(|ghost| ghost.process.node != machine.id || reading < ghost.until);
        for cell in self.leased() {
            if let Some(owner) = self.daemons[daemon].owner(self.now, cell) {
                self.ghosts.push(Ghost { cell, process: owner.process, until: owner.until });
            }
        }
    }

    /// A witness says that the process is dead: its leases are over.
    pub(super) fn lay_ghosts(&mut self, dead: Dead) {
        self.ghosts.retain(|ghost| !dead.contains(ghost.process));
    }
}
