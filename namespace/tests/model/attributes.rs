//! Setting attributes; lending size and times, and getting them back.

use base::{ClientId, WallTime};
use namespace::{
    Born, Change, Done, Generation, Given, InodeId, Kind, Lent, LentTo, NameError, Op, Rights, SetAttributes,
    SetTime, Who, XattrName, limits,
};

use crate::access::Acl;
use crate::state::{Model, Node};

impl Model {
    pub(crate) fn set_attributes(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::SetAttributes { inode, set } = op.change else { unreachable!("it is asked to set them") };
        self.may_set(inode, &set, &op.who)?;
        let node = self.node_mut(inode);
        if set.uid.is_some() || set.gid.is_some() {
            node.chown(&set, &op.who);
        }
        if let Some(mode) = set.mode {
            node.chmod(mode, &op.who);
        }
        node.mark(op.time);
        if let Some(size) = set.size {
            node.size = size;
            node.mark_content(op.time);
            node.end_privileges(&op.who);
        }
        let now = node.ctime;
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        node.atime = set.atime.map_or(node.atime, time);
        node.mtime = set.mtime.map_or(node.mtime, time);
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }

    fn may_set(&self, inode: InodeId, set: &SetAttributes, who: &Who) -> Result<(), NameError> {
        let node = self.node(inode)?;
        let keeps_owner = set.uid.is_none_or(|uid| uid == node.uid);
        if set.uid.is_some() && !who.is_root() && !(keeps_owner && node.is_owned_by(who)) {
            return Err(NameError::NotPermitted { inode });
        }
        if let Some(gid) = set.gid {
            let is_own = who.is_root() || gid == node.gid || who.is_in(gid);
            if !is_own || !node.is_owned_by(who) {
                return Err(NameError::NotPermitted { inode });
            }
        }
        if set.mode.is_some() {
            node.need_owner(who, inode)?;
        }
        if set.mode.is_some() && node.kind == Kind::Symlink {
            return Err(NameError::NotSupported { inode });
        }
        if set.size.is_some() {
            node.is_file(inode)?;
        }
        if set.size.is_some() && !set.is_open {
            node.need(who, Rights::WRITE, inode)?;
        }
        let size = set.size.unwrap_or(node.size);
        if size > limits::FILE_BYTES_MAX {
            return Err(NameError::TooLong { size });
        }
        node.may_set_times(inode, set, who)?;
        let sets_id = set.mode.is_some_and(|mode| mode & 0o6000 != 0);
        let needs_back = set.size.is_some() || set.mtime.is_some() || set.atime.is_some() || sets_id;
        if let Some(Lent { generation, .. }) = node.lent.filter(|_| needs_back && node.kind == Kind::File) {
            return Err(NameError::Lent { inode, generation });
        }
        let grows = size > node.size;
        if grows && self.bytes() - u128::from(node.size) + u128::from(size) > self.room() {
            return Err(NameError::NoSpace { bytes_max: self.bytes_max });
        }
        Ok(())
    }

    pub(crate) fn lend(
        &mut self,
        at: Born,
        op: &Op,
        (inode, to): (InodeId, LentTo),
    ) -> Result<Done, NameError> {
        let node = self.node(inode)?;
        if to != LentTo::Content && to != LentTo::Client(op.client) {
            return Err(NameError::NotPermitted { inode });
        }
        node.has_content(inode)?;
        if node.lent.is_some_and(|lent| lent.to == to) {
            return Ok(Done::Changed { attributes: self.attributes(inode)? });
        }
        if let Some(Lent { generation, .. }) = node.lent {
            return Err(NameError::Lent { inode, generation });
        }
        if self.bytes() >= self.room() {
            return Err(NameError::NoSpace { bytes_max: self.bytes_max });
        }
        if to != LentTo::Content {
            self.record(op.client)?;
        }
        let node = self.node_mut(inode);
        node.lent = Some(Lent { generation: Generation(at), to });
        if node.end_privileges(&op.who) {
            node.mark(op.time);
        }
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }

    pub(crate) fn give_back(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::GiveBack { inode, generation, given, accessed, mode, changed } = op.change else {
            unreachable!("it is asked to take them back")
        };
        let node = self.node(inode)?;
        if let Some(Given { size, .. }) = given
            && size > limits::FILE_BYTES_MAX
        {
            return Err(NameError::TooLong { size });
        }
        node.may_be_lent(inode)?;
        if node.lent.is_none_or(|lent| lent.generation != generation) {
            return Err(NameError::NotLent { inode, generation });
        }
        let node = self.node_mut(inode);
        if node.is_directory() {
            // Its size and times were never lent.
            node.lent = None;
            return Ok(Done::Changed { attributes: self.attributes(inode)? });
        }
        (node.lent, node.last_lend) = (None, Some(generation));
        if let Some(Given { size, mtime, ctime }) = given {
            (node.size, node.mtime) = (size, mtime);
            node.mark(changed.map_or(ctime, |changed| changed.min(op.time)));
        }
        if let Some(accessed) = accessed {
            node.atime = accessed;
            node.mark(returned_at(changed, op));
        }
        node.return_mode((mode, changed), op);
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }

    /// Who has to know the permissions of a file waits until another client has given it back.
    pub(crate) fn knows_mode(&self, inode: InodeId, op: &Op) -> Result<(), NameError> {
        match self.node(inode)?.lent {
            Some(Lent { generation, to: LentTo::Client(client) }) if client != op.client => {
                Err(NameError::Lent { inode, generation })
            }
            _ => Ok(()),
        }
    }
}

impl Model {
    /// What was left alone is given back at once, with what a user has set. What is not the client's any more stays as it is, and what a user
    /// has set of it is refused.
    pub(crate) fn return_lend(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::Return { inode, generation, modified, accessed, mode, changed, is_untouched } = op.change
        else {
            unreachable!("it is asked to return it")
        };
        let node = self.node(inode)?;
        node.may_be_lent(inode)?;
        if node.lent == Some(Lent { generation, to: LentTo::Client(op.client) }) {
            if node.is_directory() {
                self.node_mut(inode).lent = None;
                return Ok(Done::Changed { attributes: self.attributes(inode)? });
            }
            if !is_untouched {
                return Err(NameError::Lent { inode, generation });
            }
            let node = self.node_mut(inode);
            node.lent = None;
            if let Some(modified) = modified {
                node.mtime = modified;
            }
            if let Some(accessed) = accessed {
                node.atime = accessed;
            }
            if modified.is_some() || accessed.is_some() {
                node.mark(returned_at(changed, op));
            }
            node.return_mode((mode, changed), op);
        } else if accessed.is_some() || mode.is_some() {
            return Err(NameError::NotLent { inode, generation });
        }
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }
}

impl Node {
    pub(crate) fn is_lent_to(&self, client: ClientId) -> bool {
        self.lent.is_some_and(|lent| lent.to == LentTo::Client(client))
    }

    /// Permissions that came back with a lend, if it is the owner who has set them.
    fn return_mode(&mut self, (mode, changed): (Option<u16>, Option<WallTime>), op: &Op) {
        if let Some(mode) = mode
            && self.is_owned_by(&op.who)
        {
            self.chmod(mode, &op.who);
            self.mark(returned_at(changed, op));
        }
    }

    fn has_content(&self, inode: InodeId) -> Result<(), NameError> {
        if self.kind == Kind::File { Ok(()) } else { Err(NameError::WrongKind { inode }) }
    }

    fn may_be_lent(&self, inode: InodeId) -> Result<(), NameError> {
        if self.is_directory() { Ok(()) } else { self.has_content(inode) }
    }

    fn is_file(&self, inode: InodeId) -> Result<(), NameError> {
        match self.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(NameError::IsDirectory { inode }),
            _ => Err(NameError::WrongKind { inode }),
        }
    }

    /// Setting times is the owner's. To set both to now it is enough to be allowed to write; so it is for the time that
    /// comes with a new size.
    fn may_set_times(&self, inode: InodeId, set: &SetAttributes, who: &Who) -> Result<(), NameError> {
        let now = Some(SetTime::Now);
        match (set.atime, set.mtime) {
            (None, None) => Ok(()),
            _ if self.is_owned_by(who) => Ok(()),
            (atime, mtime) if mtime == now && (atime == now || atime.is_none() && set.size.is_some()) => {
                self.need(who, Rights::WRITE, inode)
            }
            _ => Err(NameError::NotPermitted { inode }),
        }
    }

    /// A change of owner or group ends what a program may do beyond its user, for root as for others.
    fn chown(&mut self, set: &SetAttributes, who: &Who) {
        if !self.is_directory() {
            self.xattrs.remove(&XattrName::capability());
            self.end_set_ids(who);
        }
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
    }

    /// Set-group-ID without the right to execute means something else, and stays for members of the group.
    fn end_set_ids(&mut self, who: &Who) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 || !who.is_root() && !who.is_in(self.gid) {
            self.mode &= !0o2000;
        }
    }

    fn chmod(&mut self, mode: u16, who: &Who) {
        self.mode = mode & 0o7777;
        if !who.is_root() && !who.is_in(self.gid) {
            self.mode &= !0o2000;
        }
        if let Some(acl) = &mut self.acl {
            acl.chmod(mode);
        }
    }

    /// The mode follows an access ACL.
    pub(crate) fn set_acl(&mut self, acl: Acl, who: &Who) {
        self.chmod(self.mode & 0o7000 | acl.mode(), who);
        self.acl = acl.unless_mode();
    }

    /// A change of content does the same, but for root it ends capabilities only. Whether there was anything to end.
    fn end_privileges(&mut self, who: &Who) -> bool {
        let (had_some, mode) = (self.xattrs.remove(&XattrName::capability()).is_some(), self.mode);
        if !who.is_root() {
            self.end_set_ids(who);
        }
        had_some || self.mode != mode
    }
}

/// When something was changed that comes back now.
fn returned_at(changed: Option<WallTime>, op: &Op) -> WallTime {
    changed.map_or(op.time, |changed| changed.min(op.time))
}
