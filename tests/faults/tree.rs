//! Two directories with a few names, as a single copy.

use std::collections::BTreeMap;

use sim::check::Specification;

/// A directory, and a letter.
pub(crate) type Name = (usize, char);

/// What can be done. Inodes are numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameOp {
    Create(Name),
    Unlink(Name),
    /// Whatever has the other name loses it.
    Rename(Name, Name),
    Look(Name),
    List(usize),
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
    /// There was no space, and nothing has changed.
    NoSpace,
}

/// The directories.
#[derive(Debug)]
pub(crate) struct Names;

impl NameOp {
    /// What it depends on or changes: a name, or all of a directory.
    fn touches(&self) -> [Option<(usize, Option<char>)>; 2] {
        let whole = |(dir, letter): Name| Some((dir, Some(letter)));
        match *self {
            Self::Create(name) | Self::Unlink(name) | Self::Look(name) => [whole(name), None],
            Self::Rename(from, to) => [whole(from), whole(to)],
            Self::List(dir) => [Some((dir, None)), None],
        }
    }
}

impl Specification for Names {
    /// An inode that nobody was told of is 0.
    type State = BTreeMap<Name, u64>;
    type Op = NameOp;
    type Outcome = NameOutcome;

    fn start(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, op: &NameOp, outcome: Option<&NameOutcome>) -> Option<Self::State> {
        let mut after = state.clone();
        let has = |name: &Name| state.contains_key(name);
        let is_right = match (op, outcome) {
            (op, Some(NameOutcome::NoSpace)) => !self.is_query(op),
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
            (NameOp::List(dir), Some(NameOutcome::Names(names))) => {
                let there = state.keys().filter(|(place, _)| place == dir).map(|(_, letter)| *letter);
                there.eq(names.chars())
            }
            (NameOp::Look(_) | NameOp::List(_), None) => true,
            _ => false,
        };
        is_right.then_some(after)
    }

    fn describe(&self, op: &NameOp, outcome: Option<&NameOutcome>) -> String {
        outcome.map_or_else(|| format!("{op:?}"), |outcome| format!("{op:?} = {outcome:?}"))
    }

    fn is_query(&self, op: &NameOp) -> bool {
        matches!(op, NameOp::Look(_) | NameOp::List(_))
    }

    fn may_matter(&self, one: &NameOp, other: &NameOp) -> bool {
        let (ours, theirs) = (one.touches(), other.touches());
        ours.iter().flatten().any(|(dir, letter)| {
            theirs.iter().flatten().any(|(place, other)| {
                dir == place && (letter.is_none() || other.is_none() || letter == other)
            })
        })
    }
}
