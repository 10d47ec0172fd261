//! New inodes.

use base::{ClientId, Members, WallTime};
use bytes::Bytes;

use crate::access::{PERMISSIONS, SETGID, SETUID, STICKY};
use crate::acl::Acl;
use crate::draft::Draft;
use crate::limits::{LINKS_MAX, MODE_BITS};
use crate::{
    Body, Done, Entry, Generation, Inode, InodeId, Key, Kind, Lent, LentTo, Make, Marks, Name, NameError,
    Part, Rights, Table, Target, Who, XattrName,
};

const GROUP_EXECUTE: u16 = 0o010;

/// What is asked for.
pub(crate) struct Wanted<'o> {
    pub(crate) make: &'o Make,
    pub(crate) mode: u16,
    pub(crate) umask: u16,
    pub(crate) is_exclusive: bool,
    /// To whom a new file is lent.
    pub(crate) lends: Option<ClientId>,
}

/// A file that its client has created by itself.
pub(crate) struct Numbered<'o> {
    pub(crate) under: Generation,
    pub(crate) number: u64,
    pub(crate) replicas: &'o Members,
    pub(crate) mode: u16,
    pub(crate) created: WallTime,
}

impl<T: Table> Draft<'_, T> {
    /// Creates an inode under a name, or finds what is there.
    pub(crate) fn create(
        &mut self,
        who: &Who,
        (dir_id, name): (InodeId, &Name),
        wanted: &Wanted<'_>,
    ) -> Result<Done, NameError> {
        let dir = self.directory(dir_id)?;
        self.allow((dir_id, &dir), who, Rights::EXECUTE)?;
        let kind = wanted.make.kind();
        if let Some(Entry { inode, .. }) = self.entry((dir_id, name)) {
            if wanted.is_exclusive || kind != Kind::File {
                return Err(NameError::Exists { inode });
            }
            return Ok(Done::Created { attributes: self.inode(inode)?.attributes(inode), is_new: false });
        }
        self.allow_new_name((dir_id, &dir), who)?;
        self.check_room((dir_id, &dir), who, kind)?;

        let id = InodeId::of(self.at);
        assert!(id != InodeId::ROOT && !self.has(&Key::Inode(id)), "{id} is the name of something else");
        let inode = self.made(id, (dir_id, &dir), who, wanted)?;
        self.put_new((id, inode), (dir_id, name))
    }

    /// Gives a new inode its name.
    fn put_new(
        &mut self,
        (id, inode): (InodeId, Inode),
        (dir, name): (InodeId, &Name),
    ) -> Result<Done, NameError> {
        let (kind, attributes) = (inode.kind(), inode.attributes(id));
        self.put_inode(id, inode);
        let mut volume = self.volume();
        volume.inodes += 1;
        self.put_volume(volume);
        self.put(Key::Entry(dir, name.clone()), Part::Entry(Entry { inode: id, kind }));
        self.change_entries(dir, 1, i8::from(kind == Kind::Directory))?;
        Ok(Done::Created { attributes, is_new: true })
    }

    /// Refuses a new name in a directory that is gone, or that `who` may not change.
    pub(crate) fn allow_new_name(&self, (id, dir): (InodeId, &Inode), who: &Who) -> Result<(), NameError> {
        if dir.links == 0 {
            return Err(NameError::NoEntry { dir: id });
        }
        self.allow((id, dir), who, Rights::CHANGE)
    }

    fn check_room(&self, (id, dir): (InodeId, &Inode), who: &Who, kind: Kind) -> Result<(), NameError> {
        let volume = self.volume();
        match kind {
            Kind::CharDevice | Kind::BlockDevice if !who.is_root() => {
                return Err(NameError::NotPermitted { inode: id });
            }
            Kind::Directory if dir.links >= LINKS_MAX => return Err(NameError::TooManyLinks { inode: id }),
            Kind::File => volume.check_space(0)?,
            _ => {}
        }
        if volume.inodes >= volume.inodes_max {
            return Err(NameError::NoInodes { inodes_max: volume.inodes_max });
        }
        Ok(())
    }

    /// A new inode with what it inherits.
    fn made(
        &mut self,
        id: InodeId,
        (dir_id, dir): (InodeId, &Inode),
        who: &Who,
        wanted: &Wanted<'_>,
    ) -> Result<Inode, NameError> {
        let kind = wanted.make.kind();
        let mut inode = self.blank(dir_id, wanted.make);
        inode.uid = who.uid();
        inode.gid = if dir.mode & SETGID == 0 { who.gid() } else { dir.gid };
        inode.mode = self.first_mode(dir, &inode, who, wanted);
        if kind != Kind::Symlink {
            let default = self.default_acl(dir_id, dir);
            if let Some(acl) = &default {
                let acl = acl.clone().inherited(inode.mode);
                inode.mode = inode.mode & !PERMISSIONS | acl.mode();
                if !acl.is_mode() {
                    inode.marks.acl_access = true;
                    self.give_acl((id, &mut inode), XattrName::acl_access(), &acl);
                }
            }
            if let Some(acl) = default.filter(|_| kind == Kind::Directory) {
                inode.marks.acl_default = true;
                self.give_acl((id, &mut inode), XattrName::acl_default(), &acl);
            }
        }
        if let Some(client) = wanted.lends {
            self.lend_new((id, &mut inode), client)?;
        }
        Ok(inode)
    }

    /// Whoever creates a file writes to it, mostly, and who creates a directory creates something there.
    fn lend_new(&mut self, (id, inode): (InodeId, &mut Inode), client: ClientId) -> Result<(), NameError> {
        // The first write to a file ends these, and nobody here hears of that.
        let gives_more = inode.mode & (SETUID | SETGID) != 0 || inode.marks.acl_default;
        if let Body::File { lent, .. } | Body::Directory { lent, .. } = &mut inode.body
            && !gives_more
        {
            *lent = Some(Lent { generation: Generation(self.at), to: LentTo::Client(client) });
            self.enter_lender(client, id)?;
        }
        Ok(())
    }

    /// Enters a file that its client has created before, under a lend of the directory.
    pub(crate) fn enter(
        &mut self,
        (who, client): (&Who, ClientId),
        (dir_id, name): (InodeId, &Name),
        file: &Numbered<'_>,
    ) -> Result<Done, NameError> {
        let dir = self.directory(dir_id)?;
        let under = Lent { generation: file.under, to: LentTo::Client(client) };
        // What would be given more than its mode has not been created like this.
        let gives_more = dir.mode & SETGID != 0 || dir.marks.acl_default;
        let is_its = dir.lent() == Some(under) && !gives_more;
        let is_free = |id: &InodeId| !self.has(&Key::Inode(*id)) && !self.has(&Key::Doomed(*id));
        let id = InodeId::under(file.under, file.number).filter(|id| is_its && is_free(id));
        let Some(id) = id else {
            return Err(NameError::NotLent { inode: dir_id, generation: file.under });
        };
        self.allow((dir_id, &dir), who, Rights::EXECUTE)?;
        if let Some(Entry { inode, .. }) = self.entry((dir_id, name)) {
            return Err(NameError::Exists { inode });
        }
        self.allow_new_name((dir_id, &dir), who)?;
        self.check_room((dir_id, &dir), who, Kind::File)?;
        let mut inode = self.blank(dir_id, &Make::File { replicas: file.replicas.clone() });
        (inode.uid, inode.gid, inode.mode) = (who.uid(), who.gid(), file.mode & PERMISSIONS);
        let created = file.created;
        (inode.atime, inode.mtime, inode.ctime, inode.btime) = (created, created, created, created);
        if let Body::File { lent, .. } = &mut inode.body {
            *lent = Some(under);
        }
        self.enter_lender(client, id)?;
        let done = self.put_new((id, inode), (dir_id, name))?;
        self.date_entries(dir_id, (dir.mtime, dir.ctime), created)?;
        Ok(done)
    }

    /// The mode before an access ACL takes from it.
    fn first_mode(&self, dir: &Inode, inode: &Inode, who: &Who, wanted: &Wanted<'_>) -> u16 {
        let umask = if dir.marks.acl_default { 0 } else { wanted.umask & PERMISSIONS };
        let mode = wanted.mode & !umask;
        match inode.kind() {
            Kind::Symlink => PERMISSIONS,
            // A directory is made set-group-ID by the one it is in, and by nobody else.
            Kind::Directory => mode & (PERMISSIONS | STICKY) | dir.mode & SETGID,
            // Nobody gets to run what is not theirs as a group that they do not belong to. What was asked for counts: the
            // right to execute may be given later, when the bit is there.
            _ if wanted.mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE
                && !(who.is_root() || who.is_in(inode.gid)) =>
            {
                mode & MODE_BITS & !SETGID
            }
            _ => mode & MODE_BITS,
        }
    }

    /// What is new in a directory, as it is made.
    fn blank(&self, dir: InodeId, make: &Make) -> Inode {
        let body = match make {
            Make::File { replicas } => {
                Body::File { size: 0, replicas: replicas.clone(), lent: None, last_lend: None }
            }
            Make::Directory => Body::Directory { parent: dir, entries: 0, lent: None },
            Make::Symlink { target } => Body::Symlink { target: target.detached() },
            Make::Fifo => Body::Fifo,
            Make::Socket => Body::Socket,
            Make::CharDevice { rdev } => Body::CharDevice { rdev: *rdev },
            Make::BlockDevice { rdev } => Body::BlockDevice { rdev: *rdev },
        };
        let links = if matches!(make, Make::Directory) { 2 } else { 1 };
        let now = self.time;
        let (atime, mtime, ctime, btime) = (now, now, now, now);
        let (uid, gid, mode, marks) = (0, 0, 0, Marks::default());
        let (holders, xattrs, xattr_bytes) = (0, 0, 0);
        Inode { mode, marks, uid, gid, links, holders, xattrs, xattr_bytes, atime, mtime, ctime, btime, body }
    }

    fn give_acl(&mut self, (id, inode): (InodeId, &mut Inode), name: XattrName, acl: &Acl) {
        self.store_xattr((id, inode), name, acl.to_bytes());
    }
}

impl Target {
    /// The same in memory of its own: what it came in may be much larger.
    fn detached(&self) -> Self {
        Self::new(Bytes::copy_from_slice(self.as_bytes())).expect("it is one already")
    }
}
