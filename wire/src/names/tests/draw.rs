//! Draws whatever is said and kept of a tree.

use std::sync::Arc;

use base::{Epoch, MEMBERS_MAX, NodeId, Random, Seq};
use namespace::limits::{CLIENTS_MAX, FILE_BYTES_MAX, GRANTED_MAX, HOLDERS_MAX, LINKS_MAX, XATTRS_MAX};
use namespace::{
    Ask, Body, Change, Doomed, Entry, Fate, Given, Grant, Granted, Inode, LentTo, Listed, Make, Marks,
    NotAcl, Page, RenameHow, SetAttributes, SetTime, Site, Volume, XattrHow,
};

use super::*;

pub(super) struct Dice(Random);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A number that is small, large or anything, up to `max`.
    fn up_to(&mut self, max: u64) -> u64 {
        let number = match self.below(5) {
            0 => self.below(3),
            1 => self.below(300),
            2 => u64::MAX - self.below(2),
            3 => max - self.below(2).min(max),
            _ => self.0.next_u64(),
        };
        number.min(max)
    }

    fn u64(&mut self) -> u64 {
        self.up_to(u64::MAX)
    }

    fn u32(&mut self) -> u32 {
        u32::try_from(self.up_to(u32::MAX.into())).unwrap()
    }

    fn mode(&mut self) -> u16 {
        u16::try_from(self.up_to(0o7777)).unwrap()
    }

    fn time(&mut self) -> WallTime {
        WallTime::from_micros(self.u64())
    }

    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.coin().then(|| draw(self))
    }

    /// Mostly a few, rarely as many as can be.
    fn list<T>(&mut self, max: usize, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.below(60) == 0 { max } else { usize::try_from(self.below(5)).unwrap().min(max) };
        (0..count).map(|_| draw(self)).collect()
    }

    fn epoch(&mut self) -> Epoch {
        Epoch { number: self.u64(), node: NodeId(self.u32()) }
    }

    pub(super) fn born(&mut self) -> Born {
        Born { epoch: self.epoch(), seq: Seq(self.u64()) }
    }

    fn inode(&mut self) -> InodeId {
        InodeId { number: self.u64(), epoch: self.epoch() }
    }

    fn client(&mut self) -> ClientId {
        ClientId { certificate: self.u64(), program: self.u64() }
    }

    fn owner(&mut self) -> Owner {
        Owner { client: self.client(), number: self.u64() }
    }

    fn ticket(&mut self) -> Ticket {
        Ticket(self.born())
    }

    fn generation(&mut self) -> Generation {
        Generation(self.born())
    }

    fn bytes(&mut self, count: u64, mut draw: impl FnMut(&mut Self) -> u64) -> Vec<u8> {
        (0..count).map(|_| u8::try_from(draw(self)).unwrap()).collect()
    }

    fn length(&mut self, max: u64) -> u64 {
        match self.below(8) {
            0 => max,
            1 => 22 + self.below(2),
            _ => 1 + self.below(3),
        }
    }

    pub(super) fn name(&mut self) -> Name {
        let length = self.length(255);
        let bytes = self.bytes(length, |dice| [b'a', b'.', 1 + b'/', 1, 255][dice.0.index(5)].into());
        Name::new(&bytes).unwrap_or_else(|_| Name::new(b"a").unwrap())
    }

    fn xattr_name(&mut self) -> XattrName {
        let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
        match self.below(6) {
            0 => XattrName::acl_access(),
            1 => XattrName::acl_default(),
            _ => {
                let space = self.0.pick(&spaces).unwrap().to_vec();
                let length = self.length(255 - space.len() as u64);
                let own = self.bytes(length, |dice| 1 + dice.below(255));
                XattrName::new(&[space, own].concat()).unwrap()
            }
        }
    }

    fn target(&mut self) -> Target {
        let length = self.length(TARGET_BYTES_MAX as u64);
        Target::new(self.bytes(length, |dice| 1 + dice.below(255)).into()).unwrap()
    }

    fn value(&mut self) -> Bytes {
        let length = if self.below(60) == 0 { 65_000 } else { self.below(40) };
        self.bytes(length, |dice| dice.below(256)).into()
    }

    fn members(&mut self) -> Members {
        let count = 1 + self.below(MEMBERS_MAX as u64);
        let first = u32::try_from(self.up_to(u64::from(u32::MAX) - count)).unwrap();
        Members::new((first..).take(usize::try_from(count).unwrap()).map(NodeId)).unwrap()
    }

    fn who(&mut self) -> Who {
        let (uid, gid) = (self.u32(), self.u32());
        Who::new(uid, gid, &self.list(GROUPS_MAX, Self::u32)).unwrap()
    }

    fn kind(&mut self) -> Kind {
        use Kind::{BlockDevice, CharDevice, Directory, Fifo, File, Socket, Symlink};
        [File, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice][self.0.index(7)]
    }

    fn lock_kind(&mut self) -> LockKind {
        if self.coin() { LockKind::Flock } else { LockKind::Fcntl }
    }

    /// A wish: whether it can be had or not.
    fn lock(&mut self) -> Lock {
        let mode = if self.coin() { LockMode::Shared } else { LockMode::Exclusive };
        let (owner, kind) = (self.owner(), self.lock_kind());
        Lock { owner, kind, mode, stretch: Stretch { first: self.u64(), last: self.u64() } }
    }

    fn sound_lock(&mut self) -> Lock {
        let lock = self.lock();
        let Stretch { first, last } = lock.stretch;
        let stretch = match lock.kind {
            LockKind::Flock => Stretch::ALL,
            LockKind::Fcntl => Stretch { first: first.min(last), last: first.max(last) },
        };
        Lock { stretch, ..lock }
    }

    fn locks(&mut self) -> Locks {
        let mut locks = Locks { held: vec![self.sound_lock()], waiting: Vec::new() };
        for _ in 0..self.below(6) {
            let mut then = locks.clone();
            let owner = if self.coin() { then.held[0].owner } else { self.owner() };
            then.held.push(Lock { owner, ..self.sound_lock() });
            then.held.sort_by_key(|lock| (lock.kind, lock.owner, lock.stretch.first));
            if then.is_sound() {
                locks = then;
            }
        }
        for _ in 0..self.below(4) {
            let mut then = locks.clone();
            then.waiting.push(Waiting { ticket: self.ticket(), lock: self.sound_lock() });
            if then.is_sound() {
                locks = then;
            }
        }
        locks
    }

    pub(super) fn op(&mut self) -> Op {
        Op { time: self.time(), who: self.who(), client: self.client(), change: self.change() }
    }

    fn holders(&mut self) -> Vec<ClientId> {
        self.list(HOLDERS_MAX, Self::client)
    }

    fn site(&mut self) -> Site {
        let site = Site::new(self.inode(), self.name());
        match self.below(3) {
            0 => site,
            1 => site.free(),
            _ => site.naming(self.inode()),
        }
    }

    fn make(&mut self) -> Make {
        match self.kind() {
            Kind::File => Make::File { replicas: self.members() },
            Kind::Directory => Make::Directory,
            Kind::Symlink => Make::Symlink { target: self.target() },
            Kind::Fifo => Make::Fifo,
            Kind::Socket => Make::Socket,
            Kind::CharDevice => Make::CharDevice { rdev: self.u64() },
            Kind::BlockDevice => Make::BlockDevice { rdev: self.u64() },
        }
    }

    fn set_attributes(&mut self) -> SetAttributes {
        let set_time = |dice: &mut Self| dice.maybe(Self::time).map_or(SetTime::Now, SetTime::To);
        SetAttributes {
            mode: self.maybe(Self::mode),
            uid: self.maybe(Self::u32),
            gid: self.maybe(Self::u32),
            size: self.maybe(Self::u64),
            atime: self.maybe(set_time),
            mtime: self.maybe(set_time),
            is_open: self.coin(),
        }
    }

    fn change(&mut self) -> Change {
        let inode = self.inode();
        match self.below(23) {
            0 => Change::Create {
                dir: inode,
                name: self.name(),
                make: self.make(),
                mode: self.mode(),
                umask: self.mode(),
                is_exclusive: self.coin(),
                lends: self.coin(),
            },
            1 => Change::Link { inode, dir: self.inode(), name: self.name() },
            2 => {
                let removed = self.maybe(Self::time);
                Change::Unlink { site: self.site(), holders: self.holders(), removed }
            }
            3 => Change::RemoveDirectory { site: self.site(), holders: self.holders() },
            4 => {
                let how = [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange][self.0.index(3)];
                Change::Rename { from: self.site(), to: self.site(), how, holders: self.holders() }
            }
            5 => Change::SetAttributes { inode, set: self.set_attributes() },
            6 => {
                let how = [XattrHow::Any, XattrHow::Create, XattrHow::Replace][self.0.index(3)];
                Change::SetXattr { inode, name: self.xattr_name(), value: self.value(), how }
            }
            7 => Change::RemoveXattr { inode, name: self.xattr_name() },
            8 => Change::Lend { inode, to: self.lent_to() },
            9 => {
                let (generation, size) = (self.generation(), self.u64());
                let given = Given { size, mtime: self.time(), ctime: self.time() };
                let (given, accessed) = ((size % 4 > 0).then_some(given), self.maybe(Self::time));
                let (mode, changed) = (self.maybe(Self::mode), self.maybe(Self::time));
                Change::GiveBack { inode, generation, given, accessed, mode, changed }
            }
            10 => Change::Hold { inode, client: self.client() },
            11 => Change::Release { inode, client: self.client() },
            12 => Change::Deleted { inode },
            13 => Change::Lock { inode, lock: self.lock(), wait: self.coin() },
            14 => {
                let Lock { owner, kind, stretch, .. } = self.lock();
                Change::Unlock { inode, owner, kind, stretch }
            }
            15 => Change::Cancel { inode, ticket: self.ticket() },
            16 => Change::Settle,
            17 => Change::Welcome { client: self.client(), opens: self.coin() },
            18 => Change::Expire { client: self.client() },
            19 => Change::Forget { client: self.client() },
            20 => {
                let (generation, modified) = (self.generation(), self.maybe(Self::time));
                let (accessed, mode) = (self.maybe(Self::time), self.maybe(Self::mode));
                let (changed, is_untouched) = (self.maybe(Self::time), self.coin());
                Change::Return { inode, generation, modified, accessed, mode, changed, is_untouched }
            }
            21 => Change::Enter {
                dir: inode,
                under: self.generation(),
                number: self.u64(),
                name: self.name(),
                replicas: self.members(),
                mode: self.mode(),
                created: self.time(),
            },
            _ => Change::Limit { inodes_max: self.u64(), bytes_max: self.u64() },
        }
    }

    pub(super) fn outcome(&mut self) -> Outcome {
        if self.coin() { Ok(self.done()) } else { Err(self.error()) }
    }

    fn fate(&mut self) -> Fate {
        match self.below(4) {
            0 => Fate::Named { links: self.u32() },
            1 => Fate::Orphan { holders: self.u32() },
            2 => Fate::Doomed,
            _ => Fate::Gone,
        }
    }

    fn granted(&mut self) -> Granted {
        let grant = |dice: &mut Self| Grant { owner: dice.owner(), ticket: dice.ticket() };
        Granted { all: self.list(GRANTED_MAX, grant), more: self.coin() }
    }

    fn done(&mut self) -> Done {
        let inode = self.inode();
        match self.below(14) {
            0 => Done::Created { attributes: self.attributes(), is_new: self.coin() },
            1 => Done::Changed { attributes: self.attributes() },
            2 => Done::Removed { inode, fate: self.fate() },
            3 => Done::Renamed { moved: inode, other: self.maybe(Self::inode), fate: self.maybe(Self::fate) },
            4 => Done::Held,
            5 => Done::Released { fate: self.fate() },
            6 => Done::Deleted,
            7 => Done::Locked { waits: self.maybe(Self::ticket), granted: self.granted() },
            8 => Done::Unlocked { granted: self.granted() },
            9 => Done::Welcomed,
            10 => Done::Expired {
                more: self.coin(),
                dooms: self.coin(),
                lends: self.coin(),
                granted: self.granted(),
            },
            11 => Done::Forgotten,
            _ => Done::Limited,
        }
    }

    fn error(&mut self) -> NameError {
        let not_acl = [NotAcl::Layout, NotAcl::Entries, NotAcl::TooLong { entries: 1025 }][self.0.index(3)];
        let all = golden::errors(self.inode(), self.born(), (self.owner(), self.u64(), not_acl));
        *self.0.pick(&all).unwrap()
    }

    pub(super) fn query(&mut self) -> Query {
        Query { who: self.who(), ask: self.ask() }
    }

    fn ask(&mut self) -> Ask {
        let (inode, after) = (self.inode(), self.maybe(Self::inode));
        match self.below(15) {
            0 => Ask::Lookup { dir: inode, name: self.name() },
            1 => Ask::Attributes { inode },
            2 => Ask::List {
                dir: inode,
                after: self.maybe(Self::name),
                entries_max: self.u32(),
                with_attributes: self.coin(),
            },
            3 => Ask::Readlink { inode },
            4 => Ask::GetXattr { inode, name: self.xattr_name() },
            5 => Ask::ListXattrs { inode },
            6 => {
                let bits = u16::try_from(self.below(8)).unwrap();
                Ask::Access { inode, rights: Rights::from_bits(bits) }
            }
            7 => Ask::Statfs,
            8 => Ask::TestLock { inode, lock: self.lock() },
            9 => Ask::Locks { inode },
            10 => Ask::Orphans { after },
            11 => Ask::Doomed { after },
            12 => Ask::Clients { after: self.maybe(Self::client) },
            13 => Ask::Wish { inode, lock: self.sound_lock(), ticket: Ticket(self.born()) },
            _ => Ask::Holds { client: self.client(), after },
        }
    }

    pub(super) fn answered(&mut self) -> Answered {
        if self.below(20) == 0 { Err(self.error()) } else { Ok(self.answer()) }
    }

    fn answer(&mut self) -> Answer {
        match self.below(12) {
            0 => Answer::Attributes(self.attributes()),
            1 => Answer::Page(self.page()),
            2 => Answer::Target(self.target()),
            3 => Answer::Value(self.value()),
            4 => {
                let mut names = self.list(100, Self::xattr_name);
                names.sort();
                names.dedup();
                Answer::Names(names)
            }
            5 => Answer::Volume(self.volume()),
            10 => Answer::Wish(if self.coin() {
                Wish::Waits
            } else if self.coin() {
                Wish::Had
            } else {
                Wish::Gone
            }),
            6 => Answer::InTheWay(self.maybe(Self::sound_lock)),
            7 => Answer::Locks(self.maybe(|dice| Arc::new(dice.locks()))),
            8 => {
                let inodes: std::collections::BTreeSet<_> =
                    self.list(1024, Self::inode).into_iter().collect();
                Answer::Inodes(inodes.into_iter().collect())
            }
            9 => {
                let doomed = self.list(1024, |dice| (dice.inode(), dice.members()));
                let doomed: std::collections::BTreeMap<_, _> = doomed.into_iter().collect();
                Answer::Doomed(doomed.into_iter().collect())
            }
            _ => {
                let clients = self.list(1024, |dice| (dice.client(), dice.client_state()));
                let clients: std::collections::BTreeMap<_, _> = clients.into_iter().collect();
                Answer::Clients(clients.into_iter().collect())
            }
        }
    }

    fn page(&mut self) -> Page {
        let mut entries = self.list(200, |dice| {
            let (name, inode) = (dice.name(), dice.inode());
            let attributes = dice.maybe(|dice| Attributes { inode, ..dice.attributes() });
            let kind = attributes.as_ref().map_or_else(|| dice.kind(), |attributes| attributes.kind);
            Listed { name, inode, kind, attributes }
        });
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        Page { entries, is_last: self.coin() }
    }

    fn client_state(&mut self) -> ClientState {
        [ClientState::Alive, ClientState::Ending, ClientState::Ended, ClientState::Caching][self.0.index(4)]
    }

    fn attributes(&mut self) -> Attributes {
        let inode = self.inode();
        self.whole_inode().attributes(inode)
    }

    fn volume(&mut self) -> Volume {
        let inodes = self.u64();
        let bytes = u128::from(inodes) * u128::from(self.up_to(FILE_BYTES_MAX));
        let clients = u32::try_from(self.up_to(CLIENTS_MAX.into())).unwrap();
        Volume { inodes, inodes_max: self.u64(), bytes, bytes_max: self.u64(), clients }
    }

    /// One that is going on is later than one that is over.
    fn lends(&mut self) -> (Option<Lent>, Option<Generation>) {
        let lent = self.maybe(|draw| Lent { generation: draw.generation(), to: draw.lent_to() });
        let last = self.maybe(Self::generation);
        (lent, last.filter(|last| lent.is_none_or(|lent| *last < lent.generation)))
    }

    fn lent_to(&mut self) -> LentTo {
        if self.coin() { LentTo::Content } else { LentTo::Client(self.client()) }
    }

    fn body(&mut self) -> Body {
        match self.kind() {
            Kind::File => {
                let (lent, last_lend) = self.lends();
                Body::File { size: self.up_to(FILE_BYTES_MAX), replicas: self.members(), lent, last_lend }
            }
            Kind::Directory => {
                let to = LentTo::Client(self.client());
                let lent = self.maybe(|draw| Lent { generation: draw.generation(), to });
                Body::Directory { parent: self.inode(), entries: self.u64(), lent }
            }
            Kind::Symlink => Body::Symlink { target: self.target() },
            Kind::Fifo => Body::Fifo,
            Kind::Socket => Body::Socket,
            Kind::CharDevice => Body::CharDevice { rdev: self.u64() },
            Kind::BlockDevice => Body::BlockDevice { rdev: self.u64() },
        }
    }

    fn whole_inode(&mut self) -> Inode {
        Inode {
            mode: self.mode(),
            marks: Marks { acl_access: self.coin(), acl_default: self.coin(), capability: self.coin() },
            uid: self.u32(),
            gid: self.u32(),
            links: u32::try_from(self.up_to(LINKS_MAX.into())).unwrap(),
            holders: u32::try_from(self.up_to(CLIENTS_MAX.into())).unwrap(),
            xattrs: u16::try_from(self.up_to(XATTRS_MAX.into())).unwrap(),
            xattr_bytes: u32::try_from(self.up_to(XATTR_BYTES_MAX)).unwrap(),
            atime: self.time(),
            mtime: self.time(),
            ctime: self.time(),
            btime: self.time(),
            body: self.body(),
        }
    }

    fn volume_name(&mut self) -> VolumeName {
        let length = 1 + self.below(64);
        let letters = (0..length).map(|_| char::from(b'a' + u8::try_from(self.below(26)).unwrap()));
        VolumeName::parse(&letters.collect::<String>()).unwrap()
    }

    pub(super) fn key(&mut self) -> Key {
        let (inode, client) = (self.inode(), self.client());
        match self.below(14) {
            0 => Key::Inode(inode),
            1 => Key::Volume,
            2 => Key::Entry(inode, self.name()),
            3 => Key::Xattr(inode, self.xattr_name()),
            4 => Key::Locks(inode),
            5 => Key::Hold(inode, client),
            6 => Key::Orphan(inode),
            7 => Key::Doomed(inode),
            8 => Key::Unsettled(inode),
            9 => Key::Client(client),
            10 => Key::Held(client, inode),
            11 => Key::Locker(client, inode),
            12 => Key::Wait(self.owner(), self.ticket()),
            13 => Key::Name,
            _ => Key::Lender(client, inode),
        }
    }

    pub(super) fn placed(&mut self) -> Placed {
        let key = self.key();
        if self.below(10) == 0 {
            return (key, None);
        }
        let part = match key {
            Key::Inode(_) => Part::Inode(self.whole_inode().into()),
            Key::Volume => Part::Volume(self.volume().into()),
            Key::Entry(..) => Part::Entry(Entry { inode: self.inode(), kind: self.kind() }),
            Key::Xattr(..) => Part::Value(self.value().into()),
            Key::Locks(_) => Part::Locks(self.locks().into()),
            Key::Doomed(_) => {
                let (replicas, size) = (self.members(), self.up_to(FILE_BYTES_MAX));
                Part::Doomed(Doomed { replicas, size }.into())
            }
            Key::Client(_) => Part::Client(self.client_state()),
            Key::Wait(..) => Part::Wait(self.inode()),
            Key::Name => Part::Name(self.volume_name().into()),
            _ => Part::Mark,
        };
        (key, Some((self.born(), part)))
    }
}
