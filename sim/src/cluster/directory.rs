//! Data directories: what a daemon's disk keeps across its processes, and what operators do to it.
//!
//! An operator may empty a directory, set it back to an old copy, or start such a copy elsewhere. Then peers must not
//! listen to what comes from it. Later the newest state is put back.

use std::collections::BTreeMap;

use base::{Dead, NodeId, Process, Random, Span, StartId, StoreId};
use lease::Algorithm;
use node::{Chain, JournalFound, Memo, Met, OpenStep, RestoredCopy, Rules, StoreFound, StoreRefusal};
use osd::store::Store;

use super::disk::Journal;
use super::plan::ClusterPlan;
use super::real::RealDisk;
use super::streams::{ConnectionId, Side};
use super::world::{Task, World};
use crate::checkers::stores;
use crate::{FaultKind, Violation};

/// The supervisor of a copy tells of its death after this long at most.
const COPY_DIES_WITHIN: Span = Span::from_millis(200);

/// What is on a disk.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) store: StoreId,
    pub(super) chain: Chain,
    /// The newest start of each peer that was admitted.
    pub(super) met: BTreeMap<NodeId, Met>,
    /// The epoch ceiling.
    pub(super) ceiling: u64,
    /// What is kept of files.
    pub(super) journal: Journal,
    /// What memory that outlives processes knows of it. None if the power has failed since the last start.
    pub(super) memo: Option<Memo>,
    /// Whether it is marked on the disk that the store has failed.
    pub(super) is_marked: bool,
    /// In epochs up to this one something may be missing.
    pub(super) forgot_at: Option<u64>,
    /// What the production store has on its disk, instead of the journal and the memo.
    pub(super) real: Option<RealDisk>,
    /// What the next start has to find out of that, because something was lost that was written.
    must_forget: Option<u64>,
}

/// What a start could make of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opened {
    /// It is open, and in epochs up to this one something may be missing.
    Whole(Option<u64>),
    /// The process ended before that.
    Interrupted,
}

/// Why a directory does not open, or must not have been opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closed {
    Refused(StoreRefusal),
    /// A rule was broken.
    Wrong(&'static str),
}

/// A start of a daemon, as its peers are told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Birth {
    pub(super) process: Process,
    pub(super) met: Met,
    pub(super) line: StartId,
    /// Whether the directory was what it should be.
    pub(super) is_genuine: bool,
}

impl Directory {
    pub(super) fn empty(random: &mut Random) -> Self {
        let name = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        Self {
            store: StoreId(name.to_le_bytes()),
            chain: Chain::default(),
            met: BTreeMap::new(),
            ceiling: 0,
            journal: Journal::default(),
            memo: Some(Memo::default()),
            is_marked: false,
            forgot_at: None,
            real: None,
            must_forget: None,
        }
    }

    /// The same for a node with the production store.
    pub(super) fn empty_of(node: NodeId, plan: &ClusterPlan, random: &mut Random) -> Self {
        let mut directory = Self::empty(random);
        let cluster = plan.shard.map.cluster();
        directory.real =
            plan.store.as_ref().map(|store| RealDisk::new(cluster, node, directory.store, store));
        directory
    }

    /// Somebody has put it elsewhere, with care.
    pub(super) fn settle(&mut self) {
        match &self.real {
            Some(real) => real.settle(),
            None => self.journal.settle(),
        }
    }

    /// Whether there are parts of files that the next start cannot read.
    pub(super) fn is_rotten(&self) -> bool {
        self.journal.is_rotten() || self.real.as_ref().is_some_and(|real| real.has_rotten_rows)
    }

    /// A start has opened the production store: what it knows is what was kept.
    pub(super) fn note_opened(
        &mut self,
        store: &Store,
        forgot_at: Option<u64>,
        is_strict: bool,
    ) -> Result<(), String> {
        for (&node, met) in &mut self.met {
            // What it let in as it ended it may know, although nobody was told.
            match store.peer(node).filter(|known| known.start.incarnation >= met.start.incarnation) {
                Some(known) => *met = known,
                None if is_strict => return Err(format!("has forgotten that it let in {met:?} of {node:?}")),
                None => {}
            }
        }
        if forgot_at < self.must_forget {
            return Err("opens without knowing that it lost something".into());
        }
        if store.epoch_ceiling() < self.ceiling {
            return Err("has forgotten its ceiling".into());
        }
        self.chain = store.chain().clone();
        (self.ceiling, self.forgot_at, self.memo) = (store.epoch_ceiling(), forgot_at, Some(Memo::default()));
        Ok(())
    }

    /// The disk has done something, and the memo hears of it together with the process.
    pub(super) const fn note_progress(&mut self) {
        if let Some(memo) = &mut self.memo {
            (memo.written, memo.durable) = (self.journal.written(), self.journal.durable());
        }
    }

    /// The power has failed. Returns how many records were torn.
    pub(super) fn lose_power(&mut self, random: &mut Random) -> u64 {
        if self.memo.take().is_some() {
            // What that process has promised or taken in since it was opened.
            self.must_forget = self.must_forget.max(Some(self.ceiling));
        }
        match &mut self.real {
            Some(real) => real.lose_power(),
            None => self.journal.lose_power(random),
        }
    }

    /// Whether its disk has done anything to it that cannot be made good.
    pub(super) fn is_sick(&self) -> bool {
        self.is_marked
            || self.memo.is_some_and(|memo| memo.is_failed)
            || self.journal.is_flawed()
            || self.real.as_ref().is_some_and(RealDisk::is_sick)
    }

    /// A start opens it, unless it must not, or its process ends after some of the steps.
    pub(super) fn open(
        &mut self,
        rules: Rules,
        (is_refused, steps): (bool, usize),
    ) -> Result<Opened, Closed> {
        let journal = JournalFound { is_refused, ..self.journal.found() };
        let (memo, ceiling, forgot_at) = (self.memo, self.ceiling, self.forgot_at);
        let found = StoreFound { memo, is_failed: self.is_marked, journal, ceiling, forgot_at };
        let opening = found.open(rules).map_err(Closed::Refused)?;
        for step in opening.steps.into_iter().take(steps) {
            match step {
                OpenStep::Forget(upto) => self.forgot_at = upto,
                OpenStep::EndWith(last) if last < self.journal.durable() => {
                    return Err(Closed::Wrong("opens without records that it said were durable"));
                }
                OpenStep::EndWith(last) => self.journal.end_with(last),
                OpenStep::RewriteBehind(last) => self.journal.rewrite_behind(last),
                OpenStep::Memo(memo) => self.memo = Some(memo),
            }
        }
        if steps < opening.steps.len() {
            return Ok(Opened::Interrupted);
        }
        if opening.forgot_at < self.must_forget {
            return Err(Closed::Wrong("opens without knowing that it lost something"));
        }
        Ok(Opened::Whole(opening.forgot_at))
    }

    /// The directory with one more start.
    pub(super) fn begin(&mut self, nonce: u64, proves_death: bool) {
        self.chain = self.chain.begin(nonce, proves_death);
    }

    /// The newest start.
    pub(super) fn birth(&self, node: NodeId, is_genuine: bool) -> Option<Birth> {
        let (start, line) = (self.chain.last()?, self.chain.line()?);
        let process = Process { node, incarnation: start.incarnation };
        Some(Birth { process, met: Met { store: self.store, start }, line, is_genuine })
    }
}

impl<A: Algorithm> World<'_, A> {
    /// The directory of a daemon is emptied, or set back to an old copy, and put right after a while.
    pub(super) fn change_directory(&mut self, daemon: usize, kind: FaultKind) {
        let is_first = self.daemons.iter().all(|machine| machine.set_aside.is_none() && !machine.is_sick());
        if !is_first || self.daemons.len() < 3 || !self.is_known_to_all(daemon) {
            return;
        }
        let machine = &mut self.daemons[daemon];
        let changed = match kind {
            FaultKind::DirectoryEmptied => Directory::empty_of(machine.id, self.plan, &mut self.dice.disks),
            _ => match &machine.backup {
                Some(backup) if backup.chain.incarnation() < machine.directory.chain.incarnation() => {
                    backup.clone()
                }
                _ => return,
            },
        };
        self.summary.faults.count(kind);
        self.crash_some_daemon(daemon);
        let machine = &mut self.daemons[daemon];
        machine.directory.settle();
        machine.set_aside = Some(std::mem::replace(&mut machine.directory, changed));
        self.note(None, format_args!("the directory of n{daemon} suffers: {}", kind.label()));
        self.mishap(daemon, kind.label());
        let lasts = self.while_it_lasts() + self.plan.shard.lease.t_max;
        self.queue.push(self.now + lasts, Task::PutBack(daemon));
        self.queue.push(self.now + Span::from_millis(1), Task::Start(daemon));
    }

    /// Whether every other daemon has met the newest start of this one. An operator cannot know; but where somebody
    /// has not, nothing can tell that the directory is not what it was.
    fn is_known_to_all(&self, daemon: usize) -> bool {
        let Some(birth) = self.daemons[daemon].births.last() else { return false };
        let mut others = self.daemons.iter().filter(|machine| machine.id != birth.process.node);
        others.all(|other| other.directory.met.get(&birth.process.node) == Some(&birth.met))
    }

    /// The operator has noticed, stops the daemon and puts its newest directory back.
    pub(super) fn put_back(&mut self, daemon: usize) {
        let Some(genuine) = self.daemons[daemon].set_aside.take() else { return };
        if self.daemons[daemon].shard.is_some() {
            self.crash(daemon);
        }
        self.note(None, format_args!("n{daemon} has its directory back"));
        self.mishap(daemon, "has its directory back");
        self.daemons[daemon].directory = genuine;
        self.daemons[daemon].directory.real.iter_mut().for_each(RealDisk::note_move);
        self.queue.push(self.now + Span::from_millis(1), Task::Start(daemon));
    }

    /// An old copy of a running daemon's directory is started elsewhere, counts as far, and dies: its supervisor says
    /// so, and means another process of the same name.
    pub(super) fn copy_dies(&mut self, daemon: usize) {
        let machine = &self.daemons[daemon];
        let (Some(mut copy), Some(birth)) = (machine.backup.clone(), machine.births.last().copied()) else {
            return;
        };
        if machine.shard.is_none() || copy.chain.incarnation() >= birth.process.incarnation {
            return;
        }
        copy.begin(self.dice.disks.next_u64(), false);
        while copy.chain.incarnation() < birth.process.incarnation {
            copy.begin(self.dice.disks.next_u64(), true);
        }
        let Some(twin) = copy.birth(machine.id, false) else { return };
        self.summary.faults.count(FaultKind::CopyDies);
        self.note(None, format_args!("a copy of {:?} dies", twin.process));
        self.mishap(daemon, "a copy of it dies");
        self.spread_notice((twin.process, twin.line), COPY_DIES_WITHIN);
    }

    /// The two ends of a connection introduce themselves. Both must let the other in.
    pub(super) fn introduce(&mut self, id: ConnectionId) -> Result<bool, Violation> {
        let Some(connection) = self.connections.get(id) else { return Ok(false) };
        let ends =
            [Side::Dialer, Side::Acceptor].map(|side| (connection.machine(side), connection.life(side)));
        if ends.iter().any(|&(machine, _)| self.client_on(machine).is_some()) {
            return Ok(true);
        }
        let [dialer, acceptor] = ends;
        if [self.lets_in(acceptor, dialer)?, self.lets_in(dialer, acceptor)?] != [true; 2] {
            return Ok(false);
        }
        for ((daemon, _), (peer, life)) in [(acceptor, dialer), (dialer, acceptor)] {
            let told = self.daemons[peer].birth(life);
            if self.is_real() && !self.admit_really(daemon, &told)? {
                return Ok(false);
            }
            self.daemons[daemon].directory.met.insert(told.process.node, told.met);
        }
        Ok(true)
    }

    /// Whether a daemon lets in what another says it is. It stops itself if the other knows a start that it does not.
    fn lets_in(
        &mut self,
        (daemon, life): (usize, u64),
        (peer, peer_life): (usize, u64),
    ) -> Result<bool, Violation> {
        if self.daemons[daemon].running.life != life || self.daemons[daemon].shard.is_none() {
            return Ok(false);
        }
        let (id, rules) = (self.daemons[daemon].id, self.plan.shard.rules());
        let known = self.daemons[peer].directory.met.get(&id);
        let own =
            known.map_or(Ok(()), |known| self.daemons[daemon].directory.chain.check(known.start, rules));
        if let Err(copy) = own {
            return self.stop_as_copy(daemon, &copy).map(|()| false);
        }
        let Process { node, .. } = self.daemons[peer].birth(peer_life).process;
        let told = self.daemons[peer].birth(peer_life).met;
        let known = self.daemons[daemon].directory.met.get(&node);
        if let Some(Err(refusal)) = known.map(|known| known.admit(node, &told, rules)) {
            self.note(None, format_args!("{id:?} refuses: {refusal}"));
            return Ok(false);
        }
        Ok(true)
    }

    /// A daemon that runs on an old copy stops, and is not started again before its directory is put back.
    fn stop_as_copy(&mut self, daemon: usize, copy: &RestoredCopy) -> Result<(), Violation> {
        let birth = self.daemons[daemon].birth(self.daemons[daemon].running.life);
        self.note(None, format_args!("{:?} stops: {copy}", birth.process));
        if birth.is_genuine {
            let what = format!("{:?} takes itself for a copy, and is none: {copy}", birth.process);
            return Err(stores::not_started(self.now, birth.process.node, &what, self.mishaps_of(daemon)));
        }
        let dead = self.crash(daemon);
        self.bury(dead, COPY_DIES_WITHIN);
        Ok(())
    }

    /// Whether datagrams pass between two daemons: nobody is connected with whom it does not let in.
    pub(super) fn may_talk(&self, one: &Birth, other: &Birth) -> bool {
        let is_let_in = |who: &Birth, by: &Birth| {
            let directory = &self.daemons[by.process.node.0 as usize].directory;
            who.is_genuine || directory.met.get(&who.process.node) == Some(&who.met)
        };
        is_let_in(one, other) && is_let_in(other, one)
    }

    /// A daemon is connected with a start of a peer, which proves that those before it in its line are dead.
    pub(super) fn note_line(&mut self, daemon: usize, peer: &Birth) -> Result<(), Violation> {
        let Some(dead) = self.daemons[daemon].lines.note(peer.process, peer.line) else { return Ok(()) };
        self.lay_ghosts(dead);
        self.call(daemon, |shard, now| shard.handle_death_notice(now, dead))
    }

    /// A supervisor has told a daemon of a death.
    pub(super) fn hear_of_death(
        &mut self,
        daemon: usize,
        dead: Process,
        line: StartId,
    ) -> Result<(), Violation> {
        let named: Option<Dead> = self.daemons[daemon].lines.named_by(dead, line);
        self.note(None, format_args!("n{daemon} hears that {dead:?} is dead, and takes it for {named:?}"));
        let Some(dead) = named else { return Ok(()) };
        self.call(daemon, |shard, now| shard.handle_death_notice(now, dead))
    }
}
