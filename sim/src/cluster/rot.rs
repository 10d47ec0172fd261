//! Parts of a file's content that rot on the disk of a member: found by a read while it runs, or by its next start.
//!
//! Nothing may be owed to anybody that only one member has. So something rots only where a *good copy* is left: a running member
//! that lacks nothing, has nothing on its disk that has rotted unnoticed, remembers all, is about to stay one, and has everything on disk that the other has taken for committed. What
//! its start could not read in the production store's index stands there until a checkpoint takes its place, although the process has it back.
//! As long as any file lacks parts no disk does anything that its store might not survive, and the power is cut only where a good copy is
//! left still: who has such parts may have committed since what the others have not on their disks yet. Then all has to come back.

use base::{NodeId, ObjectId};
use lease::Algorithm;
use node::file::{File, Key, Position};
use replication::{Machine, Memory, Replica};

use super::world::World;
use crate::{FaultKind, Violation};

/// So many parts are looked at.
const PARTS_MAX: usize = 1_000;

impl<A: Algorithm> World<'_, A> {
    /// Some parts of some file are damaged at a daemon.
    pub(super) fn rot_some_parts(&mut self, daemon: usize) -> Result<(), Violation> {
        let Some(&object) = self.dice.disks.pick(&self.files) else { return Ok(()) };
        let machine = &self.daemons[daemon];
        let replica = machine.shard.as_ref().and_then(|shard| shard.file(object));
        let Some(replica) = replica.filter(|replica| replica.is_whole()) else { return Ok(()) };
        if !machine.runs() || !self.has_good_copy(daemon, object, replica) {
            return Ok(());
        }
        let all = replica.machine().versions(None, PARTS_MAX);
        let some = 1 + self.dice.disks.index(3);
        let parts: Vec<(Key, Position)> =
            (0..some).filter_map(|_| self.dice.disks.pick(&all).cloned()).collect();
        let is_found_later = self.dice.disks.chance(1, 3);
        let keys: Vec<Key> = parts.iter().map(|(key, _)| key.clone()).collect();
        if self.is_real() && is_found_later {
            self.crash_some_daemon(daemon);
            if !self.rot_rows(daemon, object, &keys) {
                return Ok(());
            }
        } else if is_found_later && !self.daemons[daemon].directory.journal.rot(object, keys) {
            return Ok(());
        }
        self.summary.faults.count(FaultKind::ContentRot);
        self.daemons[daemon].was_damaged = true;
        self.mishap(daemon, "parts of a file are damaged");
        self.note(
            Some(object),
            format_args!("n{daemon} cannot read {parts:?}; at its next start: {is_found_later}"),
        );
        if is_found_later {
            self.crash_some_daemon(daemon);
            return Ok(());
        }
        let parts = if self.is_real() { self.rot_content(daemon, object, parts)? } else { parts };
        self.call(daemon, |shard, now| shard.handle_damaged(now, object, parts))
    }

    /// Whether whatever rotted comes back after a power cut, too.
    pub(super) fn survives_power_cuts(&self) -> bool {
        self.daemons.iter().enumerate().all(|(daemon, machine)| {
            let objects = machine.shard.iter().flat_map(|shard| shard.files());
            let copies = objects.filter_map(|object| Some((object, machine.shard.as_ref()?.file(object)?)));
            let mut rotten =
                copies.filter(|(_, replica)| replica.lacks() || machine.has_rotten_content(replica));
            rotten.all(|(object, replica)| self.has_good_copy(daemon, object, replica))
        })
    }

    fn has_good_copy(&self, daemon: usize, object: ObjectId, replica: &Replica<File>) -> bool {
        let is_sound_cluster =
            self.daemons.iter().all(|machine| machine.set_aside.is_none() && !machine.is_sick());
        let is_good = |node: NodeId, on_disk: Position| {
            let machine = &self.daemons[node.0 as usize];
            let copy = machine.shard.as_ref().and_then(|shard| shard.file(object));
            let stays = |replica: &Replica<File>| {
                replica.view().members.contains(node) && replica.members_to_be().contains(node)
            };
            machine.id != self.daemons[daemon].id
                && !machine.directory.is_rotten()
                && !(self.is_real() && machine.began_damaged.contains(&object))
                && copy.is_some_and(|copy| {
                    let is_clean = copy.is_sound() && copy.memory() == Memory::Clean;
                    is_clean && stays(copy) && !machine.has_rotten_content(copy)
                })
                && stays(replica)
                && self.checkers.entries.is_before(object, replica.committed(), on_disk)
        };
        is_sound_cluster
            && self.checkers.durability.of(object).any(|(node, (on_disk, _))| is_good(node, on_disk))
    }
}
