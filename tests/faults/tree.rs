//! A directory with a few names, as a single copy.

use std::collections::BTreeMap;

use sim::check::Specification;

/// What can be done in it. Names are letters, and inodes numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameOp {
    Create(char),
    Unlink(char),
    /// Whatever has the other name loses it.
    Rename(char, char),
    Look(char),
    List,
}

/// What comes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameOutcome {
    Done,
    /// What was created or looked for is this.
    Is(u64),
    Exists,
    Absent,
    Names(String),
}

/// One directory.
#[derive(Debug)]
pub(crate) struct Names;

impl Specification for Names {
    /// An inode that nobody was told of is 0.
    type State = BTreeMap<char, u64>;
    type Op = NameOp;
    type Outcome = NameOutcome;

    fn start(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, op: &NameOp, outcome: Option<&NameOutcome>) -> Option<Self::State> {
        let mut after = state.clone();
        let has = |name: &char| state.contains_key(name);
        let is_right = match (op, outcome) {
            (NameOp::Create(name), Some(NameOutcome::Is(inode))) => after.insert(*name, *inode).is_none(),
            (NameOp::Create(name), Some(NameOutcome::Exists)) => has(name),
            (NameOp::Create(name), None) => {
                after.entry(*name).or_insert(0);
                true
            }
            (NameOp::Unlink(name), Some(NameOutcome::Done)) => after.remove(name).is_some(),
            (NameOp::Rename(from, to), Some(NameOutcome::Done)) => after.remove(from).is_some_and(|inode| {
                after.insert(*to, inode);
                true
            }),
            (NameOp::Unlink(name) | NameOp::Rename(name, _), Some(NameOutcome::Absent)) => !has(name),
            (NameOp::Unlink(name), None) => {
                after.remove(name);
                true
            }
            (NameOp::Rename(from, to), None) => {
                if let Some(inode) = after.remove(from) {
                    after.insert(*to, inode);
                }
                true
            }
            (NameOp::Look(name), Some(NameOutcome::Absent)) => !has(name),
            (NameOp::Look(name), Some(NameOutcome::Is(found))) => {
                state.get(name).is_some_and(|inode| *inode == 0 || inode == found)
            }
            (NameOp::List, Some(NameOutcome::Names(names))) => state.keys().copied().eq(names.chars()),
            (NameOp::Look(_) | NameOp::List, None) => true,
            _ => false,
        };
        is_right.then_some(after)
    }

    fn describe(&self, op: &NameOp, outcome: Option<&NameOutcome>) -> String {
        outcome.map_or_else(|| format!("{op:?}"), |outcome| format!("{op:?} = {outcome:?}"))
    }

    fn is_query(&self, op: &NameOp) -> bool {
        matches!(op, NameOp::Look(_) | NameOp::List)
    }
}
