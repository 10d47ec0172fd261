//! Draws whole operations and questions.

use std::collections::BTreeMap;

use bytes::Bytes;
use namespace::{
    Ask, Born, Change, ClientState, Generation, Given, InodeId, Kind, Lent, LentTo, Lock, LockKind, LockMode,
    Make, NUMBERS_MAX, Op, Owner, Query, RenameHow, SetAttributes, SetTime, Site, Stretch, Target, Ticket,
    XattrHow, limits,
};

use crate::access::Acl;
use crate::dice::Dice;
use crate::locks::{STARTS, end_of};
use crate::state::{Model, Node};

/// How often a change is drawn beside the others, what there has to be for it to make sense, and how it is drawn.
type Drawn = (usize, fn(&Model) -> bool, fn(&mut Dice<'_>) -> Change);

const ALWAYS: fn(&Model) -> bool = |_| true;
const LENT: fn(&Model) -> bool = |model| model.nodes.values().any(|node| node.lent.is_some());
const ORPHANS: fn(&Model) -> bool = |model| !model.orphans().is_empty();
const WAITING: fn(&Model) -> bool = |model| model.nodes.values().any(|node| !node.queue.is_empty());

const CHANGES: [Drawn; 23] = [
    (18, ALWAYS, create),
    (5, |model| model.nodes.values().any(is_lent_dir), enter),
    (4, ALWAYS, link),
    (5, ALWAYS, |dice| Change::Unlink {
        site: dice.site(|node| !node.is_directory()),
        holders: holders(dice),
        removed: dice.once_in(4).then(|| dice.time()),
    }),
    (3, ALWAYS, |dice| Change::RemoveDirectory { site: dice.site(is_bare), holders: holders(dice) }),
    (9, ALWAYS, rename),
    (10, ALWAYS, set_attributes),
    (8, ALWAYS, set_xattr),
    (3, ALWAYS, remove_xattr),
    (6, ALWAYS, lend),
    (5, LENT, give_back),
    (4, LENT, return_lend),
    (3, ORPHANS, |dice| Change::Hold { inode: dice.held(), client: dice.client() }),
    (3, ORPHANS, release),
    (2, |model| !model.doomed.is_empty(), deleted),
    (12, ALWAYS, |dice| Change::Lock { inode: dice.locked(), lock: lock(dice), wait: dice.below(3) > 0 }),
    (5, ALWAYS, unlock),
    (2, WAITING, cancel),
    (1, ALWAYS, |_| Change::Settle),
    (2, ALWAYS, |dice| Change::Welcome { client: dice.client(), opens: dice.once_in(2) }),
    (1, ALWAYS, |dice| Change::Expire { client: dice.client() }),
    (
        3,
        |model| {
            let may_go = |state: &ClientState| matches!(state, ClientState::Caching | ClientState::Ended);
            model.clients.values().any(may_go)
        },
        |dice| Change::Forget { client: dice.ended() },
    ),
    (1, ALWAYS, limit),
];

impl Dice<'_> {
    /// An operation. The first of all lets others into the root.
    pub(crate) fn op(&mut self) -> Op {
        let (time, who, client) = (self.time(), self.who(), self.client());
        if self.now == 0 {
            let mode = Some(self.pick(&[0o777, 0o1777, 0o2777, 0o777, 0o755]));
            let set = SetAttributes { mode, ..SetAttributes::default() };
            let change = Change::SetAttributes { inode: InodeId::ROOT, set };
            return Op { time, who: namespace::Who::root(), client, change };
        }
        let mut at = self.below(CHANGES.iter().map(|(weight, ..)| weight).sum());
        for (weight, makes_sense, draw) in CHANGES {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => {
                    let change =
                        if makes_sense(self.model) || self.once_in(8) { draw(self) } else { create(self) };
                    let mut op = Op { time, who, client, change };
                    is_of_its_client(&mut op, self.once_in(20), self.model);
                    return op;
                }
            }
        }
        unreachable!("the weights add up")
    }

    /// A question.
    pub(crate) fn query(&mut self) -> Query {
        let who = self.who();
        let inode = self.inode();
        let ask = match self.below(15) {
            0 => Ask::Lookup { dir: self.dir(), name: self.name() },
            1 => Ask::Attributes { inode },
            2 => Ask::List {
                dir: self.dir(),
                after: (self.below(2) == 1).then(|| self.name()),
                entries_max: self.pick(&[1, 2, 3, 100]),
                with_attributes: self.below(2) == 1,
            },
            3 => Ask::Readlink { inode: self.of_kind(Kind::Symlink) },
            4 => Ask::GetXattr { inode, name: self.xattr_name() },
            5 => Ask::ListXattrs { inode },
            6 => Ask::Access { inode, rights: self.rights() },
            7 => Ask::Statfs,
            8 => Ask::TestLock { inode: self.locked(), lock: lock(self) },
            9 => Ask::Locks { inode: self.locked() },
            10 => Ask::Orphans { after: (self.below(2) == 1).then_some(inode) },
            11 => Ask::Doomed { after: (self.below(2) == 1).then_some(inode) },
            12 => Ask::Clients { after: (self.below(2) == 1).then(|| self.client()) },
            13 => Ask::Holds { client: self.client(), after: (self.below(2) == 1).then_some(inode) },
            _ => Ask::Access { inode: self.dir(), rights: self.rights() },
        };
        Query { who, ask }
    }
}

/// Locks and lends are asked for and given back by the client whose they are, but for a few.
fn is_of_its_client(op: &mut Op, is_foreign: bool, model: &Model) {
    match &op.change {
        Change::Lock { lock: Lock { owner, .. }, .. } | Change::Unlock { owner, .. } if !is_foreign => {
            op.client = owner.client;
        }
        Change::Lend { to: LentTo::Client(client), .. } if !is_foreign => op.client = *client,
        Change::Return { inode, .. }
        | Change::Create { dir: inode, .. }
        | Change::Enter { dir: inode, .. }
        | Change::Link { dir: inode, .. }
        | Change::Unlink { site: Site { dir: inode, .. }, .. }
        | Change::RemoveDirectory { site: Site { dir: inode, .. }, .. }
        | Change::Rename { from: Site { dir: inode, .. }, .. }
            if !is_foreign =>
        {
            let lent = model.nodes.get(inode).and_then(|node| node.lent);
            op.client = lent.and_then(|lent| lent.to.client()).unwrap_or(op.client);
        }
        _ => {}
    }
}

fn is_lent_dir(node: &Node) -> bool {
    node.is_directory() && node.lent.is_some()
}

fn is_bare(node: &Node) -> bool {
    node.is_directory() && node.children.is_empty()
}

fn remove_xattr(dice: &mut Dice<'_>) -> Change {
    let (inode, name) = dice.xattr();
    Change::RemoveXattr { inode, name }
}

fn holders(dice: &mut Dice<'_>) -> Vec<base::ClientId> {
    if dice.once_in(60) { vec![dice.client(); limits::HOLDERS_MAX + 1] } else { dice.clients() }
}

fn create(dice: &mut Dice<'_>) -> Change {
    let make = match dice.below(14) {
        0..=4 => Make::File { replicas: dice.replicas() },
        5..=8 => Make::Directory,
        9 | 10 => Make::Symlink { target: Target::new(Bytes::from_static(b"../a")).expect("a target") },
        11 => Make::Fifo,
        12 => Make::Socket,
        _ if dice.below(2) == 0 => Make::CharDevice { rdev: 5 },
        _ => Make::BlockDevice { rdev: 6 },
    };
    let umask = dice.pick(&[0, 0, 0, 0o022, 0o077, 0o027]);
    let is_exclusive = dice.below(2) == 1;
    Change::Create {
        dir: dice.dir(),
        name: dice.name(),
        make,
        mode: dice.mode(),
        umask,
        is_exclusive,
        lends: dice.once_in(2),
    }
}

/// The client's first files, so that some numbers are given twice.
fn enter(dice: &mut Dice<'_>) -> Change {
    let dir = dice.one(is_lent_dir);
    let lent = dice.model.nodes.get(&dir).and_then(|node| node.lent);
    let under = generation(dice, lent);
    let number = dice.pick(&[1, 2, 3, 4, 5, 6, 0, NUMBERS_MAX]);
    let (name, replicas, mode, created) = (dice.name(), dice.replicas(), dice.mode() & 0o777, dice.time());
    Change::Enter { dir, under, number, name, replicas, mode, created }
}

fn link(dice: &mut Dice<'_>) -> Change {
    let inode = if dice.below(2) == 0 { dice.inode() } else { dice.of_kind(Kind::File) };
    Change::Link { inode, dir: dice.dir(), name: dice.name() }
}

fn rename(dice: &mut Dice<'_>) -> Change {
    let hows = [RenameHow::Replace, RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange];
    let how = dice.pick(&hows);
    Change::Rename { from: dice.site(|_| true), to: dice.target_site(), how, holders: holders(dice) }
}

fn size(dice: &mut Dice<'_>) -> u64 {
    let sizes = [0, 0, 1, 10, 5000, 5000, 9000, limits::FILE_BYTES_MAX, limits::FILE_BYTES_MAX + 1];
    dice.pick(&sizes)
}

fn set_time(dice: &mut Dice<'_>) -> SetTime {
    match dice.below(3) {
        0 => SetTime::Now,
        1 => SetTime::To(dice.time()),
        _ => SetTime::To(base::WallTime::from_micros(1_000_000)),
    }
}

fn set_attributes(dice: &mut Dice<'_>) -> Change {
    let mut set = SetAttributes { is_open: dice.below(3) == 2, ..SetAttributes::default() };
    let mut inode = dice.inode();
    let id = |dice: &mut Dice<'_>, all: &[u32]| (dice.below(3) > 0).then(|| dice.pick(all));
    match dice.below(9) {
        0 | 1 => set.mode = Some(dice.mode()),
        2 | 3 => {
            set.uid = id(dice, &[0, 1001, 1001, 1002, 1003]);
            set.gid = id(dice, &[0, 100, 200, 300]);
        }
        4 | 5 => {
            inode = dice.of_kind(Kind::File);
            set.size = Some(size(dice));
            set.mtime = dice.once_in(4).then_some(SetTime::Now);
        }
        6 => {
            inode = dice.of_kind(Kind::File);
            (set.mode, set.size) = (Some(dice.mode()), (dice.below(2) == 1).then(|| size(dice)));
            (set.uid, set.gid) = (id(dice, &[1001, 1002]), id(dice, &[100, 200, 300]));
        }
        _ => {
            set.atime = (dice.below(2) == 1).then(|| set_time(dice));
            set.mtime = (dice.below(3) > 0).then(|| set_time(dice));
        }
    }
    Change::SetAttributes { inode, set }
}

fn acl(dice: &mut Dice<'_>) -> Acl {
    let bits = |dice: &mut Dice<'_>| u16::try_from(dice.below(8)).expect("small");
    let named = |dice: &mut Dice<'_>, id: u32| -> BTreeMap<u32, u16> {
        if dice.below(2) == 1 { BTreeMap::from([(id, bits(dice))]) } else { BTreeMap::new() }
    };
    let (users, groups) = (named(dice, 1002), named(dice, 200));
    let has_mask = !users.is_empty() || !groups.is_empty() || dice.below(4) == 0;
    let mask = has_mask.then(|| bits(dice));
    Acl { owner: bits(dice) | 4, users, group: bits(dice), groups, mask, other: bits(dice) }
}

/// The bytes of an ACL, a few of them of none.
fn acl_bytes(dice: &mut Dice<'_>) -> Bytes {
    let mut bytes = acl(dice).to_bytes().to_vec();
    match dice.below(16) {
        11 => bytes.truncate(4),
        12 => bytes.truncate(bytes.len() - 8),
        13 => bytes.truncate(bytes.len() - 1),
        14 => bytes.extend_from_within(4..12),
        15 => bytes[4] = 0x40,
        _ => {}
    }
    bytes.into()
}

fn set_xattr(dice: &mut Dice<'_>) -> Change {
    let (name, how) = (dice.xattr_name(), dice.pick(&[XattrHow::Any, XattrHow::Create, XattrHow::Replace]));
    let is_acl = name.as_bytes().starts_with(b"system.");
    let inode = if is_acl && dice.below(2) == 0 { dice.dir() } else { dice.inode() };
    let value = match dice.below(12) {
        _ if is_acl => acl_bytes(dice),
        11 => vec![1; 70_000].into(),
        10 | 9 => vec![1; 40_000].into(),
        length => vec![2; length].into(),
    };
    Change::SetXattr { inode, name, value, how }
}

fn lend(dice: &mut Dice<'_>) -> Change {
    let is_new = !dice.once_in(4);
    let inode = dice.one(|node| node.kind == Kind::File && (node.lent.is_none() || !is_new));
    let to = if dice.below(2) == 0 { LentTo::Content } else { LentTo::Client(dice.client()) };
    Change::Lend { inode, to }
}

/// What a client has, mostly.
fn return_lend(dice: &mut Dice<'_>) -> Change {
    let inode = dice.one(|node| node.lent.is_some_and(|lent| lent.to != LentTo::Content));
    let lent = dice.model.nodes.get(&inode).and_then(|node| node.lent);
    let generation = generation(dice, lent);
    let [modified, accessed, changed] = [2, 3, 2].map(|odds| dice.once_in(odds).then(|| dice.time()));
    let mode = dice.once_in(3).then(|| dice.mode());
    Change::Return { inode, generation, modified, accessed, mode, changed, is_untouched: !dice.once_in(4) }
}

fn generation(dice: &mut Dice<'_>, lent: Option<Lent>) -> Generation {
    let none = Generation(Born::default());
    lent.filter(|_| !dice.once_in(8)).map_or(none, |lent| lent.generation)
}

fn give_back(dice: &mut Dice<'_>) -> Change {
    let inode = dice.lent();
    let lent = dice.model.nodes.get(&inode).and_then(|node| node.lent);
    let generation = generation(dice, lent);
    let (size, mtime, ctime) = (size(dice), dice.time(), dice.time());
    let given = (!dice.once_in(4)).then_some(Given { size, mtime, ctime });
    let accessed = dice.once_in(4).then(|| dice.time());
    let mode = dice.once_in(4).then(|| dice.mode());
    let changed = dice.once_in(2).then(|| dice.time());
    Change::GiveBack { inode, generation, given, accessed, mode, changed }
}

fn release(dice: &mut Dice<'_>) -> Change {
    let inode = dice.held();
    let holder = dice.model.nodes.get(&inode).and_then(|node| node.holders.first().copied());
    Change::Release { inode, client: holder.filter(|_| !dice.once_in(4)).unwrap_or(dice.client()) }
}

fn deleted(dice: &mut Dice<'_>) -> Change {
    let inode = dice.inode();
    let doomed = dice.model.doomed.keys().next().copied().filter(|_| !dice.once_in(4));
    Change::Deleted { inode: doomed.unwrap_or(inode) }
}

fn owner(dice: &mut Dice<'_>) -> Owner {
    Owner { client: dice.client(), number: dice.below(2) as u64 }
}

/// Bytes from the beginning of a cell to the end of another, a few the wrong way round.
fn stretch(dice: &mut Dice<'_>) -> Stretch {
    let (one, other) = (dice.below(STARTS.len()), dice.below(STARTS.len()));
    if dice.once_in(20) && one != other {
        return Stretch { first: STARTS[one.max(other)], last: STARTS[one.min(other)] };
    }
    Stretch { first: STARTS[one.min(other)], last: end_of(one.max(other)) }
}

fn lock(dice: &mut Dice<'_>) -> Lock {
    let (owner, mode) =
        (owner(dice), dice.pick(&[LockMode::Shared, LockMode::Exclusive, LockMode::Exclusive]));
    let kind = dice.pick(&[LockKind::Fcntl, LockKind::Fcntl, LockKind::Flock]);
    Lock { owner, kind, mode, stretch: stretch(dice) }
}

fn unlock(dice: &mut Dice<'_>) -> Change {
    let (inode, lock) = (dice.locked(), lock(dice));
    Change::Unlock { inode, owner: lock.owner, kind: lock.kind, stretch: lock.stretch }
}

fn cancel(dice: &mut Dice<'_>) -> Change {
    let inode = dice.waited_for();
    let queue = dice.model.nodes.get(&inode).map_or(&[][..], |node| &node.queue);
    let ticket = queue.first().map_or(Ticket(Born::default()), |waiting| waiting.ticket);
    Change::Cancel { inode, ticket }
}

fn limit(dice: &mut Dice<'_>) -> Change {
    let volume = dice.model.volume();
    let inodes_max = dice.pick(&[
        limits::INODES_MAX_DEFAULT,
        volume.inodes + 3,
        limits::INODES_MAX_DEFAULT,
        volume.inodes,
    ]);
    let bytes_max = dice.pick(&[limits::BYTES_MAX_DEFAULT, 6000, limits::BYTES_MAX_DEFAULT, 0]);
    Change::Limit { inodes_max, bytes_max }
}
