//! Attributes of inodes.

use std::time::Duration;

use base::WallTime;
use namespace::{Attributes, Change, Done, InodeId, SetAttributes, SetTime, Who};

use super::{Fs, FsError, Shown};
use crate::caller::Caller;

/// The bits of a mode that let whoever runs a file be somebody else.
const SET_ID_BITS: u16 = 0o6000;

/// What attributes shall be. What is absent stays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) mode: Option<u16>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<SetTime>,
    pub(crate) mtime: Option<SetTime>,
    /// The open file through which this is asked for.
    pub(crate) handle: Option<u64>,
}

impl Fs {
    pub(crate) async fn attributes(&self, number: u64) -> Result<Shown, FsError> {
        let inode = self.inodes.id(number)?;
        let asked = async { self.completed(self.now().volume.attributes(inode).await?).await };
        match asked.await {
            // Another mount has removed it since its name was looked up. What is open has to be there.
            Err(error) if error.says_gone() && self.files.find(inode).is_none() => {
                Ok((self.inodes.gone(inode).ok_or(error)?, Duration::ZERO))
            }
            asked => Ok(self.with_time(asked?)),
        }
    }

    /// Sets attributes. The size is the content's, and comes first: it moves times that may be set with it.
    pub(crate) async fn set_attributes(
        &self,
        caller: &Caller,
        number: u64,
        wanted: Wanted,
    ) -> Result<Attributes, FsError> {
        let inode = self.inodes.id(number)?;
        let who = caller.who();
        if let Some(size) = wanted.size {
            self.truncate(&who, (number, wanted.handle), size).await?;
        }
        let Wanted { mode, uid, gid, atime, mtime, .. } = wanted;
        let set = SetAttributes { mode, uid, gid, size: None, atime, mtime, is_open: false };
        let (who, set) = if set == SetAttributes::default() {
            let (is, _) = self.attributes(number).await?;
            if is.mode & SET_ID_BITS == 0 {
                return Ok(is);
            }
            // Whoever changes the content, or sets no owner, sets the one that it has, and that ends set-user-ID and set-group-ID. It need not be
            // his.
            (&self.root, SetAttributes { uid: Some(is.uid), ..set })
        } else {
            (&who, set)
        };
        let attributes = self.set(who, inode, set).await?;
        self.completed_at_once(attributes).await
    }

    /// The same, if nobody has to be asked for that.
    pub(crate) fn set_attributes_at_once(
        &self,
        caller: &Caller,
        number: u64,
        wanted: &Wanted,
    ) -> Option<Attributes> {
        let &Wanted { mode, uid, gid, size: None, atime, mtime, .. } = wanted else { return None };
        let (inode, identity) = (self.inodes.id(number).ok()?, self.now());
        let set = SetAttributes { mode, uid, gid, size: None, atime, mtime, is_open: false };
        let _changing = self.changing([inode]);
        identity.volume.set_own(&caller.who(), inode, set)
    }

    async fn set(&self, who: &Who, inode: InodeId, set: SetAttributes) -> Result<Attributes, FsError> {
        let change = Change::SetAttributes { inode, set };
        let _changing = self.changing([inode]);
        match self.now().volume.change(who, change).await? {
            Done::Changed { attributes } => Ok(attributes),
            _ => Err(FsError::Mismatch),
        }
    }
}

/// A time as the volume keeps it: whole microseconds, none before 1970.
pub(crate) fn set_time(since_1970: Option<Duration>) -> SetTime {
    let micros = since_1970.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    SetTime::To(WallTime::from_micros(micros))
}
