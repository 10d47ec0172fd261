//! Attributes that users set, and size and times that are lent.

use base::{ClientId, WallTime};

use crate::draft::Draft;
use crate::limits::{BYTES_MAX_DEFAULT, FILE_BYTES_MAX, MODE_BITS};
use crate::{
    Body, Change, Done, Generation, Given, Inode, InodeId, Key, Kind, Lent, LentTo, NameError, Part, Rights,
    SetAttributes, SetTime, Site, Table, Volume, Who, XattrName,
};

impl<T: Table> Draft<'_, T> {
    /// Sets attributes. Owner and group come first, then the mode, the size, and the times.
    pub(crate) fn set_attributes(
        &mut self,
        who: &Who,
        id: InodeId,
        set: &SetAttributes,
    ) -> Result<Done, NameError> {
        let found = self.inode(id)?;
        self.check_owners((id, &found), who, set)?;
        self.check_size((id, &found), who, set)?;
        self.check_times((id, &found), who, set)?;
        if let Body::File { lent: Some(Lent { generation, .. }), .. } = found.body
            && (set.size.is_some() || set.wants_back())
        {
            return Err(NameError::Lent { inode: id, generation });
        }
        if let (Some(size), Body::File { size: before, .. }) = (set.size, &found.body) {
            self.resize(*before, size)?;
        }

        let mut inode = Inode::clone(&found);
        inode.ctime = self.stamp(&inode);
        let now = inode.ctime;
        if set.uid.is_some() || set.gid.is_some() {
            self.set_owners((id, &mut inode), who, set);
        }
        if let Some(mode) = set.mode {
            self.set_mode((id, &mut inode), who, mode);
        }
        if let (Some(new), Body::File { size, .. }) = (set.size, &mut inode.body) {
            *size = new;
            inode.mtime = now;
            self.end_privileges((id, &mut inode), who);
        }
        inode.atime = set.atime.map_or(inode.atime, |time| time.at(now));
        inode.mtime = set.mtime.map_or(inode.mtime, |time| time.at(now));
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    fn check_owners(
        &self,
        (id, inode): (InodeId, &Inode),
        who: &Who,
        set: &SetAttributes,
    ) -> Result<(), NameError> {
        let is_owner = inode.is_owned_by(who);
        let may_uid = |uid| who.is_root() || is_owner && uid == inode.uid;
        let may_gid = |gid| who.is_root() || is_owner && (gid == inode.gid || who.is_in(gid));
        if set.uid.is_some_and(|uid| !may_uid(uid))
            || set.gid.is_some_and(|gid| !may_gid(gid))
            || set.mode.is_some() && !is_owner
        {
            return Err(NameError::NotPermitted { inode: id });
        }
        if set.mode.is_some() && inode.kind() == Kind::Symlink {
            return Err(NameError::NotSupported { inode: id });
        }
        Ok(())
    }

    fn check_size(
        &self,
        (id, inode): (InodeId, &Inode),
        who: &Who,
        set: &SetAttributes,
    ) -> Result<(), NameError> {
        let Some(size) = set.size else { return Ok(()) };
        match inode.kind() {
            Kind::File => {}
            Kind::Directory => return Err(NameError::IsDirectory { inode: id }),
            _ => return Err(NameError::WrongKind { inode: id }),
        }
        if !set.is_open {
            self.allow((id, inode), who, Rights::WRITE)?;
        }
        within(size)
    }

    /// Both to now may set who may write, and so the one that comes with a new size. Anything else only who owns.
    fn check_times(
        &self,
        (id, inode): (InodeId, &Inode),
        who: &Who,
        set: &SetAttributes,
    ) -> Result<(), NameError> {
        match (set.atime, set.mtime) {
            (None, None) => Ok(()),
            _ if inode.is_owned_by(who) => Ok(()),
            (Some(SetTime::Now), Some(SetTime::Now)) => self.allow((id, inode), who, Rights::WRITE),
            (None, Some(SetTime::Now)) if set.size.is_some() => self.allow((id, inode), who, Rights::WRITE),
            _ => Err(NameError::NotPermitted { inode: id }),
        }
    }

    fn set_mode(&mut self, (id, inode): (InodeId, &mut Inode), who: &Who, mode: u16) {
        inode.mode = mode & MODE_BITS;
        inode.end_foreign_set_gid(who);
        self.mode_into_acl((id, inode));
    }

    fn set_owners(&mut self, (id, inode): (InodeId, &mut Inode), who: &Who, set: &SetAttributes) {
        if !inode.is_directory() {
            inode.end_set_ids(who);
            self.end_capability((id, inode));
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
    }

    /// A file becomes longer or shorter, and is not lent.
    fn resize(&mut self, before: u64, size: u64) -> Result<(), NameError> {
        let mut volume = self.volume();
        volume.bytes = volume.bytes.saturating_sub(before.into());
        if size > before {
            volume.check_space(size)?;
        }
        volume.bytes += u128::from(size);
        self.put_volume(volume);
        Ok(())
    }

    /// Lends a file's size and times. Clients may have them lent to nobody but themselves.
    pub(crate) fn lend(
        &mut self,
        (who, client): (&Who, ClientId),
        id: InodeId,
        to: LentTo,
    ) -> Result<Done, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        if to.client().is_some_and(|to| to != client) {
            return Err(NameError::NotPermitted { inode: id });
        }
        match &mut inode.body {
            Body::File { lent: Some(lent), .. } if lent.to == to => {
                return Ok(Done::Changed { attributes: inode.attributes(id) });
            }
            Body::File { lent: Some(Lent { generation, .. }), .. } => {
                return Err(NameError::Lent { inode: id, generation: *generation });
            }
            Body::File { lent, .. } => *lent = Some(Lent { generation: Generation(self.at), to }),
            _ => return Err(NameError::WrongKind { inode: id }),
        }
        self.volume().check_space(0)?;
        if let LentTo::Client(client) = to {
            self.enter_lender(client, id)?;
        }
        let before = (inode.mode, inode.marks);
        self.end_privileges((id, &mut inode), who);
        if before != (inode.mode, inode.marks) {
            inode.ctime = self.stamp(&inode);
        }
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    /// Refuses somebody who has to know the permissions of a file that is lent to another client.
    pub(crate) fn refuse_others(&self, id: InodeId, client: ClientId) -> Result<(), NameError> {
        match self.inode(id)?.lent() {
            Some(Lent { generation, to: LentTo::Client(other) }) if other != client => {
                Err(NameError::Lent { inode: id, generation })
            }
            _ => Ok(()),
        }
    }

    /// Refuses somebody who has to know a directory that is lent to another client.
    pub(crate) fn refuse_dirs_of_others(&self, change: &Change, client: ClientId) -> Result<(), NameError> {
        match self.wants_dir(change, client) {
            Some((inode, Lent { generation, .. })) => Err(NameError::Lent { inode, generation }),
            None => Ok(()),
        }
    }

    /// A directory that a change is about and that is lent to another client.
    pub(crate) fn wants_dir(&self, change: &Change, client: ClientId) -> Option<(InodeId, Lent)> {
        let named = |site: &Site| self.entry((site.dir, &site.name)).map(|entry| entry.inode);
        let dirs = match change {
            Change::Create { dir, .. } | Change::Enter { dir, .. } | Change::Link { dir, .. } => {
                [Some(*dir), None, None]
            }
            Change::Unlink { site, .. } => [Some(site.dir), None, None],
            // What is to be gone has to be empty.
            Change::RemoveDirectory { site, .. } => [Some(site.dir), named(site), None],
            Change::Rename { from, to, .. } => [Some(from.dir), Some(to.dir), named(to)],
            Change::SetAttributes { inode, .. }
            | Change::SetXattr { inode, .. }
            | Change::RemoveXattr { inode, .. } => [Some(*inode), None, None],
            _ => [None; 3],
        };
        let others = |inode: InodeId| {
            let found = self.inode(inode).ok().filter(|found| found.is_directory())?;
            let lent = found.lent().filter(|lent| lent.to != LentTo::Client(client))?;
            Some((inode, lent))
        };
        dirs.into_iter().flatten().find_map(others)
    }

    /// Takes size and times back from whom they are lent to, and what the owner has set there.
    pub(crate) fn give_back(
        &mut self,
        who: &Who,
        (id, generation): (InodeId, Generation),
        (given, accessed, mode, changed): (Option<&Given>, Option<WallTime>, Option<u16>, Option<WallTime>),
    ) -> Result<Done, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        given.map_or(Ok(()), |given| within(given.size))?;
        if let Body::Directory { lent, .. } = inode.body {
            return self.end_dir_lend(
                (id, inode),
                lent.filter(|lent| lent.generation == generation),
                generation,
            );
        }
        let Body::File { size, lent, last_lend, .. } = &mut inode.body else {
            return Err(NameError::WrongKind { inode: id });
        };
        let Some(ended) = lent.take_if(|lent| lent.generation == generation) else {
            return Err(NameError::NotLent { inode: id, generation });
        };
        *last_lend = Some(generation);
        self.leave_lender(ended, id);
        if let Some(given) = given {
            let mut volume = self.volume();
            volume.bytes = volume.bytes.saturating_sub((*size).into()) + u128::from(given.size);
            *size = given.size;
            inode.mtime = given.mtime;
            // The cell was told of it later than it was done.
            inode.ctime = match changed {
                Some(_) => self.stamp_of(&inode, changed),
                None => inode.ctime.max(given.ctime),
            };
            self.put_volume(volume);
        }
        if let Some(accessed) = accessed {
            inode.atime = accessed;
            inode.ctime = self.stamp_of(&inode, changed);
        }
        self.return_mode((id, &mut inode), who, (mode, changed));
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    /// A client gives back what is lent to it. Unless the content was left alone that takes what the content says.
    pub(crate) fn return_lend(
        &mut self,
        (who, client): (&Who, ClientId),
        (id, generation): (InodeId, Generation),
        (modified, accessed, mode, changed): (
            Option<WallTime>,
            Option<WallTime>,
            Option<u16>,
            Option<WallTime>,
        ),
        is_untouched: bool,
    ) -> Result<Done, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        let its = Lent { generation, to: LentTo::Client(client) };
        if !matches!(inode.body, Body::File { .. } | Body::Directory { .. }) {
            return Err(NameError::WrongKind { inode: id });
        }
        if inode.lent() != Some(its) {
            // What was set under it never will be.
            return match accessed.is_some() || mode.is_some() {
                true => Err(NameError::NotLent { inode: id, generation }),
                false => Ok(Done::Changed { attributes: inode.attributes(id) }),
            };
        }
        let Body::File { lent, .. } = &mut inode.body else {
            return self.end_dir_lend((id, inode), Some(its), generation);
        };
        if !is_untouched {
            return Err(NameError::Lent { inode: id, generation });
        }
        *lent = None;
        self.leave_lender(its, id);
        if modified.or(accessed).is_some() {
            inode.mtime = modified.unwrap_or(inode.mtime);
            inode.atime = accessed.unwrap_or(inode.atime);
            inode.ctime = self.stamp_of(&inode, changed);
        }
        self.return_mode((id, &mut inode), who, (mode, changed));
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    /// A directory is its client's no more.
    fn end_dir_lend(
        &mut self,
        (id, mut inode): (InodeId, Inode),
        ended: Option<Lent>,
        generation: Generation,
    ) -> Result<Done, NameError> {
        let Some(ended) = ended else { return Err(NameError::NotLent { inode: id, generation }) };
        if let Body::Directory { lent, .. } = &mut inode.body {
            *lent = None;
        }
        self.leave_lender(ended, id);
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    /// The permissions that an owner has given a file that was lent. Whoever does not own it has set none: a client may not say otherwise.
    fn return_mode(
        &mut self,
        (id, inode): (InodeId, &mut Inode),
        who: &Who,
        (mode, changed): (Option<u16>, Option<WallTime>),
    ) {
        if let Some(mode) = mode.filter(|_| inode.is_owned_by(who)) {
            self.set_mode((id, inode), who, mode);
            inode.ctime = self.stamp_of(inode, changed);
        }
    }

    /// A file is lent to a client, which is on record until it ends.
    pub(crate) fn enter_lender(&mut self, client: ClientId, id: InodeId) -> Result<(), NameError> {
        if !self.record(client)? {
            return Err(NameError::Expired { client });
        }
        self.put(Key::Lender(client, id), Part::Mark);
        Ok(())
    }

    /// What was lent is given back, or gone.
    pub(crate) fn leave_lender(&mut self, lent: Lent, id: InodeId) {
        if let LentTo::Client(client) = lent.to {
            self.remove(Key::Lender(client, id));
        }
    }

    /// The content of a file changes, and so nobody runs it as somebody else any more.
    fn end_privileges(&mut self, (id, inode): (InodeId, &mut Inode), who: &Who) {
        if !who.is_root() {
            inode.end_set_ids(who);
        }
        self.end_capability((id, inode));
    }

    fn end_capability(&mut self, (id, inode): (InodeId, &mut Inode)) {
        if inode.marks.capability {
            inode.marks.capability = false;
            self.drop_xattr((id, inode), XattrName::capability());
        }
    }

    /// What the mode says now, the ACL says, too.
    fn mode_into_acl(&mut self, (id, inode): (InodeId, &mut Inode)) {
        if let Some(acl) = self.acl(id, inode) {
            let bytes = acl.with_mode(inode.mode).to_bytes();
            self.store_xattr((id, inode), XattrName::acl_access(), bytes);
        }
    }
}

impl Volume {
    /// Refuses more when there is no room for any, or none for as much. Holes count, so a few files come to more than any number of 64 bits:
    /// a volume without a limit has none.
    pub(crate) fn check_space(&self, more: u64) -> Result<(), NameError> {
        let (bytes_max, bytes) = (self.bytes_max, self.bytes + u128::from(more));
        if bytes_max == BYTES_MAX_DEFAULT {
            return Ok(());
        }
        if bytes > bytes_max.into() || more == 0 && bytes == u128::from(bytes_max) {
            return Err(NameError::NoSpace { bytes_max });
        }
        Ok(())
    }
}

impl SetTime {
    fn at(self, now: WallTime) -> WallTime {
        match self {
            Self::Now => now,
            Self::To(time) => time,
        }
    }
}

const fn within(size: u64) -> Result<(), NameError> {
    if size > FILE_BYTES_MAX { Err(NameError::TooLong { size }) } else { Ok(()) }
}
