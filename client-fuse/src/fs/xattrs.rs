//! Extended attributes, ACLs among them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use namespace::{Answer, Ask, Change, InodeId, XattrHow, XattrName};

use super::{Fs, FsError};
use crate::caller::Caller;
use crate::mounts::PROCESS_XATTR;

impl Fs {
    /// What this mount says of itself, to whoever is about to unmount it.
    pub(crate) fn own_xattr(&self, number: u64, name: &OsStr) -> Option<Bytes> {
        let is_own = number == InodeId::ROOT.number && name == PROCESS_XATTR;
        is_own.then(|| std::process::id().to_string().into())
    }

    pub(crate) async fn xattr(&self, caller: &Caller, number: u64, name: &OsStr) -> Result<Bytes, FsError> {
        let inode = self.inodes.id(number)?;
        let ask = Ask::GetXattr { inode, name: xattr_name(name)? };
        let identity = self.now();
        let _returning = self.judged(&identity.volume, inode);
        match identity.volume.ask(&caller.who(), ask).await? {
            Answer::Value(value) => Ok(value),
            _ => Err(FsError::Mismatch),
        }
    }

    /// The names of all, each with a zero behind it.
    pub(crate) async fn xattrs(&self, caller: &Caller, number: u64) -> Result<Bytes, FsError> {
        let ask = Ask::ListXattrs { inode: self.inodes.id(number)? };
        let Answer::Names(names) = self.now().volume.ask(&caller.who(), ask).await? else {
            return Err(FsError::Mismatch);
        };
        Ok(names.iter().flat_map(|name| name.as_bytes().iter().copied().chain([0])).collect())
    }

    pub(crate) async fn set_xattr(
        &self,
        caller: &Caller,
        number: u64,
        (name, value, how): (&OsStr, Bytes, XattrHow),
    ) -> Result<(), FsError> {
        let inode = self.inodes.id(number)?;
        let _changing = self.changing([inode]);
        let change = Change::SetXattr { inode, name: xattr_name(name)?, value, how };
        Ok(self.now().volume.change(&caller.who(), change).await.map(drop)?)
    }

    pub(crate) async fn remove_xattr(
        &self,
        caller: &Caller,
        number: u64,
        name: &OsStr,
    ) -> Result<(), FsError> {
        let inode = self.inodes.id(number)?;
        let _changing = self.changing([inode]);
        let change = Change::RemoveXattr { inode, name: xattr_name(name)? };
        Ok(self.now().volume.change(&caller.who(), change).await.map(drop)?)
    }
}

fn xattr_name(name: &OsStr) -> Result<XattrName, FsError> {
    XattrName::new(name.as_bytes()).map_err(FsError::NotAnXattr)
}
