//! A volume as its users see it: a tree that is planted, changed, looked at, removed and begun anew.
//!
//! What a tree does is decided by `namespace`, which is held against a model of its own; on a table of its own, without
//! a replica, a store or a transfer. What an entry adds to a wish is checked before it is believed.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base::{ClientId, Members, ObjectId, WallTime};
use namespace::{
    Answer, Ask, Attributes, Born, Change as TreeChange, Expect, InodeId, Kind, LentTo, Lock, Make, Memory,
    Op, Owner, Query, RenameHow, Root, Tree, Who,
};
use node::file::{Change, FileError, Op as Entry};
use node::{ClusterMap, file_object};
use replication::{Position, Request};

use super::Specification;

/// Whose rights a lend is not to spare.
const NOBODY: u32 = 65_534;

/// What a volume is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Volume {
    /// Nobody has made a tree there.
    #[default]
    Bare,
    /// This.
    Tree(Tree<Memory>),
    /// It was removed, and not begun anew.
    Removed,
}

/// What can be done to a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VolumeOp {
    /// Makes the tree.
    Plant(Root),
    /// Changes it.
    Change(Arc<Op>),
    /// Asks it something.
    Ask(Arc<Query>),
    /// Takes it away, if nothing is in it.
    Remove,
    /// Begins it anew, without a tree, if it was removed.
    Begin,
    /// What found no space: nothing changes.
    NoSpace,
    /// Does nothing, and can always be done.
    Nothing,
}

/// Something to do, and which entry does it, once that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// What.
    pub op: VolumeOp,
    /// Where the entry stands, and of when it is.
    pub entry: Option<(Born, WallTime)>,
}

/// What can come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// It is done.
    Done,
    /// The tree was changed.
    Changed(Box<namespace::Done>),
    /// The tree says this.
    Answer(Box<Answer>),
}

/// Volumes in a cluster with this map.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    /// It says where the files that a tree creates are replicated.
    pub map: Arc<ClusterMap>,
}

impl From<VolumeOp> for Placed {
    fn from(op: VolumeOp) -> Self {
        Self { op, entry: None }
    }
}

/// Never searched for: equal trees need only be equal.
impl Hash for Volume {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        std::mem::discriminant(self).hash(hasher);
    }
}

impl Specification for VolumeModel {
    type State = Volume;
    type Op = Placed;
    type Outcome = Result<Told, FileError>;

    fn start(&self) -> Volume {
        Volume::default()
    }

    fn step(&self, before: &Volume, op: &Placed, outcome: Option<&Self::Outcome>) -> Option<Volume> {
        let mut after = before.clone();
        let expected = after.run(op);
        let is_right = op.op == VolumeOp::Nothing
            || outcome.is_none_or(|outcome| *outcome == expected || is_vague(&op.op, outcome, &expected));
        is_right.then_some(after)
    }

    fn describe(&self, Placed { op, .. }: &Placed, outcome: Option<&Self::Outcome>) -> String {
        let what = match op {
            VolumeOp::Change(op) => format!("{:?} as {:?}", op.change, op.who),
            VolumeOp::Ask(query) => format!("{:?} as {:?}", query.ask, query.who),
            other => format!("{other:?}"),
        };
        match outcome {
            None => what,
            Some(Ok(told)) => format!("{what}: {told:?}"),
            Some(Err(error)) => format!("{what}: {error}"),
        }
    }

    fn is_query(&self, Placed { op, .. }: &Placed) -> bool {
        matches!(op, VolumeOp::Ask(_) | VolumeOp::Nothing)
    }
}

impl Volume {
    /// Does something, and says what comes of it.
    pub fn run(&mut self, Placed { op, entry }: &Placed) -> Result<Told, FileError> {
        let (at, time) = entry.unwrap_or_default();
        match (op, &mut *self) {
            (VolumeOp::Nothing, _) => {}
            (VolumeOp::Begin, Self::Removed) => *self = Self::Bare,
            (_, Self::Removed) => return Err(FileError::Removed),
            (VolumeOp::Begin, _) => {}
            (VolumeOp::NoSpace, _) => return Err(FileError::NoSpace),
            (VolumeOp::Plant(root), Self::Bare) => {
                let mut tree = Tree::bare(Memory::default());
                tree.plant(at, &Root { time, ..root.clone() });
                *self = Self::Tree(tree);
            }
            (VolumeOp::Plant(_), Self::Tree(_)) => return Err(FileError::IsTree),
            (VolumeOp::Remove, Self::Tree(tree)) if !tree.is_empty() => return Err(FileError::NotEmpty),
            (VolumeOp::Remove, _) => *self = Self::Removed,
            (VolumeOp::Change(_) | VolumeOp::Ask(_), Self::Bare) => return Err(FileError::NoTree),
            (VolumeOp::Change(op), Self::Tree(tree)) => {
                return Ok(Told::Changed(Box::new(tree.apply(at, op)?)));
            }
            (VolumeOp::Ask(query), Self::Tree(tree)) => {
                return Ok(Told::Answer(Box::new(tree.answer(query)?)));
            }
        }
        Ok(Told::Done)
    }
}

/// Whether an answer is as much as a client is told without asking for a directory itself: whoever has that lent may know of more entries
/// in it. To others such an answer says whose it is, and nothing else of it counts.
fn is_vague(op: &VolumeOp, told: &Result<Told, FileError>, expected: &Result<Told, FileError>) -> bool {
    let (VolumeOp::Ask(query), Ok(Told::Answer(told)), Ok(Told::Answer(expected))) = (op, told, expected)
    else {
        return false;
    };
    if !matches!(query.ask, Ask::Lookup { .. } | Ask::List { .. }) {
        return false;
    }
    let (mut told, mut expected) = (told.clone(), expected.clone());
    [&mut told, &mut expected].into_iter().for_each(|answer| blur(answer));
    told == expected
}

/// Takes out what an answer says of directories that are lent, where they are not what was asked for.
fn blur(answer: &mut Answer) {
    let blur = |attributes: &mut Attributes| {
        if attributes.kind == Kind::Directory && attributes.lent.is_some() {
            (attributes.size, attributes.mtime, attributes.ctime) = (0, WallTime::ZERO, WallTime::ZERO);
        }
    };
    match answer {
        Answer::Attributes(attributes) => blur(attributes),
        Answer::Page(page) => {
            page.entries.iter_mut().filter_map(|listed| listed.attributes.as_mut()).for_each(blur);
        }
        _ => {}
    }
}

/// Whether a daemon makes such a change of itself.
const fn is_of_service(change: &TreeChange) -> bool {
    matches!(
        change,
        TreeChange::Deleted { .. }
            | TreeChange::Lend { .. }
            | TreeChange::GiveBack { .. }
            | TreeChange::Release { .. }
            | TreeChange::Welcome { opens: false, .. }
            | TreeChange::Expire { .. }
            | TreeChange::Forget { .. }
            | TreeChange::Settle
    )
}

/// Whether it lends a file: then whoever asks, the file is no longer to be run as somebody else.
const fn lends(change: &TreeChange) -> bool {
    matches!(change, TreeChange::Lend { .. })
}

fn nobody() -> Who {
    Who::new(NOBODY, NOBODY, &[]).expect("no groups are not too many")
}

impl VolumeModel {
    /// What the entry of a user's request does, if that is what the user wanted: the entry may add only what no user says.
    pub fn entry_of(
        &self,
        wish: &VolumeOp,
        (object, at): (ObjectId, Position),
        (request, entry): (Request, &Entry),
    ) -> Result<Placed, String> {
        let born = Born { epoch: at.epoch, seq: at.seq };
        let op = match (wish, &entry.change) {
            (_, Change::NoSpace) => VolumeOp::NoSpace,
            (VolumeOp::Plant(wanted), Change::Plant(root)) if wanted == root => wish.clone(),
            (VolumeOp::Remove, Change::Remove) | (VolumeOp::Begin, Change::Begin) => wish.clone(),
            (VolumeOp::Change(wanted), Change::Tree(op)) => {
                let wanted = Op {
                    time: entry.time,
                    client: request.client,
                    change: self.as_entry((&wanted.change, &op.change), (object, born), request.client),
                    who: if lends(&wanted.change) { nobody() } else { wanted.who.clone() },
                };
                if wanted != **op {
                    return Err(format!("an entry is {op:?}, where {wanted:?} was wanted"));
                }
                VolumeOp::Change(Arc::clone(op))
            }
            (_, change) => return Err(format!("an entry is {change:?}, where {wish:?} was wanted")),
        };
        Ok(Placed { op, entry: Some((born, entry.time)) })
    }

    /// What an entry that no user asked for does: a daemon may delete what is doomed, lend size and times, and take them back, put
    /// clients on record that have something in a cache, and see to what clients hold and to their end, and nothing else.
    pub fn entry_of_daemon(
        &self,
        at: Position,
        (request, entry): (Request, &Entry),
    ) -> Result<Placed, String> {
        let born = Born { epoch: at.epoch, seq: at.seq };
        match &entry.change {
            Change::Tree(op)
                if is_of_service(&op.change)
                    && request.client.certificate == 0
                    && (op.client, op.time) == (request.client, entry.time) =>
            {
                Ok(Placed { op: VolumeOp::Change(Arc::clone(op)), entry: Some((born, entry.time)) })
            }
            change => Err(format!("{request:?} at {at:?} did {change:?}, which nobody has asked for")),
        }
    }

    /// A change as its entry has it. The map says where a file is replicated, and the primary who may have open what loses its name,
    /// and what that is. Whether it is right about that, others check.
    fn as_entry(
        &self,
        (change, entry): (&TreeChange, &TreeChange),
        (volume, born): (ObjectId, Born),
        asked: ClientId,
    ) -> TreeChange {
        let mut change = change.clone();
        match (&mut change, entry) {
            (TreeChange::Create { make: Make::File { replicas }, lends, .. }, entry) => {
                // A client that does not take grants is lent nothing.
                *lends &= matches!(entry, TreeChange::Create { lends: true, .. });
                *replicas = self.members(file_object(volume, InodeId::of(born)));
            }
            (TreeChange::Create { lends, .. }, entry) => {
                *lends &= matches!(entry, TreeChange::Create { lends: true, .. });
            }
            (TreeChange::Enter { under, number, replicas, .. }, _) => {
                if let Some(inode) = InodeId::under(*under, *number) {
                    *replicas = self.members(file_object(volume, inode));
                }
            }
            (
                TreeChange::Unlink { site, holders, .. },
                TreeChange::Unlink { site: named, holders: holding, .. },
            )
            | (
                TreeChange::Rename { to: site, how: RenameHow::Replace, holders, .. },
                TreeChange::Rename { to: named, holders: holding, .. },
            ) => {
                holders.clone_from(holding);
                if site.expect == Expect::Any {
                    site.expect = named.expect;
                }
            }
            // To whom a file is lent its primary says, and what comes back the content.
            (TreeChange::Lend { to, .. }, TreeChange::Lend { to: named, .. })
                if [LentTo::Content, LentTo::Client(asked)].contains(named) =>
            {
                *to = *named;
            }
            (
                TreeChange::Return { inode, generation, .. },
                TreeChange::GiveBack { inode: of, generation: by, .. },
            ) if (&*inode, &*generation) == (of, by) => change = entry.clone(),
            (TreeChange::RemoveDirectory { holders, .. } | TreeChange::Rename { holders, .. }, _) => {
                holders.clear();
            }
            (
                TreeChange::Lock { lock: Lock { owner: Owner { client, .. }, .. }, .. }
                | TreeChange::Unlock { owner: Owner { client, .. }, .. }
                | TreeChange::Welcome { client, .. }
                | TreeChange::Expire { client },
                _,
            ) => *client = asked,
            _ => {}
        }
        change
    }

    fn members(&self, object: ObjectId) -> Members {
        self.map.view(object).members.clone()
    }
}
