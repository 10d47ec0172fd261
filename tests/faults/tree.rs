//! Two directories with a few names, as a single copy.

use std::collections::BTreeMap;

use sim::check::Specification;

/// A directory, and a letter.
pub(crate) type Name = (usize, char);

/// What can be done. What is made has a number that nothing else has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameOp {
    Create(Name, u64),
    MakeDir(Name, u64),
    /// A file gets the other name, too, if nothing has it.
    Link(Name, Name),
    Unlink(Name),
    RemoveDir(Name),
    /// Whatever has the other name loses it. Nothing happens if both are of the same file.
    Rename(Name, Name),
    /// Each gets the name of the other.
    Exchange(Name, Name),
    Look(Name),
    List(usize),
}

/// What comes of it. Inodes are numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameOutcome {
    Done,
    /// The file that was created or looked for is this.
    Is(u64),
    /// A directory is there: this.
    Directory(u64),
    Exists,
    Absent,
    IsDirectory,
    NotDirectory,
    Names(String),
    /// There was no space, and nothing has changed.
    NoSpace,
}

/// What has a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    made: u64,
    /// 0 if nobody was told.
    inode: u64,
    is_directory: bool,
}

/// The directories.
#[derive(Debug)]
pub(crate) struct Names;

type State = BTreeMap<Name, Node>;

impl NameOp {
    /// What it depends on or changes: a name, or all of a directory.
    fn touches(&self) -> [Option<(usize, Option<char>)>; 2] {
        let whole = |(dir, letter): Name| Some((dir, Some(letter)));
        match *self {
            Self::Create(name, _)
            | Self::MakeDir(name, _)
            | Self::Unlink(name)
            | Self::RemoveDir(name)
            | Self::Look(name) => [whole(name), None],
            Self::Link(from, to) | Self::Rename(from, to) | Self::Exchange(from, to) => {
                [whole(from), whole(to)]
            }
            Self::List(dir) => [Some((dir, None)), None],
        }
    }
}

impl Specification for Names {
    type State = State;
    type Op = NameOp;
    type Outcome = NameOutcome;

    fn start(&self) -> State {
        BTreeMap::new()
    }

    fn step(&self, state: &State, op: &NameOp, outcome: Option<&NameOutcome>) -> Option<State> {
        if outcome == Some(&NameOutcome::NoSpace) {
            return (!self.is_query(op)).then(|| state.clone());
        }
        let mut after = state.clone();
        let expected = run(&mut after, op);
        if let (NameOp::Create(name, _), Some(NameOutcome::Is(inode)), NameOutcome::Is(_)) =
            (op, outcome, &expected)
        {
            after.get_mut(name)?.inode = *inode;
        }
        outcome.is_none_or(|told| fits(&expected, told)).then_some(after)
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

/// Does it. Returns what comes of it, as far as that is known.
fn run(state: &mut State, op: &NameOp) -> NameOutcome {
    let there = |name: &Name| state.get(name).copied();
    match op {
        NameOp::Create(name, made) | NameOp::MakeDir(name, made) => {
            if there(name).is_some() {
                return NameOutcome::Exists;
            }
            let is_directory = matches!(op, NameOp::MakeDir(..));
            state.insert(*name, Node { made: *made, inode: 0, is_directory });
            if is_directory { NameOutcome::Done } else { NameOutcome::Is(0) }
        }
        NameOp::Link(from, to) => match (there(from), there(to)) {
            (None, _) => NameOutcome::Absent,
            (Some(_), Some(_)) => NameOutcome::Exists,
            (Some(node), None) => put(state, [(*to, node)]),
        },
        NameOp::Unlink(name) | NameOp::RemoveDir(name) => {
            let wants_directory = matches!(op, NameOp::RemoveDir(_));
            match there(name) {
                None => NameOutcome::Absent,
                Some(node) if node.is_directory == wants_directory => {
                    state.remove(name);
                    NameOutcome::Done
                }
                Some(_) if wants_directory => NameOutcome::NotDirectory,
                Some(_) => NameOutcome::IsDirectory,
            }
        }
        NameOp::Rename(from, to) => match (there(from), there(to)) {
            (None, _) => NameOutcome::Absent,
            (Some(_), Some(other)) if other.is_directory => NameOutcome::IsDirectory,
            (Some(node), Some(other)) if node.made == other.made => NameOutcome::Done,
            (Some(node), _) => {
                state.remove(from);
                put(state, [(*to, node)])
            }
        },
        NameOp::Exchange(one, other) => match (there(one), there(other)) {
            (Some(first), Some(second)) => put(state, [(*one, second), (*other, first)]),
            _ => NameOutcome::Absent,
        },
        NameOp::Look(name) => match there(name) {
            None => NameOutcome::Absent,
            Some(Node { inode, is_directory: true, .. }) => NameOutcome::Directory(inode),
            Some(Node { inode, .. }) => NameOutcome::Is(inode),
        },
        NameOp::List(dir) => {
            let letters = state.keys().filter(|(place, _)| place == dir).map(|(_, letter)| letter);
            NameOutcome::Names(letters.collect())
        }
    }
}

fn put<const N: usize>(state: &mut State, nodes: [(Name, Node); N]) -> NameOutcome {
    state.extend(nodes);
    NameOutcome::Done
}

/// Whether this can have been told. What nobody was told of may be any.
fn fits(expected: &NameOutcome, told: &NameOutcome) -> bool {
    match (expected, told) {
        (NameOutcome::Is(0), NameOutcome::Is(_)) | (NameOutcome::Directory(0), NameOutcome::Directory(_)) => {
            true
        }
        _ => expected == told,
    }
}
