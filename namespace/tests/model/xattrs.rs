//! Extended attributes and ACLs, as `xattr(7)` and `acl(5)` tell it.

use bytes::Bytes;
use namespace::{
    Change, Done, InodeId, Kind, Lent, NameError, Op, Rights, Space, Who, XattrHow, XattrName, limits,
};

use crate::access::Acl;
use crate::state::{Model, Node};

impl Model {
    pub(crate) fn set_xattr(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::SetXattr { inode, ref name, ref value, how } = op.change else {
            unreachable!("it is asked to set one")
        };
        let node = self.node(inode)?;
        node.may_change_xattr(inode, name, &op.who)?;
        let is_ended = node.kind == Kind::File && name.as_bytes() == b"security.capability";
        if let Some(Lent { generation, .. }) = node.lent.filter(|_| is_ended) {
            return Err(NameError::Lent { inode, generation });
        }
        let length = (name.as_bytes().len() + value.len()) as u64;
        if length > limits::XATTR_BYTES_MAX {
            return Err(NameError::XattrTooLong { bytes: length });
        }
        let old = node.xattr(name);
        match (how, &old) {
            (XattrHow::Create, Some(_)) => return Err(NameError::XattrExists { inode }),
            (XattrHow::Replace, None) => return Err(NameError::NoXattr { inode }),
            _ => {}
        }
        let acl = match name.space() {
            Space::AclAccess | Space::AclDefault => Some(Acl::parse(value)?),
            _ => None,
        };
        let is_misplaced = name.space() == Space::AclDefault && !node.is_directory();
        if is_misplaced && matches!(acl, Some(Some(_))) {
            return Err(NameError::Denied { inode });
        }
        let old_length = old.map_or(0, |old| (name.as_bytes().len() + old.len()) as u64);
        if node.xattr_bytes() - old_length + length > limits::XATTR_BYTES_MAX {
            return Err(NameError::NoXattrSpace { inode });
        }
        let node = self.node_mut(inode);
        match (name.space(), acl.flatten()) {
            (Space::AclAccess, Some(acl)) => node.set_acl(acl, &op.who),
            (Space::AclAccess, None) => node.acl = None,
            (Space::AclDefault, acl) => node.default_acl = acl,
            _ => {
                node.xattrs.insert(name.clone(), value.clone());
            }
        }
        node.mark(op.time);
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }

    pub(crate) fn remove_xattr(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::RemoveXattr { inode, ref name } = op.change else {
            unreachable!("it is asked to remove one")
        };
        let node = self.node(inode)?;
        node.may_change_xattr(inode, name, &op.who)?;
        node.xattr(name).ok_or(NameError::NoXattr { inode })?;
        let node = self.node_mut(inode);
        match name.space() {
            Space::AclAccess => node.acl = None,
            Space::AclDefault => node.default_acl = None,
            _ => {
                node.xattrs.remove(name);
            }
        }
        node.mark(op.time);
        Ok(Done::Changed { attributes: self.attributes(inode)? })
    }

    pub(crate) fn get_xattr(&self, inode: InodeId, name: &XattrName, who: &Who) -> Result<Bytes, NameError> {
        let node = self.node(inode)?;
        match name.space() {
            Space::User if !node.has_user_xattrs() => return Err(NameError::NoXattr { inode }),
            Space::User => node.need(who, Rights::READ, inode)?,
            Space::Trusted if !who.is_root() => return Err(NameError::NoXattr { inode }),
            Space::AclAccess | Space::AclDefault if node.kind == Kind::Symlink => {
                return Err(NameError::NotSupported { inode });
            }
            _ => {}
        }
        node.xattr(name).ok_or(NameError::NoXattr { inode })
    }

    pub(crate) fn list_xattrs(&self, inode: InodeId, who: &Who) -> Result<Vec<XattrName>, NameError> {
        let names = self.node(inode)?.all_xattrs().into_iter().map(|(name, _)| name);
        Ok(names.filter(|name| who.is_root() || name.space() != Space::Trusted).collect())
    }
}

impl Node {
    fn has_user_xattrs(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Directory)
    }

    fn may_change_xattr(&self, inode: InodeId, name: &XattrName, who: &Who) -> Result<(), NameError> {
        let refused = Err(NameError::NotPermitted { inode });
        match name.space() {
            Space::User if !self.has_user_xattrs() => refused,
            Space::User if self.is_directory() && self.mode & 0o1000 != 0 && !self.is_owned_by(who) => {
                refused
            }
            Space::User => self.need(who, Rights::WRITE, inode),
            Space::Trusted | Space::Security if !who.is_root() => refused,
            Space::Trusted | Space::Security => Ok(()),
            Space::AclAccess | Space::AclDefault if self.kind == Kind::Symlink => {
                Err(NameError::NotSupported { inode })
            }
            Space::AclAccess | Space::AclDefault => self.need_owner(who, inode),
        }
    }

    fn xattr(&self, name: &XattrName) -> Option<Bytes> {
        self.all_xattrs().into_iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// All of them in order, the ACLs included.
    fn all_xattrs(&self) -> Vec<(XattrName, Bytes)> {
        let acls = [(XattrName::acl_access(), &self.acl), (XattrName::acl_default(), &self.default_acl)];
        let acls = acls.into_iter().filter_map(|(name, acl)| Some((name, acl.as_ref()?.to_bytes())));
        let mut all: Vec<(XattrName, Bytes)> =
            self.xattrs.iter().map(|(name, value)| (name.clone(), value.clone())).chain(acls).collect();
        all.sort();
        all
    }

    fn xattr_bytes(&self) -> u64 {
        self.all_xattrs().iter().map(|(name, value)| (name.as_bytes().len() + value.len()) as u64).sum()
    }
}
