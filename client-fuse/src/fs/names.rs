//! Names in directories: looking them up, making, moving and removing what has them.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use client::{Volume, VolumeError};
use namespace::{
    Answer, Ask, Attributes, Change, Done, Expect, InodeId, Make as TreeMake, Name, NameError, RenameHow,
    Site, Target, Who,
};

use super::inodes::Inodes;
use super::{Found, Fs, FsError};
use crate::caller::Caller;

/// A name is looked up anew so often while other mounts take away what has it.
const LOOKUPS_MAX: u32 = 100;

/// What is made, but for a file that is opened at once.
#[derive(Clone, Debug)]
pub(crate) enum Make {
    File,
    Directory,
    Fifo,
    Socket,
    CharDevice(u32),
    BlockDevice(u32),
    Symlink(Bytes),
}

/// A name in the directory with this number.
pub(crate) type Place<'a> = (u64, &'a std::ffi::OsStr);

impl Fs {
    pub(crate) async fn lookup(&self, who: &Who, place: Place<'_>) -> Result<Found, FsError> {
        let (dir, name) = self::place(&self.inodes, place)?;
        for _ in 0..LOOKUPS_MAX {
            let found = self.now().volume.lookup(who, dir, name.clone()).await;
            let attributes =
                match self.completed(found.map_err(|error| FsError::within(error, &[dir]))?).await {
                    // Another mount has taken the name away since, and something else may have it.
                    Err(error) if error.says_gone() => continue,
                    completed => completed?,
                };
            if !self.inodes.entered(&attributes) {
                return Ok(((attributes, Duration::ZERO), Duration::ZERO));
            }
            let name_time = self.name_time((dir, &name), &attributes);
            return Ok((self.with_time(attributes), name_time));
        }
        Err(FsError::Removed)
    }

    /// Makes something under a name that nothing has.
    pub(crate) async fn make(
        &self,
        caller: &Caller,
        (dir, name): Place<'_>,
        (make, mode, umask): (Make, u16, u16),
    ) -> Result<Attributes, FsError> {
        let (dir, name) = place(&self.inodes, (dir, name))?;
        let make = match make {
            Make::File => TreeMake::file(),
            Make::Directory => TreeMake::Directory,
            Make::Fifo => TreeMake::Fifo,
            Make::Socket => TreeMake::Socket,
            Make::CharDevice(rdev) => TreeMake::CharDevice { rdev: rdev.into() },
            Make::BlockDevice(rdev) => TreeMake::BlockDevice { rdev: rdev.into() },
            Make::Symlink(target) => TreeMake::Symlink { target: Target::new(target)? },
        };
        let _changing = self.changing([dir]);
        let made = self.now().volume.make(&caller.who(), (dir, name), (make, mode, umask)).await;
        self.entered(made.map_err(|error| FsError::within(error, &[dir]))?).await
    }

    pub(crate) async fn link(
        &self,
        caller: &Caller,
        number: u64,
        (dir, name): Place<'_>,
    ) -> Result<Attributes, FsError> {
        let (inode, dir) = (self.inodes.id(number)?, self.inodes.id(dir)?);
        let change = Change::Link { inode, dir, name: Name::new(name.as_bytes())? };
        let _changing = self.changing([inode, dir]);
        match self.now().volume.change(&caller.who(), change).await {
            Ok(Done::Changed { attributes }) => self.entered(attributes).await,
            Ok(_) => Err(FsError::Mismatch),
            Err(error) => Err(FsError::within(error, &[dir])),
        }
    }

    pub(crate) async fn unlink(&self, caller: &Caller, place: Place<'_>) -> Result<(), FsError> {
        let site = self.site(place)?;
        self.change_sites(caller, [site], |[site]| Change::Unlink {
            site,
            holders: Vec::new(),
            removed: None,
        })
        .await
    }

    pub(crate) async fn remove_directory(&self, caller: &Caller, place: Place<'_>) -> Result<(), FsError> {
        let site = self.site(place)?;
        self.change_sites(caller, [site], |[site]| Change::RemoveDirectory { site, holders: Vec::new() })
            .await
    }

    pub(crate) async fn rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        how: RenameHow,
    ) -> Result<(), FsError> {
        let sites = [self.site(from)?, self.site(to)?];
        let rename = |[from, to]: [Site; 2]| Change::Rename { from, to, how, holders: Vec::new() };
        self.change_sites(caller, sites, rename).await
    }

    /// Does something to names. What they name as far as is known here is named as well: so nobody has to ask this mount to drop it.
    async fn change_sites<const N: usize>(
        &self,
        caller: &Caller,
        sites: [Site; N],
        change: impl Fn([Site; N]) -> Change,
    ) -> Result<(), FsError> {
        let identity = self.now();
        let known = sites.clone().map(|site| match identity.volume.known_site(site) {
            site @ Site { expect: Expect::Any, .. } => self.inodes.believed_site(site),
            known => known,
        });
        let dirs = sites.each_ref().map(|site| site.dir);
        let there = known.iter().filter_map(|site| match site.expect {
            Expect::Inode(inode) => Some(inode),
            Expect::Any | Expect::Nothing => None,
        });
        let _changing = self.changing(dirs.into_iter().chain(there));
        // From here on nothing more is believed of them.
        if let [from, to] = known.as_slice() {
            self.inodes.moves(from, to);
            self.inodes.moves(to, from);
        }
        if known != sites {
            match identity.volume.change(&caller.who(), change(known)).await {
                // Somebody else has changed that.
                Err(VolumeError::Refused(NameError::Stale { .. } | NameError::NoEntry { .. })) => {}
                done => return done.map(drop).map_err(|error| FsError::within(error, &dirs)),
            }
        }
        let done = identity.volume.change(&caller.who(), change(sites)).await;
        done.map(drop).map_err(|error| FsError::within(error, &dirs))
    }

    pub(crate) async fn read_link(&self, caller: &Caller, number: u64) -> Result<Bytes, FsError> {
        let ask = Ask::Readlink { inode: self.inodes.id(number)? };
        match self.now().volume.ask(&caller.who(), ask).await? {
            Answer::Target(target) => Ok(target.as_bytes().clone()),
            _ => Err(FsError::Mismatch),
        }
    }

    /// Makes durable what this mount was told is done to names. What of that is lost is told once to each open directory.
    pub(crate) async fn sync_names(&self, handle: u64) -> Result<(), FsError> {
        let dir = self.dirs.get(handle)?;
        let synced = dir.volume(&self.now()).sync().await;
        if dir.tell_loss() {
            self.has_lost.store(false, Ordering::SeqCst);
            return Err(FsError::NamesLost);
        }
        Ok(synced?)
    }

    fn site(&self, (dir, name): Place<'_>) -> Result<Site, FsError> {
        Ok(Site::new(self.inodes.id(dir)?, Name::new(name.as_bytes())?))
    }
}

/// A place as the daemons know it.
pub(super) fn place(inodes: &Inodes, (dir, name): Place<'_>) -> Result<(InodeId, Name), FsError> {
    Ok((inodes.id(dir)?, Name::new(name.as_bytes())?))
}

/// What has a name, if anything.
pub(super) async fn find(
    volume: &Volume,
    caller: &Caller,
    (dir, name): (InodeId, Name),
) -> Result<Option<Attributes>, FsError> {
    match volume.lookup(&caller.who(), dir, name).await {
        Ok(found) => Ok(Some(found)),
        Err(VolumeError::Refused(NameError::NoEntry { .. })) => Ok(None),
        Err(error) => Err(FsError::within(error, &[dir])),
    }
}
