//! Who may do what.

use crate::acl::Acl;
use crate::draft::Draft;
use crate::{Inode, InodeId, NameError, Rights, Table, Who, XattrName};

/// Set-user-ID: a program runs as its owner.
pub(crate) const SETUID: u16 = 0o4000;
/// Set-group-ID: a program runs as its group; what is created in a directory belongs to the directory's.
pub(crate) const SETGID: u16 = 0o2000;
/// Who may read, write and execute.
pub(crate) const PERMISSIONS: u16 = 0o777;
/// Only owners take away what is in the directory.
pub(crate) const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;
const ANY_EXECUTE: u16 = 0o111;

impl Inode {
    /// Whether somebody has the rights of its owner.
    pub(crate) const fn is_owned_by(&self, who: &Who) -> bool {
        who.is_root() || who.uid() == self.uid
    }

    /// What the mode alone says.
    fn allows(&self, who: &Who, rights: Rights) -> bool {
        let shift = match () {
            () if who.uid() == self.uid => 6,
            () if who.is_in(self.gid) => 3,
            () => 0,
        };
        rights.bits() & !(self.mode >> shift) == 0
    }

    /// A change by `who` ends what the mode gives to those who run it. A set-group-ID bit without the right to execute meant
    /// something else once, and stays for members of the group.
    pub(crate) fn end_set_ids(&mut self, who: &Who) {
        self.mode &= !SETUID;
        if self.mode & GROUP_EXECUTE != 0 || !(who.is_root() || who.is_in(self.gid)) {
            self.mode &= !SETGID;
        }
    }

    /// Only members of its group, and root, make it set-group-ID.
    pub(crate) fn end_foreign_set_gid(&mut self, who: &Who) {
        if !(who.is_root() || who.is_in(self.gid)) {
            self.mode &= !SETGID;
        }
    }
}

impl<T: Table> Draft<'_, T> {
    /// Refuses what `who` may not do to an inode.
    pub(crate) fn allow(
        &self,
        (id, inode): (InodeId, &Inode),
        who: &Who,
        rights: Rights,
    ) -> Result<(), NameError> {
        let is_allowed = if who.is_root() {
            !rights.execute || inode.is_directory() || inode.mode & ANY_EXECUTE != 0
        } else {
            match self.acl(id, inode) {
                Some(acl) => acl.allows(inode, who, rights),
                None => inode.allows(who, rights),
            }
        };
        if is_allowed { Ok(()) } else { Err(NameError::Denied { inode: id }) }
    }

    /// Refuses what only the owner of an inode and root may.
    pub(crate) fn allow_owner(&self, (id, inode): (InodeId, &Inode), who: &Who) -> Result<(), NameError> {
        if inode.is_owned_by(who) { Ok(()) } else { Err(NameError::NotPermitted { inode: id }) }
    }

    /// Refuses to take something's name in a directory away.
    pub(crate) fn allow_removal(
        &self,
        (dir_id, dir): (InodeId, &Inode),
        (id, inode): (InodeId, &Inode),
        who: &Who,
    ) -> Result<(), NameError> {
        self.allow((dir_id, dir), who, Rights::CHANGE)?;
        if dir.mode & STICKY != 0 && !inode.is_owned_by(who) && !dir.is_owned_by(who) {
            return Err(NameError::NotPermitted { inode: id });
        }
        Ok(())
    }

    /// The access ACL of an inode, if it has one.
    pub(crate) fn acl(&self, id: InodeId, inode: &Inode) -> Option<Acl> {
        if inode.marks.acl_access { self.parsed(id, XattrName::acl_access()) } else { None }
    }

    /// The default ACL of a directory, if it has one.
    pub(crate) fn default_acl(&self, id: InodeId, inode: &Inode) -> Option<Acl> {
        if inode.marks.acl_default { self.parsed(id, XattrName::acl_default()) } else { None }
    }

    /// What stands in the table was parsed when it came in.
    fn parsed(&self, id: InodeId, name: XattrName) -> Option<Acl> {
        self.value(id, name).and_then(|bytes| Acl::parse(&bytes).ok().flatten())
    }
}
