//! What users do to a volume: few names in few directories, so that they meet.
//!
//! A client's process knows the inodes that it was told of lately, also of volumes that are gone since.

use std::sync::Arc;

use base::{ClientId, Random, WallTime};
use bytes::Bytes;
use namespace::{
    Answer, Ask, Attributes, Change, Done, InodeId, Kind, Lock, LockKind, LockMode, Make, Name, NameError,
    Op, Owner, Query, RenameHow, Rights, Root, SetAttributes, SetTime, Site, Stretch, Target, Ticket,
    VolumeName, Who, XattrHow, XattrName,
};
use node::file::FileError;

use crate::check::volume::{Told, VolumeOp};

/// Users beside root, both of one group.
const USERS: [u32; 2] = [1_000, 1_001];
const GROUP: u32 = 100;
const MODES: [u16; 5] = [0o777, 0o755, 0o700, 0o644, 0o1777];
const XATTRS: [&[u8]; 4] = [b"user.a", b"user.b", b"trusted.c", b"security.capability"];
/// So many directories, and so many other inodes, are remembered, so many names that are to be removed, and so many questions.
const DIRS_MAX: usize = 4;
const OTHERS_MAX: usize = 8;
const SITES_MAX: usize = 32;
const ASKED_MAX: usize = 4;
/// So many names there are for directories that are lent.
const DIR_NAMES: u64 = 12;
/// No page that is asked for has more names.
const PAGE_MAX: u64 = 5;
/// A volume that is full soon.
const INODES_FEW: u64 = 24;

/// Whose request it is, the primary says.
const NOBODY: ClientId = ClientId { certificate: 0, program: 0 };

/// How a volume is used, as a seed decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeHabits {
    /// How many names there are.
    pub names: u8,
    /// How much of what users want is a change, in percent.
    pub changes_percent: u64,
    /// How many of the questions are ones that it has asked before, in percent.
    pub again_percent: u64,
    /// How many of the operations begin to take everything away, until the volume can be removed, in thousand.
    pub clear_permille: u64,
}

/// What a client's process knows of a volume.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    dirs: Vec<InodeId>,
    others: Vec<InodeId>,
    /// Names that it was told of, the last one last.
    sites: Vec<(Site, Kind)>,
    /// A directory that it was told is not empty.
    full: Option<InodeId>,
    /// The request for a lock that it made last, if that had to wait.
    waits: Option<(InodeId, Lock, Ticket)>,
    /// What it has asked lately.
    asked: Vec<Arc<Query>>,
    /// What it was told last that the volume is.
    pub(super) state: State,
}

/// What a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    #[default]
    Bare,
    Planted,
    Removed,
}

impl Known {
    /// What was told of the volume.
    pub(super) fn learn(&mut self, op: &VolumeOp, told: &Result<Told, FileError>) {
        self.state = match (op, told) {
            (VolumeOp::Remove, Ok(_)) | (_, Err(FileError::Removed)) => State::Removed,
            (VolumeOp::Begin, Ok(_)) | (_, Err(FileError::NoTree)) => State::Bare,
            (_, Err(FileError::NoSpace)) | (VolumeOp::Nothing, _) => self.state,
            _ => State::Planted,
        };
        if let Err(FileError::Tree(NameError::NotEmpty { dir })) = told {
            self.full = Some(*dir);
        }
        if let VolumeOp::Change(op) = op {
            self.forget_name(&op.change, told);
        }
        match told {
            Ok(Told::Changed(done)) => self.learn_done(op, done),
            Ok(Told::Answer(answer)) => match &**answer {
                Answer::Attributes(attributes) => self.learn_inode(attributes.inode, attributes.kind),
                Answer::Page(page) => {
                    let VolumeOp::Ask(query) = op else { return };
                    let Ask::List { dir, .. } = query.ask else { return };
                    for listed in &page.entries {
                        self.learn_inode(listed.inode, listed.kind);
                        self.learn_site(Site::new(dir, listed.name.clone()), listed.kind);
                    }
                }
                _ => {}
            },
            Ok(Told::Done) | Err(_) => {}
        }
    }

    /// What was removed, or was not there, or has another name, is no name any more.
    fn forget_name(&mut self, change: &Change, told: &Result<Told, FileError>) {
        let is_gone = matches!(told, Ok(_) | Err(FileError::Tree(NameError::NoEntry { .. })));
        let (Change::Unlink { site, .. }
        | Change::RemoveDirectory { site, .. }
        | Change::Rename { from: site, .. }) = change
        else {
            return;
        };
        if is_gone {
            self.sites.retain(|(known, _)| (known.dir, &known.name) != (site.dir, &site.name));
        }
    }

    fn learn_done(&mut self, op: &VolumeOp, done: &Done) {
        let VolumeOp::Change(op) = op else { return };
        if let (&Change::Lock { inode, lock, .. }, Done::Locked { waits: Some(ticket), .. }) =
            (&op.change, done)
        {
            self.waits = Some((inode, lock, *ticket));
        }
        if let (
            Change::Create { dir, name, .. } | Change::Enter { dir, name, .. },
            Done::Created { attributes, .. },
        ) = (&op.change, done)
        {
            let Attributes { inode, kind, .. } = *attributes;
            self.learn_inode(inode, kind);
            self.learn_site(Site::new(*dir, name.clone()), kind);
        }
    }

    fn learn_inode(&mut self, inode: InodeId, kind: Kind) {
        let (known, count) = match kind {
            Kind::Directory => (&mut self.dirs, DIRS_MAX),
            _ => (&mut self.others, OTHERS_MAX),
        };
        if !known.contains(&inode) && inode != InodeId::ROOT {
            known.push(inode);
            known.drain(..known.len().saturating_sub(count));
        }
    }

    fn learn_site(&mut self, site: Site, kind: Kind) {
        self.sites.retain(|(known, _)| *known != site);
        self.sites.push((site, kind));
        self.sites.drain(..self.sites.len().saturating_sub(SITES_MAX));
    }

    /// Something to do with a lock of what is open.
    pub(super) fn draw_lock(&self, open: &[InodeId], random: &mut Random) -> Option<VolumeOp> {
        let inode = *random.pick(open)?;
        let owner = Owner { client: NOBODY, number: random.below(2) };
        let kind = if random.chance(1, 3) { LockKind::Flock } else { LockKind::Fcntl };
        let mode = if random.chance(1, 2) { LockMode::Shared } else { LockMode::Exclusive };
        let first = random.below(8);
        let stretch = Stretch { first, last: first + random.below(8) };
        let lock = Lock { owner, kind, mode, stretch };
        let changed = |wanted| Some(change(&Who::root(), wanted));
        match (random.below(12), self.waits) {
            (0..6, _) => changed(Change::Lock { inode, lock, wait: random.chance(1, 3) }),
            (6..8, Some((inode, lock, ticket))) => Some(ask(Ask::Wish { inode, lock, ticket })),
            (8, Some((inode, _, ticket))) => changed(Change::Cancel { inode, ticket }),
            (9, _) => Some(ask(Ask::TestLock { inode, lock })),
            _ => changed(Change::Unlock { inode, owner, kind, stretch }),
        }
    }

    /// A file that is created, and lent to its client if that wants it.
    pub(super) fn draw_file(&self, habits: TreeHabits, lends: bool, random: &mut Random) -> VolumeOp {
        let (dir, name) = self.fresh_place(habits, random);
        let (make, mode, umask) = (Make::file(), MODES[0], 0);
        change(&Who::root(), Change::Create { dir, name, make, mode, umask, is_exclusive: true, lends })
    }

    /// Something that may be a file.
    pub(super) fn some_file(&self, random: &mut Random) -> Option<InodeId> {
        random.pick(&self.others).copied()
    }

    /// Something to take away that it was told of: what is in directories more often than those.
    pub(super) fn draw_removal(&self, random: &mut Random) -> Option<VolumeOp> {
        let in_dirs: Vec<&(Site, Kind)> =
            self.sites.iter().filter(|(site, _)| site.dir != InodeId::ROOT).collect();
        let (site, kind) = match random.pick(&in_dirs) {
            Some(&known) if random.chance(3, 4) => known,
            _ => random.pick(&self.sites)?,
        };
        let (site, holders) = (site.clone(), Vec::new());
        Some(match kind {
            Kind::Directory => remove_dir(site),
            _ => change(&Who::root(), Change::Unlink { site, holders, removed: None }),
        })
    }

    /// Something to do. While the volume is to be removed, that is to take something away.
    pub(super) fn draw(&mut self, habits: TreeHabits, is_cleared: bool, random: &mut Random) -> VolumeOp {
        if self.state != State::Planted && random.chance(2, 3) {
            return if self.state == State::Removed { VolumeOp::Begin } else { plant(random) };
        }
        if is_cleared {
            return self.draw_clearing(random);
        }
        let who = match random.below(8) {
            0 => USERS[0],
            1 => USERS[1],
            _ => return self.draw_as(&Who::root(), habits, random),
        };
        let who = Who::new(who, GROUP, &[]).expect("no further groups are few");
        self.draw_as(&who, habits, random)
    }

    fn draw_as(&mut self, who: &Who, habits: TreeHabits, random: &mut Random) -> VolumeOp {
        if random.below(100) < habits.changes_percent {
            change(who, self.draw_change(habits, random))
        } else {
            VolumeOp::Ask(self.draw_query(who, habits, random))
        }
    }

    fn draw_query(&mut self, who: &Who, habits: TreeHabits, random: &mut Random) -> Arc<Query> {
        if habits.again_percent > 0
            && random.chance(habits.again_percent, 100)
            && let Some(asked) = random.pick(&self.asked)
        {
            return asked.clone();
        }
        let query = Arc::new(Query { who: who.clone(), ask: self.draw_question(habits, random) });
        self.asked.push(query.clone());
        self.asked.drain(..self.asked.len().saturating_sub(ASKED_MAX));
        query
    }

    fn draw_clearing(&mut self, random: &mut Random) -> VolumeOp {
        if random.chance(1, 6) {
            return VolumeOp::Remove;
        }
        let (holders, full) = (Vec::new(), self.full.take());
        match self.sites.pop().filter(|_| full.is_none()) {
            Some((site, Kind::Directory)) => change(&Who::root(), Change::RemoveDirectory { site, holders }),
            Some((site, _)) => change(&Who::root(), Change::Unlink { site, holders, removed: None }),
            None => {
                let dir = full.unwrap_or(InodeId::ROOT);
                let entries_max = u32::try_from(SITES_MAX).expect("they are few");
                ask(Ask::List { dir, after: None, entries_max, with_attributes: false })
            }
        }
    }

    fn draw_change(&self, habits: TreeHabits, random: &mut Random) -> Change {
        let holders = Vec::new();
        match random.below(73) {
            0..28 => self.draw_creation(habits, random),
            28..34 => {
                let (dir, name) = self.fresh_place(habits, random);
                Change::Link { inode: self.inode(random), dir, name }
            }
            34..50 => {
                let site = self.site(habits, random);
                let is_directory = self.sites.iter().any(|known| *known == (site.clone(), Kind::Directory));
                if is_directory != random.chance(1, 16) {
                    Change::RemoveDirectory { site, holders }
                } else {
                    Change::Unlink { site, holders, removed: None }
                }
            }
            50..62 => {
                let (from, mut to) = (self.site(habits, random), self.site(habits, random));
                if random.chance(1, 2) {
                    let (dir, name) = self.fresh_place(habits, random);
                    to = Site::new(dir, name);
                }
                if random.chance(1, 2) {
                    to.dir = from.dir;
                }
                let how = match random.below(5) {
                    0 => RenameHow::NoReplace,
                    1 => RenameHow::Exchange,
                    _ => RenameHow::Replace,
                };
                Change::Rename { from, to, how, holders }
            }
            62..67 => Change::SetAttributes { inode: self.inode(random), set: draw_attributes(random) },
            67..71 => {
                let value = Bytes::from(vec![b'v'; 1 + random.index(200)]);
                let how = [XattrHow::Any, XattrHow::Create, XattrHow::Replace][random.index(3)];
                Change::SetXattr { inode: self.inode(random), name: xattr(random), value, how }
            }
            71 => Change::RemoveXattr { inode: self.inode(random), name: xattr(random) },
            _ => {
                let inodes_max = if random.chance(1, 8) { INODES_FEW } else { u64::MAX };
                Change::Limit { inodes_max, bytes_max: u64::MAX }
            }
        }
    }

    fn draw_creation(&self, habits: TreeHabits, random: &mut Random) -> Change {
        let (dir, name) = self.fresh_place(habits, random);
        let make = match random.below(8) {
            0..5 => Make::file(),
            5..7 => Make::Directory,
            _ => Make::Symlink {
                target: Target::new(Bytes::copy_from_slice(name.as_bytes())).expect("a name is short"),
            },
        };
        let is_exclusive = make.kind() != Kind::File || random.chance(2, 3);
        let (mode, umask) = (MODES[random.index(MODES.len())], [0, 0o022][random.index(2)]);
        Change::Create { dir, name, make, mode, umask, is_exclusive, lends: false }
    }

    fn draw_question(&self, habits: TreeHabits, random: &mut Random) -> Ask {
        match random.below(27) {
            0..8 => {
                let (dir, name) = self.place(habits, random);
                Ask::Lookup { dir, name }
            }
            8..13 => Ask::Attributes { inode: self.inode(random) },
            13..20 => {
                let after = random.chance(1, 3).then(|| name(habits, random));
                let entries_max = u32::try_from(random.between(1, PAGE_MAX)).expect("it is small");
                Ask::List { dir: self.dir(random), after, entries_max, with_attributes: random.chance(1, 2) }
            }
            20 => Ask::GetXattr { inode: self.inode(random), name: xattr(random) },
            21 => Ask::ListXattrs { inode: self.inode(random) },
            22 => Ask::Readlink { inode: self.inode(random) },
            23 | 24 => {
                let rights = Rights { read: true, write: random.chance(1, 2), execute: false };
                Ask::Access { inode: self.inode(random), rights }
            }
            _ => Ask::Statfs,
        }
    }

    /// Some directory, the root more often than others.
    fn dir(&self, random: &mut Random) -> InodeId {
        let dir = random.pick(&self.dirs).copied().filter(|_| random.chance(3, 5));
        dir.unwrap_or(InodeId::ROOT)
    }

    fn inode(&self, random: &mut Random) -> InodeId {
        let other = random.pick(&self.others).copied().filter(|_| random.chance(3, 4));
        other.unwrap_or_else(|| self.dir(random))
    }

    /// A name that was not told of, if that is easily found.
    fn fresh_place(&self, habits: TreeHabits, random: &mut Random) -> (InodeId, Name) {
        let is_known = |(dir, name): &(InodeId, Name)| {
            self.sites.iter().any(|(site, _)| (site.dir, &site.name) == (*dir, name))
        };
        let mut place = self.place(habits, random);
        for _ in 0..4 {
            if !is_known(&place) {
                break;
            }
            place = self.place(habits, random);
        }
        place
    }

    fn place(&self, habits: TreeHabits, random: &mut Random) -> (InodeId, Name) {
        (self.dir(random), name(habits, random))
    }

    /// A name, and perhaps what it is taken to be: often one that it was told of.
    fn site(&self, habits: TreeHabits, random: &mut Random) -> Site {
        if let Some((known, _)) = random.pick(&self.sites)
            && random.chance(4, 5)
        {
            return known.clone();
        }
        let (dir, name) = self.place(habits, random);
        let site = Site::new(dir, name);
        match random.below(12) {
            0 => site.naming(self.inode(random)),
            1 => site.free(),
            _ => site,
        }
    }
}

/// Makes the tree of a volume.
pub(super) fn plant(random: &mut Random) -> VolumeOp {
    let name = VolumeName::parse("volume").expect("it is one");
    VolumeOp::Plant(Root { time: WallTime::ZERO, uid: 0, gid: GROUP, mode: MODES[random.index(2)], name })
}

/// Asks something on behalf of the service.
pub(super) fn ask(ask: Ask) -> VolumeOp {
    VolumeOp::Ask(Arc::new(Query { who: Who::root(), ask }))
}

/// Makes a directory in the root that nobody else makes.
pub(super) fn last_directory(number: u64) -> VolumeOp {
    let name = Name::new(format!("last {number}").as_bytes()).expect("it is short");
    let make = Make::Directory;
    let dir = InodeId::ROOT;
    change(
        &Who::root(),
        Change::Create { dir, name, make, mode: 0o755, umask: 0, is_exclusive: true, lends: false },
    )
}

/// Takes a directory away.
pub(super) fn remove_dir(site: Site) -> VolumeOp {
    change(&Who::root(), Change::RemoveDirectory { site, holders: Vec::new() })
}

/// A directory of the root that is made, and lent to its client.
pub(super) fn make_dir(random: &mut Random) -> VolumeOp {
    let letter = b'A' + u8::try_from(random.below(DIR_NAMES)).expect("names are few");
    let (dir, name) = (InodeId::ROOT, Name::new(&[letter]).expect("a letter is one"));
    let make = Make::Directory;
    let (mode, umask, is_exclusive, lends) = (MODES[random.index(2)], 0, true, true);
    change(&Who::root(), Change::Create { dir, name, make, mode, umask, is_exclusive, lends })
}

/// Puts the client on record that asks for it.
pub(super) fn come() -> VolumeOp {
    change(&Who::root(), Change::Welcome { client: NOBODY, opens: true })
}

/// Ends the client that asks for it.
pub(super) fn go() -> VolumeOp {
    change(&Who::root(), Change::Expire { client: NOBODY })
}

fn change(who: &Who, change: Change) -> VolumeOp {
    VolumeOp::Change(Arc::new(Op::wanted(who.clone(), change)))
}

pub(super) fn name(TreeHabits { names, .. }: TreeHabits, random: &mut Random) -> Name {
    let letter = b'a' + u8::try_from(random.below(names.into())).expect("names are few");
    Name::new(&[letter]).expect("a letter is one")
}

fn xattr(random: &mut Random) -> XattrName {
    XattrName::new(XATTRS[random.index(XATTRS.len())]).expect("it is one")
}

fn draw_attributes(random: &mut Random) -> SetAttributes {
    let nothing = SetAttributes::default();
    match random.below(5) {
        0 | 1 => SetAttributes { mode: Some(MODES[random.index(MODES.len())]), ..nothing },
        2 => SetAttributes { uid: Some(USERS[random.index(2)]), ..nothing },
        3 => SetAttributes { gid: Some(GROUP), atime: Some(SetTime::Now), ..nothing },
        _ => SetAttributes { mtime: Some(SetTime::To(WallTime::from_micros(random.below(99)))), ..nothing },
    }
}

/// Whether so much more may be in a volume, or less.
pub(super) fn limits(op: &VolumeOp) -> bool {
    matches!(op, VolumeOp::Change(op) if matches!(op.change, Change::Limit { .. }))
}

/// Which inode is to have another time of its last change.
pub(super) fn sets_time_of(op: &VolumeOp) -> Option<InodeId> {
    let VolumeOp::Change(op) = op else { return None };
    match &op.change {
        Change::SetAttributes { inode, set } if set.mtime.is_some() => Some(*inode),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::{Epoch, NodeId, Seq};
    use namespace::Born;

    use super::*;
    use crate::check::volume::{Placed, Volume};

    /// Two clients whose users share a volume: most of what they want is done, much is refused, and in the end they empty it.
    #[test]
    fn users_do_something_of_everything_and_can_empty_a_volume() {
        for names in [3, 6, 12] {
            let habits = TreeHabits { names, changes_percent: 73, again_percent: 0, clear_permille: 0 };
            let (mut volume, mut random) = (Volume::default(), Random::new(10));
            let mut clients = [Known::default(), Known::default()];
            let mut seq = 1;
            let mut done: BTreeMap<String, [u32; 2]> = BTreeMap::new();
            let mut act = |is_cleared: bool, volume: &mut Volume| {
                let known = &mut clients[random.index(2)];
                let op = known.draw(habits, is_cleared, &mut random);
                seq += 1;
                let at = Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) };
                let placed = Placed { op: op.clone(), entry: Some((at, WallTime::from_micros(seq))) };
                let told = volume.run(&placed);
                known.learn(&op, &told);
                (op, told)
            };
            for _ in 0..4_000 {
                let (op, told) = act(false, &mut volume);
                let what = match &op {
                    VolumeOp::Change(op) => format!("{:?}", op.change),
                    VolumeOp::Ask(query) => format!("{:?}", query.ask),
                    op => format!("{op:?}"),
                };
                let word = what.split([' ', '(']).next().unwrap_or_default().to_owned();
                done.entry(word).or_default()[usize::from(told.is_err())] += 1;
            }
            let [good, refused] =
                done.values().fold([0, 0], |all, some| [all[0] + some[0], all[1] + some[1]]);
            assert!(done.values().all(|[good, _]| *good > 0) && done.len() == 18, "{names} names: {done:?}");
            assert!(good > 1_500 && refused > 1_000, "{names} names: {good} and {refused} of {done:?}");
            for _ in 0..4_000 {
                let _ = act(true, &mut volume);
                if volume == Volume::Removed {
                    break;
                }
            }
            assert!(volume == Volume::Removed, "{names} names");
        }
    }
}
