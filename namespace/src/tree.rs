//! A table, as a tree.

use std::ops::Bound;
use std::sync::Arc;

use base::{ClientId, WallTime};

use crate::create::{Numbered, Wanted};
use crate::draft::Draft;
use crate::limits::MODE_BITS;
use crate::{
    Answer, Body, Born, Change, ClientState, Done, Inode, InodeId, Key, Lent, Marks, NameError, Op, Part,
    Query, Table, Volume, VolumeName,
};

/// The mode of a root that nobody has changed.
const ROOT_MODE: u16 = 0o755;

/// The root directory of a tree, as it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// What the volume is called. It stays so.
    pub name: VolumeName,
    /// When.
    pub time: WallTime,
    /// Whose it is.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The twelve bits of its permissions.
    pub mode: u16,
}

/// A volume's tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree<T: Table> {
    table: T,
}

impl<T: Table + Default> Default for Tree<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Table> Tree<T> {
    /// The tree in a table. If there is none, it is an empty root directory of root's, which everybody may search, as it is
    /// before the first entry.
    pub fn new(mut table: T) -> Self {
        if table.get(&Key::Inode(InodeId::ROOT)).is_none() && table.get(&Key::Volume).is_none() {
            table.put(Key::Inode(InodeId::ROOT), Born::default(), Part::Inode(Arc::new(blank_root())));
            table.put(Key::Volume, Born::default(), Part::Volume(Arc::new(Volume::default())));
        }
        Self { table }
    }

    /// Makes an empty root directory in a table that is empty, by the entry at `at`.
    pub fn plant(&mut self, at: Born, root: &Root) {
        let Root { time, uid, gid, mode, .. } = *root;
        let (atime, mtime, ctime, btime) = (time, time, time, time);
        let inode = Inode { uid, gid, mode: mode & MODE_BITS, atime, mtime, ctime, btime, ..blank_root() };
        self.table.put(Key::Inode(InodeId::ROOT), at, Part::Inode(Arc::new(inode)));
        self.table.put(Key::Volume, at, Part::Volume(Arc::new(Volume::default())));
        self.table.put(Key::Name, at, Part::Name(Arc::new(root.name.clone())));
    }

    /// What the volume is called, if it was [planted](Self::plant).
    pub fn name(&self) -> Option<Arc<VolumeName>> {
        match self.part(&Key::Name) {
            Some(Part::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// What a table holds, which need not make sense before all of its parts are [placed](Self::place).
    pub const fn bare(table: T) -> Self {
        Self { table }
    }

    /// Whether its root has no entry, nobody holds what had a name, and no data is to be removed any more.
    pub fn is_empty(&self) -> bool {
        let root = Draft::look(&self.table).inode(InodeId::ROOT);
        let has_entries =
            matches!(root.map(|root| root.body.clone()), Ok(Body::Directory { entries: 1.., .. }));
        let first = |key| self.table.versions(Bound::Included(&key), 1).into_iter().next();
        let has_orphans = matches!(first(Key::Orphan(InodeId::FIRST)), Some((Key::Orphan(_), _)));
        !has_entries && !has_orphans && self.doomed(1).is_empty()
    }

    /// Some of the inodes whose data is to be removed everywhere.
    pub fn doomed(&self, inodes_max: usize) -> Vec<InodeId> {
        let page = self.table.versions(Bound::Included(&Key::Doomed(InodeId::FIRST)), inodes_max);
        let doomed = page.into_iter().map_while(|(key, _)| match key {
            Key::Doomed(inode) => Some(inode),
            _ => None,
        });
        doomed.collect()
    }

    /// How it stands with a client, if it is on record.
    pub fn client(&self, client: ClientId) -> Option<ClientState> {
        match self.part(&Key::Client(client))? {
            Part::Client(state) => Some(state),
            _ => None,
        }
    }

    /// Whether requests for locks may be granted that no entry had room for.
    pub fn is_unsettled(&self) -> bool {
        let page = self.table.versions(Bound::Included(&Key::Unsettled(InodeId::FIRST)), 1);
        matches!(page.first(), Some((Key::Unsettled(_), _)))
    }

    /// The lend of a file's size and times, or of a directory, that is going on.
    pub fn lent(&self, inode: InodeId) -> Option<Lent> {
        match self.table.get(&Key::Inode(inode))?.1 {
            Part::Inode(found) => found.lent(),
            _ => None,
        }
    }

    /// A directory that a change is about and that is lent to another client, which is to give it back before.
    pub fn wants_dir(&self, change: &Change, client: ClientId) -> Option<(InodeId, Lent)> {
        Draft::look(&self.table).wants_dir(change, client)
    }

    /// Some of the files that are lent to a client.
    pub fn lent_to(&self, client: ClientId, inodes_max: usize) -> Vec<InodeId> {
        Draft::look(&self.table).lent_to(client, inodes_max)
    }

    /// The table.
    pub const fn table(&self) -> &T {
        &self.table
    }

    /// The table, for whoever keeps it elsewhere, too. Nothing in it is to be changed but by operations and by `place`.
    pub const fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// Takes in an operation that is committed at `at`, where nothing else is. If it is refused nothing is changed.
    pub fn apply(&mut self, at: Born, op: &Op) -> Result<Done, NameError> {
        let mut draft = Draft::new(&self.table, at, op.time);
        let done = draft.run(op)?;
        for (key, part) in draft.into_changes() {
            match part {
                Some(part) => self.table.put(key, at, part),
                None => self.table.remove(&key),
            }
        }
        Ok(done)
    }

    /// Answers a question.
    pub fn answer(&self, query: &Query) -> Result<Answer, NameError> {
        Draft::look(&self.table).answer(query)
    }

    /// Whether `op`, which is not committed yet, might change the answer to `query`. When in doubt: yes.
    ///
    /// Names are taken to name what they do in this state. If an earlier operation that is not committed either gives one
    /// of the question's names to another inode, the question overlaps that one, but not for certain a later one that changes
    /// the inode by its id or by another name. Whoever may have acknowledged such operations has to wait for all of them.
    pub fn overlaps(&self, op: &Op, query: &Query) -> bool {
        Draft::look(&self.table).overlaps(&op.change, query)
    }

    /// The parts behind `after` in order, as many as `parts_max`, each with the entry that changed it last.
    pub fn versions(&self, after: Option<&Key>, parts_max: usize) -> Vec<(Key, Born)> {
        self.table.versions(after.map_or(Bound::Unbounded, Bound::Excluded), parts_max)
    }

    /// The entry that changed a part last.
    pub fn version(&self, key: &Key) -> Option<Born> {
        self.table.get(key).map(|(at, _)| at)
    }

    /// A part.
    pub fn part(&self, key: &Key) -> Option<Part> {
        self.table.get(key).map(|(_, part)| part)
    }

    /// Puts a part into place as another replica has it, or takes it away. Between two of these the tree need not make
    /// sense. A part that is none of this key's is not taken; [`Part::is_of`] tells beforehand.
    pub fn place(&mut self, key: Key, part: Option<(Born, Part)>) {
        match part {
            Some((at, part)) if part.is_of(&key) => self.table.put(key, at, part),
            Some(_) => {}
            None => self.table.remove(&key),
        }
    }
}

impl<T: Table> Draft<'_, T> {
    /// Drafts what an operation does. Nothing of the draft is to be kept if it is refused.
    fn run(&mut self, op: &Op) -> Result<Done, NameError> {
        if op.change.is_of_client() {
            self.check_client(op.client)?;
            self.refuse_dirs_of_others(&op.change, op.client)?;
        }
        match &op.change {
            Change::Create { .. }
            | Change::Enter { .. }
            | Change::Link { .. }
            | Change::Unlink { .. }
            | Change::RemoveDirectory { .. }
            | Change::Rename { .. } => self.run_on_names(op),
            Change::SetAttributes { .. }
            | Change::SetXattr { .. }
            | Change::RemoveXattr { .. }
            | Change::Lend { .. }
            | Change::Return { .. }
            | Change::GiveBack { .. } => self.run_on_inode(op),
            Change::Hold { .. }
            | Change::Release { .. }
            | Change::Deleted { .. }
            | Change::Lock { .. }
            | Change::Unlock { .. }
            | Change::Cancel { .. }
            | Change::Settle
            | Change::Welcome { .. }
            | Change::Expire { .. }
            | Change::Forget { .. }
            | Change::Limit { .. } => self.run_on_clients(op),
        }
    }

    fn run_on_names(&mut self, Op { who, client, change, .. }: &Op) -> Result<Done, NameError> {
        match change {
            Change::Create { dir, name, make, mode, umask, is_exclusive, lends } => {
                let lends = lends.then_some(*client);
                let (mode, umask, is_exclusive) = (*mode, *umask, *is_exclusive);
                let wanted = Wanted { make, mode, umask, is_exclusive, lends };
                self.create(who, (*dir, name), &wanted)
            }
            Change::Enter { dir, under, number, name, replicas, mode, created } => {
                let file =
                    Numbered { under: *under, number: *number, replicas, mode: *mode, created: *created };
                self.enter((who, *client), (*dir, name), &file)
            }
            Change::Link { inode, dir, name } => self.link(who, *inode, (*dir, name)),
            Change::Unlink { site, holders, removed } => self.unlink((who, *client), site, holders, *removed),
            Change::RemoveDirectory { site, holders } => self.remove_name(who, site, holders, true),
            Change::Rename { from, to, how, holders } => self.rename(who, (from, to), *how, holders),
            other => unreachable!("{other:?} is about no name"),
        }
    }

    fn run_on_inode(&mut self, Op { who, client, change, .. }: &Op) -> Result<Done, NameError> {
        if let Some(inode) = change.wants_from_others() {
            self.refuse_others(inode, *client)?;
        }
        match change {
            Change::SetAttributes { inode, set } => self.set_attributes(who, *inode, set),
            Change::SetXattr { inode, name, value, how } => {
                self.set_xattr(who, (*inode, name), (value, *how))
            }
            Change::RemoveXattr { inode, name } => self.remove_xattr(who, (*inode, name)),
            Change::Lend { inode, to } => self.lend((who, *client), *inode, *to),
            Change::Return { inode, generation, modified, accessed, mode, changed, is_untouched } => {
                let set = (*modified, *accessed, *mode, *changed);
                self.return_lend((who, *client), (*inode, *generation), set, *is_untouched)
            }
            Change::GiveBack { inode, generation, given, accessed, mode, changed } => {
                self.give_back(who, (*inode, *generation), (given.as_ref(), *accessed, *mode, *changed))
            }
            other => unreachable!("{other:?} is about no inode"),
        }
    }

    fn run_on_clients(&mut self, Op { client: asking, change, .. }: &Op) -> Result<Done, NameError> {
        match change {
            Change::Hold { inode, client } => self.hold(*inode, *client),
            Change::Release { inode, client } => {
                self.release(*inode, *client).map(|fate| Done::Released { fate })
            }
            Change::Deleted { inode } => self.deleted(*inode),
            Change::Lock { lock: crate::Lock { owner, .. }, .. } | Change::Unlock { owner, .. }
                if owner.client != *asking =>
            {
                Err(NameError::Foreign { owner: *owner })
            }
            Change::Lock { inode, lock, wait } => self.lock(*inode, lock, *wait),
            Change::Unlock { inode, owner, kind, stretch } => self.unlock(*inode, (*owner, *kind), *stretch),
            Change::Cancel { inode, ticket } => self.cancel(*inode, *ticket, *asking),
            Change::Settle => self.settle(),
            Change::Welcome { client, opens } => self.welcome(*client, *opens),
            Change::Expire { client } => self.expire(*client),
            Change::Forget { client } => self.forget(*client),
            Change::Limit { inodes_max, bytes_max } => {
                let volume = Volume { inodes_max: *inodes_max, bytes_max: *bytes_max, ..self.volume() };
                self.put_volume(volume);
                Ok(Done::Limited)
            }
            other => unreachable!("{other:?} is about no client"),
        }
    }
}

impl Change {
    /// Whether a client asks for it on its own behalf, and so may not when it has ended.
    const fn is_of_client(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Enter { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::RemoveDirectory { .. }
            | Self::Rename { .. }
            | Self::SetAttributes { .. }
            | Self::SetXattr { .. }
            | Self::RemoveXattr { .. }
            | Self::Lend { .. }
            | Self::Return { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::Cancel { .. } => true,
            Self::GiveBack { .. }
            | Self::Hold { .. }
            | Self::Release { .. }
            | Self::Deleted { .. }
            | Self::Settle
            | Self::Welcome { .. }
            | Self::Expire { .. }
            | Self::Forget { .. }
            | Self::Limit { .. } => false,
        }
    }
}

fn blank_root() -> Inode {
    let zero = WallTime::ZERO;
    let body = Body::Directory { parent: InodeId::ROOT, entries: 0, lent: None };
    let (uid, gid, links, holders) = (0, 0, 2, 0);
    let (marks, xattrs, xattr_bytes) = (Marks::default(), 0, 0);
    let (atime, mtime, ctime, btime) = (zero, zero, zero, zero);
    Inode {
        mode: ROOT_MODE,
        marks,
        uid,
        gid,
        links,
        holders,
        xattrs,
        xattr_bytes,
        atime,
        mtime,
        ctime,
        btime,
        body,
    }
}
