//! Has the tree and the model take in the same history, and compares them.

use std::fmt::Debug;
use std::mem::discriminant;

use namespace::{Answer, Ask, Born, Done, InodeId, Key, Memory, NameError, Op, Query, Tree, Who};

use crate::dice::{Dice, Throw, born};
use crate::locks::{is_in_the_way, whole};
use crate::state::Model;
use crate::tally::Tally;

/// So many steps are between two comparisons of everything.
const OBSERVED_EVERY: u64 = 8;
/// So many are between two replicas made of parts.
const REBUILT_EVERY: u64 = 32;

/// Of each operation so much is told.
const TRACED_MAX: usize = 500;

/// Two replicas and the model.
pub(crate) struct Run {
    pub(crate) model: Model,
    tree: Tree<Memory>,
    twin: Tree<Memory>,
}

/// Runs a history. What differs is told with the operations that led there.
pub(crate) fn run(history: &[Throw], tally: &mut Tally) -> Result<(), String> {
    let mut run = Run::new();
    let mut trace = Vec::new();
    for (now, throw) in (0..).zip(history) {
        let mut dice = Dice::new(throw, &run.model, now);
        let query = dice.query();
        let op = dice.op();
        // Long values would hide the rest.
        trace.push(format!("{:?} {op:?}", born(now)).chars().take(TRACED_MAX).collect::<String>());
        let step = run.step(now, &op, &query, tally);
        step.map_err(|difference| format!("{}\n{difference}", trace.join("\n")))?;
    }
    Ok(())
}

impl Run {
    pub(crate) fn new() -> Self {
        Self { model: Model::new(), tree: Tree::default(), twin: Tree::default() }
    }

    /// Takes in an operation, asks something before and after it, and everything now and then.
    pub(crate) fn step(&mut self, now: u64, op: &Op, query: &Query, tally: &mut Tally) -> Result<(), String> {
        let at = born(now);
        let (before, parts) = (self.tree.answer(query), self.versions());
        let overlaps = self.tree.overlaps(op, query);
        let done = self.tree.apply(at, op);
        same("outcomes of two replicas", &done, &self.twin.apply(at, op))?;
        let expected = self.model.apply(at, op);
        same_outcome(&expected, &done)?;
        if let Ok(Done::Locked { waits: Some(ticket), granted }) = &done
            && granted.all.iter().any(|grant| grant.ticket == *ticket)
        {
            return Err(format!("told to wait, and granted at once: {done:?}"));
        }
        tally.count(op, &done);
        if done.is_err() {
            same("what is there after a refusal", &parts, &self.versions())?;
        }
        if before != self.tree.answer(query) && !overlaps {
            return Err(format!("the operation changes the answer to {query:?}, and does not overlap it"));
        }
        self.ask(query)?;
        if now % OBSERVED_EVERY == OBSERVED_EVERY - 1 {
            self.observe()?;
        }
        if now % REBUILT_EVERY == REBUILT_EVERY - 1 {
            self.rebuild()?;
        }
        Ok(())
    }

    fn versions(&self) -> Vec<(Key, Born)> {
        self.tree.versions(None, usize::MAX)
    }

    /// Compares all that can be asked.
    fn observe(&self) -> Result<(), String> {
        same("versions of two replicas", &self.versions(), &self.twin.versions(None, usize::MAX))?;
        let root = |ask| Query { who: Who::root(), ask };
        let whole = [
            Ask::Statfs,
            Ask::Orphans { after: None },
            Ask::Doomed { after: None },
            Ask::Clients { after: None },
        ];
        for ask in whole {
            self.ask(&root(ask))?;
        }
        for &client in self.model.clients.keys() {
            self.ask(&root(Ask::Holds { client, after: None }))?;
        }
        let inodes = self.tree.versions(None, usize::MAX).into_iter().filter_map(|(key, _)| match key {
            Key::Inode(inode) => Some(inode),
            _ => None,
        });
        let inodes: Vec<InodeId> = inodes.collect();
        same("inodes", &self.model.nodes.keys().copied().collect::<Vec<_>>(), &inodes)?;
        inodes.into_iter().try_for_each(|inode| self.observe_inode(inode))
    }

    fn observe_inode(&self, inode: InodeId) -> Result<(), String> {
        let root = |ask| Query { who: Who::root(), ask };
        let list = Ask::List { dir: inode, after: None, entries_max: 100, with_attributes: true };
        let all = [
            Ask::Attributes { inode },
            list,
            Ask::Readlink { inode },
            Ask::ListXattrs { inode },
            Ask::Locks { inode },
        ];
        for ask in all {
            self.ask(&root(ask))?;
        }
        for name in self.model.list_xattrs(inode, &Who::root()).unwrap_or_default() {
            self.ask(&root(Ask::GetXattr { inode, name }))?;
        }
        Ok(())
    }

    fn ask(&self, query: &Query) -> Result<(), String> {
        let (expected, answer) = (self.model.answer(query), self.tree.answer(query));
        let is_same = match (&expected, &answer) {
            (Ok(Answer::InTheWay(Some(_))), Ok(Answer::InTheWay(Some(found)))) => {
                let Ask::TestLock { inode, lock } = query.ask else {
                    unreachable!("nothing else is answered so")
                };
                let is_held = self.model.nodes[&inode].held().contains(found);
                is_held && whole(lock).is_ok_and(|lock| is_in_the_way(found, &lock))
            }
            _ => is_alike(&expected, &answer),
        };
        if is_same {
            return Ok(());
        }
        Err(format!("{query:?}\n  model: {expected:?}\n  tree:  {answer:?}"))
    }

    /// Makes a third replica of the parts of the first, in place of the second.
    fn rebuild(&mut self) -> Result<(), String> {
        let mut third = Tree::default();
        for (key, at) in self.versions().into_iter().rev() {
            let part = self.tree.part(&key).expect("it was listed");
            third.place(key, Some((at, part)));
        }
        same("replicas", &self.tree, &third)?;
        self.twin = third;
        Ok(())
    }
}

/// The same outcome, or the same kind of refusal.
fn is_alike<T: PartialEq>(one: &Result<T, NameError>, other: &Result<T, NameError>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => discriminant(one) == discriminant(other),
        _ => false,
    }
}

fn same_outcome(expected: &Result<Done, NameError>, done: &Result<Done, NameError>) -> Result<(), String> {
    if is_alike(expected, done) {
        return Ok(());
    }
    Err(format!("outcomes differ\n  model: {expected:?}\n  tree:  {done:?}"))
}

fn same<T: PartialEq + Debug>(what: &str, one: &T, other: &T) -> Result<(), String> {
    if one == other {
        return Ok(());
    }
    Err(format!("{what} differ\n  {one:?}\n  {other:?}"))
}
