//! What is expected of files once everything is healed: whoever waits has a result, replicas are alike, and their
//! histories have an order.

use base::{NodeId, Span};
use lease::Algorithm;
use namespace::Ask;
use node::file::File;

use super::real::harming::has_same_content;
use super::trees;
use super::world::{Checkers, World};
use super::writers::Work;
use crate::check::file::FileOp;
use crate::checkers::promptness::Expected;
use crate::checkers::replicas;
use crate::{TrueTime, Violation};

/// A client that was sent away asks again after this long at most, and asks who was silent after this long.
const CLIENT_WAITS: Span = Span::from_secs(3);
/// No table of so many clients is ever full.
const CLIENTS_MANY: usize = 1_000;
/// Replicas are looked at this often until they are alike.
const LOOK_AGAIN: Span = Span::from_millis(20);

impl<A: Algorithm> World<'_, A> {
    /// What a file may need beside a lease: everybody is asked, some twice, a log or a state is fetched.
    pub(super) fn file_recovery_bound(&self) -> Span {
        let replication = &self.plan.shard.replication;
        let turns = (self.slack() + replication.retry_after * 4) * self.files.len() as u64;
        // Who is new to a file may have to wait until somebody who was there has been silent for long enough.
        let silent =
            if replication.clients_max > CLIENTS_MANY { Span::ZERO } else { self.plan.shard.client_silent };
        let silent = silent.stretched(self.plan.shard.lease.rate_error_ppm) * 2;
        silent + replication.all_forgot_after * 2 + replication.isolated_after + CLIENT_WAITS * 2 + turns
    }

    /// Who waits for a file is expected to have a result within a bound.
    pub(super) fn await_writers(&mut self, healed: TrueTime, bound: Span) {
        for client in 0..self.clients.len() {
            for writer in 0..self.clients[client].files.writers.len() {
                let pending = self.clients[client].files.writers[writer].pending.as_ref();
                if let Some(file) = pending.map(|pending| pending.file) {
                    let cell = Some(self.files[file]);
                    let id = self.checkers.promptness.expect(healed, Expected::FileRecovery, cell, bound);
                    self.awaited_files.insert((client, writer), id);
                }
            }
        }
    }

    /// Everybody has a result. Each file is used once more, and then its replicas must be alike.
    pub(super) fn settle_files(&mut self) -> Result<(), Violation> {
        self.settle_lends()?;
        for file in self.volumes() {
            let works = self.last_works(file);
            works.into_iter().try_for_each(|work| self.must_do(file, work))?;
        }
        for file in 0..self.volumes().start {
            let shape = self.shape(file);
            let write = shape.draw_write(self.summary.file_operations, &mut self.dice.files);
            let is_begun = self.dice.removals.chance(1, 2);
            let begin = if is_begun { FileOp::Begin } else { FileOp::Stat };
            let works = [
                Work::Create,
                Work::Operation(begin, None),
                Work::Operation(write, None),
                Work::Sync(Vec::new()),
                Work::Operation(shape.read_all(), None),
            ];
            works.into_iter().try_for_each(|work| self.must_do(file, work))?;
        }
        (0..self.volumes().end).try_for_each(|file| self.become_alike(file))?;
        self.settle_contents()
    }

    /// While a file is in use, who lags is told what it lacks.
    pub(super) fn become_alike(&mut self, file: usize) -> Result<(), Violation> {
        // Who is no member any more says so now and then, and needs a primary to hear it.
        let replication = &self.plan.shard.replication;
        let forgotten = replication.retired_every * 4 + self.plan.shard.file_idle * 2;
        let end = self.now + self.file_recovery_bound() + forgotten;
        self.notice_rot(self.files[file])?;
        while let Err(violation) = self.check_alike(file).and_then(|()| self.check_deleted(file)) {
            if self.now > end {
                return Err(violation);
            }
            let look = match self.is_volume(file) {
                true => Work::Tree(trees::ask(Ask::Statfs), None),
                false => Work::Operation(FileOp::Stat, None),
            };
            self.must_do(file, look)?;
            self.run_until(self.now + LOOK_AGAIN)?;
        }
        Ok(())
    }

    pub(super) fn must_do(&mut self, file: usize, work: Work) -> Result<(), Violation> {
        let cell = Some(self.files[file]);
        let bound = self.file_recovery_bound();
        let id = self.checkers.promptness.expect(self.now, Expected::FileService, cell, bound);
        self.awaited_files.insert((0, 0), id);
        self.work(0, 0, (file, work))?;
        self.await_all()
    }

    /// All members that are left have the same, and it is what the entries make.
    pub(super) fn check_alike(&self, file: usize) -> Result<(), Violation> {
        let object = self.files[file];
        let daemons = self.daemons.iter();
        let all = daemons.filter_map(|daemon| Some((daemon.id, daemon.shard.as_ref()?.file(object)?)));
        let all: Vec<_> = all.collect();
        let home = self.plan.shard.map.members(object);
        let is_lost = |node: NodeId| self.is_lost(node.0 as usize);
        let same = |node: NodeId, here: &File, made: &File| {
            here == made
                || self.is_real() && has_same_content(here, made, |stored| self.read_all(node, stored))
        };
        replicas::check(self.now, object, &all, (&home, is_lost, &same), &self.checkers.entries)
    }

    /// The end: what users were told about files must have an order.
    pub(super) fn judge_histories(&mut self) {
        let Checkers { histories, trees, entries, .. } = &self.checkers;
        let of_files = histories.judge(self.now, entries);
        match of_files.and_then(|of_files| Ok(of_files.and(trees.judge(self.now, entries)?))) {
            Ok(judgement) => self.summary.judgement = judgement,
            Err(violation) => return self.report(violation),
        }
        let content = |object, at| {
            let file = self.files.iter().position(|file| *file == object).unwrap_or_default();
            self.shape(file).content(&self.checkers.entries.replay(object, at))
        };
        match self.checkers.contents.judge(self.now, &self.checkers.entries, &content) {
            Ok(counts) => self.summary.lends.judged = counts,
            Err(violation) => self.report(violation),
        }
    }
}
