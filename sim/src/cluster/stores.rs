//! Disks that fail: what they do to a daemon's store, and what becomes of its node.
//!
//! Whatever a disk refuses is final for its store: the daemon marks it and ends, and the next start does not open it. A node whose store
//! is lost does not come back; so only so few disks fail in a run that each file keeps a majority. A
//! recovery that waits for such a node waits for an operator, who gives up what only that had.

use base::{NodeId, ObjectId, Span};
use lease::Algorithm;
use node::StoreRefusal;
use replication::Standing;

use super::calm::STEP;
use super::directory::Closed;
use super::files::DiskInput;
use super::machine::{Ailment, Begun, DaemonMachine};
use super::world::{Input, Task, World};
use crate::checkers::stores;
use crate::plan::span_between;
use crate::{FaultKind, TrueTime, Violation};

/// A supervisor tells of a process that ended by itself within this.
const NOTICED_WITHIN: Span = Span::from_millis(20);
/// An operator looks this soon at a recovery that waits, and again.
const OPERATOR_LOOKS: Span = Span::from_millis(50);
/// How many steps a start takes to open a store.
const STEPS: usize = 4;
/// And how many calls of a disk, about.
const CALLS: usize = 60;

impl<A: Algorithm> World<'_, A> {
    /// How many stores may be lost at most.
    fn spare(&self) -> usize {
        let replicas = usize::from(self.plan.shard.map.replicas()).min(self.daemons.len());
        let spare = replicas.saturating_sub(1) / 2;
        // Of files whose members change there may be fewer.
        if self.plan.faults.has(FaultKind::ViewChange) { spare.min(1) } else { spare }
    }

    /// How many were lost.
    pub(super) fn stores_lost(&self) -> usize {
        self.daemons.iter().filter(|machine| machine.is_lost).count()
    }

    /// How many more nodes may be missing.
    pub(super) fn spare_left(&self) -> usize {
        self.spare().saturating_sub(self.stores_lost())
    }

    /// Whether a machine runs no daemon any more.
    pub(super) fn is_lost(&self, machine: usize) -> bool {
        self.daemons.get(machine).is_some_and(|machine| machine.is_lost)
    }

    /// A disk does something that its store may not survive.
    pub(super) fn harm_disk(&mut self, daemon: usize, kind: FaultKind) {
        let sick = self.daemons.iter().filter(|machine| machine.is_sick()).count();
        // What somebody lacks there may be one copy of, which is to stay.
        let is_needed = |machine: &DaemonMachine<A>| machine.set_aside.is_some() || machine.is_mending();
        let is_moved = self.daemons.iter().any(is_needed);
        if sick >= self.spare() || is_moved || self.daemons[daemon].is_sick() {
            return;
        }
        let machine = &mut self.daemons[daemon];
        match kind {
            FaultKind::ReadError => machine.ailment = Some(Ailment::Reads),
            FaultKind::WriteError | FaultKind::SyncError if machine.directory.real.is_some() => {
                machine.arm(kind);
            }
            FaultKind::WriteError => machine.ailment = Some(Ailment::Writes),
            FaultKind::SyncError => machine.ailment = Some(Ailment::Syncs),
            _ if machine.directory.real.is_some() => {
                // Where a write went there is damage, and where it is missing.
                let again = kind == FaultKind::Misdirected;
                if !self.damage_really(daemon) {
                    return;
                }
                if again {
                    self.damage_really(daemon);
                }
                self.summary.faults.count(kind);
                self.mishap(daemon, "something on the disk is damaged");
            }
            _ => {
                let journal = &mut machine.directory.journal;
                let hits = if kind == FaultKind::Misdirected { 2 } else { 1 };
                // Where a write is missing there is damage, and where it went.
                let done = (0..hits).take_while(|_| journal.damage(&mut self.dice.disks)).count();
                if done == 0 {
                    return;
                }
                self.summary.faults.count(kind);
                self.mishap(daemon, "something on the disk is damaged");
            }
        }
        self.note(None, format_args!("the disk of n{daemon} will suffer: {}", kind.label()));
        if kind == FaultKind::ReadError {
            self.crash_some_daemon(daemon);
        }
    }

    /// What a daemon hears of a write.
    pub(super) fn outcome_of_write(&mut self, daemon: usize, number: u64) -> Option<DiskInput> {
        let machine = &mut self.daemons[daemon];
        let journal = &mut machine.directory.journal;
        if journal.is_broken() {
            return None;
        }
        if machine.ailment != Some(Ailment::Writes) {
            return Some(DiskInput::Written(number));
        }
        machine.ailment = None;
        journal.break_down();
        self.summary.faults.count(FaultKind::WriteError);
        self.note(None, format_args!("the disk of n{daemon} refuses to write {number}"));
        self.mishap(daemon, "the disk refuses to write");
        Some(DiskInput::Failed)
    }

    /// What a daemon hears of a sync. It may end before it hears that it failed.
    pub(super) fn outcome_of_sync(&mut self, daemon: usize, number: u64, at: TrueTime) -> Option<DiskInput> {
        let machine = &mut self.daemons[daemon];
        let journal = &mut machine.directory.journal;
        if journal.is_broken() {
            return None;
        }
        if machine.ailment != Some(Ailment::Syncs) {
            if let Some(recent) = self.plan.skips_older {
                journal.skip(number, recent);
            }
            journal.note_syncing(number);
            return Some(DiskInput::Durable(number));
        }
        machine.ailment = None;
        journal.give_up(number, &mut self.dice.disks);
        let life = machine.running.life;
        self.summary.faults.count(FaultKind::SyncError);
        self.note(None, format_args!("a sync of n{daemon} up to {number} fails"));
        self.mishap(daemon, "a sync fails");
        if self.dice.faults.chance(1, 3) {
            let dies = span_between(Span::ZERO, at.since(self.now), &mut self.dice.faults);
            self.queue.push(self.now + dies, Task::Betray(daemon, life));
        }
        Some(DiskInput::Failed)
    }

    /// A sync was confirmed that may not have been about everything.
    pub(super) fn check_durable(
        &self,
        daemon: usize,
        is_true: Result<(), (u64, TrueTime)>,
    ) -> Result<(), Violation> {
        is_true.map_err(|missing| stores::not_durable(self.now, self.daemons[daemon].id, missing))
    }

    /// The store of a daemon has failed: it marks that, if it still can, and ends. Its supervisor starts it again.
    pub(super) fn end_with_store(&mut self, daemon: usize) {
        let is_marked = self.dice.disks.chance(1, 2);
        if is_marked {
            self.mark_failed(daemon);
        }
        let directory = &mut self.daemons[daemon].directory;
        directory.is_marked |= is_marked;
        directory.memo.iter_mut().for_each(|memo| memo.is_failed = true);
        self.note(None, format_args!("the store of n{daemon} has failed; marked on disk: {is_marked}"));
        self.mishap(
            daemon,
            if is_marked { "its store has failed, and is marked" } else { "its store has failed" },
        );
        let dead = self.crash(daemon);
        self.bury(dead, NOTICED_WITHIN);
        let down = self.while_it_lasts();
        self.queue.push(self.now + down, Task::Start(daemon));
    }

    /// A daemon's process begins. False if it ended at once.
    pub(super) fn begin_process(&mut self, daemon: usize) -> Result<bool, Violation> {
        let is_cut_short = !self.is_calm && self.dice.faults.chance(1, 8);
        let steps = if is_cut_short { self.dice.faults.index(STEPS) } else { STEPS };
        let refuses = self.daemons[daemon].ailment == Some(Ailment::Reads);
        let begun = if self.is_real() {
            let calls = is_cut_short.then(|| self.dice.faults.index(CALLS));
            match self.daemons[daemon].start_really(self.now, &self.plan.shard, calls) {
                Ok(begun) => begun,
                Err(what) => return Err(self.wrong_store(daemon, &what)),
            }
        } else {
            self.daemons[daemon].start(self.now, &self.plan.shard, steps)
        };
        // Of a state that is being taken over there may be no other copy.
        self.checkers.entries.may_lose |= !self.daemons[daemon].damaged_files.is_empty();
        match begun {
            Ok(Begun::Running) => Ok(true),
            Ok(Begun::Interrupted) => {
                self.note(None, format_args!("n{daemon} ends after {steps} steps of its start"));
                self.mishap(daemon, "ends in the middle of its start");
                let down = self.while_it_lasts();
                self.queue.push(self.now + down, Task::Start(daemon));
                Ok(false)
            }
            Ok(Begun::Closed(Closed::Refused(refusal))) => {
                if refuses {
                    self.summary.faults.count(FaultKind::ReadError);
                }
                self.lose_store(daemon, refusal).map(|()| false)
            }
            Ok(Begun::Closed(Closed::Wrong(what))) => Err(self.wrong_store(daemon, what)),
            Err(error) => {
                let what = format!("n{daemon} cannot start: {error}");
                Err(stores::not_started(self.now, self.daemons[daemon].id, &what, self.mishaps_of(daemon)))
            }
        }
    }

    /// A store does not open: its node does not come back.
    fn lose_store(&mut self, daemon: usize, refusal: StoreRefusal) -> Result<(), Violation> {
        self.note(None, format_args!("n{daemon} does not come back: {refusal}"));
        self.mishap(daemon, "its store does not open");
        if !self.daemons[daemon].is_sick() && refusal != StoreRefusal::Unreadable {
            return Err(
                self.wrong_store(daemon, &format!("refuses a store that nothing happened to: {refusal}"))
            );
        }
        self.summary.faults.count(FaultKind::StoreLost);
        self.daemons[daemon].is_lost = true;
        Ok(())
    }

    /// Disks are as they should be from now on, and what they have done comes out.
    pub(super) fn heal_disks(&mut self) {
        for daemon in 0..self.daemons.len() {
            let machine = &mut self.daemons[daemon];
            machine.ailment = None;
            machine.disarm();
            if machine.shard.is_some() && machine.directory.is_sick() {
                self.crash(daemon);
            }
        }
    }

    /// An operator says of nodes whose stores are lost that they do not come back.
    pub(super) fn strike_lost(&mut self) -> Result<(), Violation> {
        for lost in (0..self.daemons.len()).filter(|&daemon| self.is_lost(daemon)).collect::<Vec<_>>() {
            let node = self.daemons[lost].id;
            for daemon in 0..self.daemons.len() {
                // Nobody is gone who seems to be connected: the operator says it again.
                while !self.strike_from(daemon, node)? {
                    self.run_until(self.now + STEP * 20)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a daemon takes an operator's word that a node is gone for good.
    fn strike_from(&mut self, daemon: usize, node: NodeId) -> Result<bool, Violation> {
        let mut told = Ok(());
        self.call(daemon, |shard, now| told = shard.strike(now, node))?;
        Ok(told.is_ok())
    }

    /// A recovery waits for somebody. That may be a node that does not come back, so an operator is asked.
    pub(super) fn call_operator(&mut self, daemon: usize, object: ObjectId) {
        let at = self.now + OPERATOR_LOOKS;
        self.push_input(at, daemon, Input::Disk(DiskInput::Operator(object)));
    }

    /// Once all others are there, an operator gives up what only a lost store had.
    pub(super) fn operator_looks(&mut self, daemon: usize, object: ObjectId) -> Result<(), Violation> {
        let shard = self.daemons[daemon].shard.as_ref();
        let replica = shard.and_then(|shard| shard.file(object));
        if replica.is_none_or(|replica| replica.standing() != Standing::Recovering) {
            return Ok(());
        }
        let members = shard.map(|shard| shard.members_of(object));
        let members = members.iter().flat_map(|members| members.as_slice());
        let (lost, others): (Vec<usize>, Vec<usize>) =
            members.map(|node| node.0 as usize).partition(|&index| self.is_lost(index));
        if lost.is_empty() || !others.iter().all(|&index| self.daemons[index].runs()) {
            self.call_operator(daemon, object);
            return Ok(());
        }
        let might_lose = std::mem::replace(&mut self.checkers.entries.may_lose, true);
        self.note(Some(object), format_args!("an operator accepts at n{daemon} that something is lost"));
        self.mishap(daemon, "an operator accepts that something is lost");
        let mut is_accepted = false;
        self.call(daemon, |shard, now| is_accepted = shard.accept_loss(now, object))?;
        if is_accepted {
            self.summary.faults.count(FaultKind::LossAccepted);
        } else {
            self.checkers.entries.may_lose = might_lose;
            self.call_operator(daemon, object);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lease::FleaseRules;

    use super::{STEP, World};
    use crate::cluster::ClusterPlan;
    use crate::plan::Clocks;
    use crate::{FaultKind, Trace, TrueTime};

    /// A file lost parts at n2, whose process ended before it had them back. Then the disk of n1 failed, which had the only whole
    /// copy, and what had been durable at two of three was gone.
    #[test]
    fn no_disk_fails_while_a_stopped_daemon_lacks_what_it_may_have_alone() {
        let plan = ClusterPlan::draw(163, Clocks::Synchronised);
        assert!(plan.faults.has(FaultKind::ContentRot));
        let mut world = World::<FleaseRules>::new(&plan, Trace::off());
        for machine in 0..world.machines() {
            world.start(machine).expect("nothing is on its disk");
        }
        world.schedule_faults();
        let lacking = loop {
            world.run_until(world.now + STEP).expect("no promise is broken");
            assert!(world.now < TrueTime::ZERO + plan.duration, "parts are damaged in this run");
            let lacks = |daemon: &usize| world.daemons[*daemon].runs() && world.daemons[*daemon].is_mending();
            if let Some(lacking) = (0..world.daemons.len()).find(lacks) {
                break lacking;
            }
        };
        world.crash(lacking);
        assert!(world.daemons[lacking].is_mending());
        let other = (lacking + 1) % world.daemons.len();
        world.harm_disk(other, FaultKind::SyncError);
        assert!(!world.daemons[other].is_sick());
    }
}
