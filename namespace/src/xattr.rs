//! Extended attributes, and the ACLs among them.

use std::sync::Arc;

use bytes::Bytes;

use crate::access::STICKY;
use crate::acl::Acl;
use crate::draft::Draft;
use crate::limits::{MODE_BITS, XATTR_BYTES_MAX, XATTRS_MAX};
use crate::{
    Body, CAPABILITY, Done, Inode, InodeId, Key, Kind, Lent, Marks, NameError, Part, Rights, Space, Table,
    Who, XattrHow, XattrName,
};

const PERMISSIONS: u16 = 0o777;

impl<T: Table> Draft<'_, T> {
    /// Sets an extended attribute.
    pub(crate) fn set_xattr(
        &mut self,
        who: &Who,
        (id, name): (InodeId, &XattrName),
        (value, how): (&Bytes, XattrHow),
    ) -> Result<Done, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        self.allow_xattr((id, &inode), who, name, true)?;
        // The next write ends them, and is known here when it is lent anew.
        if let Body::File { lent: Some(Lent { generation, .. }), .. } = inode.body
            && name.as_bytes() == CAPABILITY
        {
            return Err(NameError::Lent { inode: id, generation });
        }
        let bytes = xattr_bytes(name, value);
        if bytes > XATTR_BYTES_MAX {
            return Err(NameError::XattrTooLong { bytes });
        }
        let has = self.value(id, name.clone()).is_some();
        match how {
            XattrHow::Create if has => return Err(NameError::XattrExists { inode: id }),
            XattrHow::Replace if !has => return Err(NameError::NoXattr { inode: id }),
            _ => {}
        }
        match name.space() {
            Space::AclAccess | Space::AclDefault => {
                let acl = Acl::parse(value)?;
                self.set_acl((id, &mut inode), who, name, acl)?;
            }
            _ => self.put_xattr((id, &mut inode), name.clone(), Bytes::copy_from_slice(value))?,
        }
        inode.marks.note(name, self.value(id, name.clone()).is_some());
        inode.ctime = self.stamp(&inode);
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    /// Takes an extended attribute away. The mode stays as its ACL has made it.
    pub(crate) fn remove_xattr(
        &mut self,
        who: &Who,
        (id, name): (InodeId, &XattrName),
    ) -> Result<Done, NameError> {
        let mut inode = Inode::clone(&*self.inode(id)?);
        self.allow_xattr((id, &inode), who, name, true)?;
        if self.value(id, name.clone()).is_none() {
            return Err(NameError::NoXattr { inode: id });
        }
        self.drop_xattr((id, &mut inode), name.clone());
        inode.marks.note(name, false);
        inode.ctime = self.stamp(&inode);
        let attributes = inode.attributes(id);
        self.put_inode(id, inode);
        Ok(Done::Changed { attributes })
    }

    /// Refuses what `who` may not do with an extended attribute.
    pub(crate) fn allow_xattr(
        &self,
        (id, inode): (InodeId, &Inode),
        who: &Who,
        name: &XattrName,
        is_change: bool,
    ) -> Result<(), NameError> {
        let refused = Err(NameError::NotPermitted { inode: id });
        let kind = inode.kind();
        match (name.space(), is_change) {
            (Space::User, _) if !matches!(kind, Kind::File | Kind::Directory) => {
                if is_change {
                    refused
                } else {
                    Err(NameError::NoXattr { inode: id })
                }
            }
            (Space::User, true)
                if inode.mode & STICKY != 0 && inode.is_directory() && !inode.is_owned_by(who) =>
            {
                refused
            }
            (Space::User, true) => self.allow((id, inode), who, Rights::WRITE),
            (Space::User, false) => self.allow((id, inode), who, Rights::READ),
            (Space::Trusted | Space::Security, true) if !who.is_root() => refused,
            (Space::Trusted, false) if !who.is_root() => Err(NameError::NoXattr { inode: id }),
            (Space::Trusted | Space::Security, _) => Ok(()),
            (Space::AclAccess | Space::AclDefault, _) if kind == Kind::Symlink => {
                Err(NameError::NotSupported { inode: id })
            }
            (Space::AclAccess | Space::AclDefault, true) => self.allow_owner((id, inode), who),
            (Space::AclAccess | Space::AclDefault, false) => Ok(()),
        }
    }

    /// Sets an ACL. An access ACL that says no more than a mode does becomes the mode.
    fn set_acl(
        &mut self,
        (id, inode): (InodeId, &mut Inode),
        who: &Who,
        name: &XattrName,
        acl: Option<Acl>,
    ) -> Result<(), NameError> {
        let is_access = name.space() == Space::AclAccess;
        if !is_access && !inode.is_directory() {
            return if acl.is_some() { Err(NameError::Denied { inode: id }) } else { Ok(()) };
        }
        if let Some(acl) = acl.as_ref().filter(|_| is_access) {
            inode.mode = inode.mode & MODE_BITS & !PERMISSIONS | acl.mode();
            inode.end_foreign_set_gid(who);
        }
        match acl.filter(|acl| !(is_access && acl.is_mode())) {
            Some(acl) => self.put_xattr((id, inode), name.clone(), acl.to_bytes()),
            None => {
                self.drop_xattr((id, inode), name.clone());
                Ok(())
            }
        }
    }

    /// Stores a value if there is room for it.
    fn put_xattr(
        &mut self,
        (id, inode): (InodeId, &mut Inode),
        name: XattrName,
        value: Bytes,
    ) -> Result<(), NameError> {
        let before = self.value(id, name.clone()).map(|before| xattr_bytes(&name, &before));
        // A count on a disk that has gone wrong may be too small.
        let others = u64::from(inode.xattr_bytes).saturating_sub(before.unwrap_or(0));
        let bytes = others + xattr_bytes(&name, &value);
        if bytes > XATTR_BYTES_MAX || before.is_none() && inode.xattrs >= XATTRS_MAX {
            return Err(NameError::NoXattrSpace { inode: id });
        }
        self.store_xattr((id, inode), name, value);
        Ok(())
    }

    /// Stores a value that there is room for.
    pub(crate) fn store_xattr(&mut self, (id, inode): (InodeId, &mut Inode), name: XattrName, value: Bytes) {
        self.drop_xattr((id, inode), name.clone());
        inode.xattrs += 1;
        inode.xattr_bytes += count(&name, &value);
        self.put(Key::Xattr(id, name), Part::Value(Arc::new(value)));
    }

    /// Takes a value away, if it is there.
    pub(crate) fn drop_xattr(&mut self, (id, inode): (InodeId, &mut Inode), name: XattrName) {
        if let Some(before) = self.value(id, name.clone()) {
            inode.xattrs = inode.xattrs.saturating_sub(1);
            inode.xattr_bytes = inode.xattr_bytes.saturating_sub(count(&name, &before));
            self.remove(Key::Xattr(id, name));
        }
    }
}

impl Marks {
    fn note(&mut self, name: &XattrName, has: bool) {
        match name.space() {
            Space::AclAccess => self.acl_access = has,
            Space::AclDefault => self.acl_default = has,
            Space::Security if name.as_bytes() == CAPABILITY => self.capability = has,
            Space::User | Space::Trusted | Space::Security => {}
        }
    }
}

fn xattr_bytes(name: &XattrName, value: &Bytes) -> u64 {
    (name.as_bytes().len() + value.len()) as u64
}

fn count(name: &XattrName, value: &Bytes) -> u32 {
    u32::try_from(xattr_bytes(name, value)).expect("no attribute is as long as that")
}
