//! What can be done to a tree, and what comes of it.

use base::{ClientId, Members, NodeId, WallTime};
use bytes::Bytes;

use crate::access::{PERMISSIONS, SETGID, SETUID};
use crate::limits::{HOLDERS_MAX, MODE_BITS, XATTR_BYTES_MAX};
use crate::{
    Attributes, Born, CAPABILITY, Generation, InodeId, Kind, LentTo, Lock, LockKind, Name, NameError, Owner,
    Stretch, Target, Ticket, Who, XattrName,
};

/// Something that changes the tree: one entry of its log.
///
/// Whatever the tree does not determine stands in it, decided by the primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// When. Of each inode that is changed, the change is not before the one before it, though clocks may differ.
    pub time: WallTime,
    /// On whose behalf. What users do is checked against it; what the service does itself is not.
    pub who: Who,
    /// For which client. What users do is refused when the client has ended.
    pub client: ClientId,
    /// What.
    pub change: Change,
}

/// What an operation does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates an inode, named by the entry, under a name. A file has no content before it is lent. [`Done::Created`].
    Create {
        /// The directory.
        dir: InodeId,
        /// The name.
        name: Name,
        /// What kind of thing.
        make: Make,
        /// The permissions, of which a default ACL or the umask leaves less. Links have none of their own.
        mode: u16,
        /// What the caller wants nobody to be given, unless the directory has a default ACL.
        umask: u16,
        /// Whether it is refused when the name is taken. Otherwise whatever has the name is the outcome, unchanged and
        /// not asked whether it may be opened; only files are created like this.
        is_exclusive: bool,
        /// Whether a file or a directory that is new is lent to the operation's client by this very entry. A file that others may run with
        /// the rights of its owner or group is not, nor is a directory that gives what is created in it more than a mode.
        lends: bool,
    },
    /// Enters a file that the operation's client has created by itself in a directory that is lent to it. The file is lent to it as well, by
    /// the same name as the directory. Nothing is entered under a lend that is over. [`Done::Created`].
    Enter {
        /// The directory.
        dir: InodeId,
        /// Its lend.
        under: Generation,
        /// Which of the client's files there: it gives no number twice under one lend.
        number: u64,
        /// The name.
        name: Name,
        /// Who replicates it.
        replicas: Members,
        /// The permissions.
        mode: u16,
        /// When, by the client's clock.
        created: WallTime,
    },
    /// Gives an inode that has a name another one. Directories have one only. [`Done::Changed`].
    Link {
        /// Which.
        inode: InodeId,
        /// The directory.
        dir: InodeId,
        /// The new name.
        name: Name,
    },
    /// Takes the name of anything but a directory away. [`Done::Removed`].
    Unlink {
        /// The name.
        site: Site,
        /// Who has open what has it. Counts if that was the last name: then it lives on for them.
        holders: Vec<ClientId>,
        /// When, by the client's clock, if it has removed it by itself in a directory that is lent to it, and still is.
        removed: Option<WallTime>,
    },
    /// Takes an empty directory away. [`Done::Removed`].
    RemoveDirectory {
        /// Its name.
        site: Site,
        /// Who has it open.
        holders: Vec<ClientId>,
    },
    /// Gives something another name in place of its own. [`Done::Renamed`].
    Rename {
        /// The name.
        from: Site,
        /// The new one.
        to: Site,
        /// What becomes of what has the new name.
        how: RenameHow,
        /// Who has that open.
        holders: Vec<ClientId>,
    },
    /// Sets attributes. [`Done::Changed`].
    SetAttributes {
        /// Whose.
        inode: InodeId,
        /// What they shall be.
        set: SetAttributes,
    },
    /// Sets an extended attribute or an ACL. An ACL without entries is none. [`Done::Changed`].
    SetXattr {
        /// Whose.
        inode: InodeId,
        /// Which.
        name: XattrName,
        /// To what.
        value: Bytes,
        /// Whether it must be there before.
        how: XattrHow,
    },
    /// Takes an extended attribute away. [`Done::Changed`].
    RemoveXattr {
        /// Whose.
        inode: InodeId,
        /// Which.
        name: XattrName,
    },
    /// Lends a file's size and times, for a writer who has it open: set-user-ID and the like end, as with every write. The outcome
    /// names the generation. Clients have something lent to themselves only. What is lent like this already stays so. [`Done::Changed`].
    Lend {
        /// Which file.
        inode: InodeId,
        /// To whom. A client that asks says itself, and may be told that it is lent to the cell.
        to: LentTo,
    },
    /// Gives back what was lent to the operation's client, which answers nothing from it any more. If the cell may have changed under it,
    /// the cell's own end of the lend comes first: a primary sees to that. Of a lend that is over nothing is changed, and what a user has
    /// set under it is refused. [`Done::Changed`].
    Return {
        /// Which file.
        inode: InodeId,
        /// Which lend.
        generation: Generation,
        /// When the content shall have changed last, if a user has said so since it did.
        modified: Option<WallTime>,
        /// When it shall have been read last, if a user has said so under the lend.
        accessed: Option<WallTime>,
        /// The permissions that its owner, who asks for this, has given it under the lend.
        mode: Option<u16>,
        /// When anything of that was changed last, by the client's clock: not after this takes place.
        changed: Option<WallTime>,
        /// Whether the cell was never asked to change anything under it.
        is_untouched: bool,
    },
    /// Gives size and times back. Counts for this very lend only. [`Done::Changed`].
    GiveBack {
        /// Which file.
        inode: InodeId,
        /// Which lend.
        generation: Generation,
        /// What came of it; none if nothing was changed under it.
        given: Option<Given>,
        /// When it shall have been read last, if a user has said so under the lend.
        accessed: Option<WallTime>,
        /// The permissions that its owner, who asks for this, has given it under the lend.
        mode: Option<u16>,
        /// When anything was changed last under the lend, if its client has said so: not after this takes place.
        changed: Option<WallTime>,
    },
    /// A client has opened an orphan, handed on by one that holds it. Twice is once. [`Done::Held`].
    Hold {
        /// Which.
        inode: InodeId,
        /// Who.
        client: ClientId,
    },
    /// A client has no handle of an orphan open any more. [`Done::Released`].
    Release {
        /// Which.
        inode: InodeId,
        /// Who.
        client: ClientId,
    },
    /// The data of what was doomed is gone everywhere. [`Done::Deleted`].
    Deleted {
        /// Which.
        inode: InodeId,
    },
    /// Locks a stretch of a file for an owner, in place of what the owner has locked of it. [`Done::Locked`].
    Lock {
        /// Which file.
        inode: InodeId,
        /// What is wanted.
        lock: Lock,
        /// Whether to wait if somebody is in the way.
        wait: bool,
    },
    /// Gives up what an owner has locked of a stretch, and takes back what it waits for within it. What is not locked is no error.
    /// [`Done::Unlocked`].
    Unlock {
        /// Which file.
        inode: InodeId,
        /// Whose.
        owner: Owner,
        /// Which of its two kinds of locks.
        kind: LockKind,
        /// Where. Locks of whole files are given up whole.
        stretch: Stretch,
    },
    /// Takes a waiting request back. Refused if it does not wait any more: then it was granted. [`Done::Unlocked`].
    Cancel {
        /// Which file.
        inode: InodeId,
        /// Which request.
        ticket: Ticket,
    },
    /// Grants requests that nobody is in the way of any more, and which an outcome had no room for: outcomes with
    /// `more` ask for it. A new primary proposes it until there is no more. [`Done::Unlocked`].
    Settle,
    /// Records a client that may come to hold something, or only to have something in a cache. A hold or a lock records it, too.
    /// [`Done::Welcomed`].
    Welcome {
        /// Which.
        client: ClientId,
        /// Whether it may hold something. Who may once may until its end.
        opens: bool,
    },
    /// A client has ended, and with it what it holds, has locked, and waits for. From the first entry on its operations
    /// are refused; while the outcome says that there is more, it is to be said again. [`Done::Expired`].
    Expire {
        /// Which.
        client: ClientId,
    },
    /// Takes the record of a client away of which nothing is left: it has ended, or had nothing but a cache. [`Done::Forgotten`].
    Forget {
        /// Which.
        client: ClientId,
    },
    /// Sets what the volume has room for. What is there stays. [`Done::Limited`].
    Limit {
        /// For so many inodes.
        inodes_max: u64,
        /// For files of so many bytes together; `u64::MAX` is no limit.
        bytes_max: u64,
    },
}

/// What a file's cell gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// The size.
    pub size: u64,
    /// When the content changed.
    pub mtime: WallTime,
    /// When anything did.
    pub ctime: WallTime,
}

/// What is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Make {
    /// A file.
    File {
        /// Who replicates it. The tree only remembers.
        replicas: Members,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: Target,
    },
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A device that is read and written by characters. Only root makes one.
    CharDevice {
        /// Which.
        rdev: u64,
    },
    /// A device that is read and written by blocks. Only root makes one.
    BlockDevice {
        /// Which.
        rdev: u64,
    },
}

/// A name in a directory, and what it is taken to name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The directory.
    pub dir: InodeId,
    /// The name.
    pub name: Name,
    /// What it names. Whoever has collected the holders of an inode says which one it was.
    pub expect: Expect,
}

/// What a name is taken to name. If it names something else, the operation is refused as [`Stale`](crate::NameError).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Whatever it is. [`overlaps`](crate::Tree::overlaps) has to take it for any inode.
    Any,
    /// Nothing.
    Nothing,
    /// This.
    Inode(InodeId),
}

/// What becomes of what already has the new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameHow {
    /// It loses the name.
    Replace,
    /// The renaming is refused.
    NoReplace,
    /// It gets the old name. There has to be something.
    Exchange,
}

/// What attributes shall be. What is absent stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// The twelve bits of the permissions.
    pub mode: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size of a file.
    pub size: Option<u64>,
    /// When it was read.
    pub atime: Option<SetTime>,
    /// When its content changed.
    pub mtime: Option<SetTime>,
    /// Whether the caller has the file open for writing, and so may set the size whatever its mode says by now.
    pub is_open: bool,
}

impl SetAttributes {
    /// Whether a file has to be given back before: whoever has it knows its times, and ends set-user-ID and set-group-ID only when it is lent anew.
    pub(crate) fn wants_back(&self) -> bool {
        let sets_id = self.mode.is_some_and(|mode| mode & (SETUID | SETGID) != 0);
        self.atime.is_some() || self.mtime.is_some() || sets_id
    }
}

impl Change {
    /// The file of which has to be known whether it is lent, and to whom, before this is done.
    pub fn minds_lend(&self) -> Option<InodeId> {
        self.wants_back().or(self.wants_from_others())
    }

    /// The file that has to be given back before, whoever has it.
    pub fn wants_back(&self) -> Option<InodeId> {
        match self {
            Self::SetAttributes { inode, set } => set.wants_back().then_some(*inode),
            Self::SetXattr { inode, name, .. } => (name.as_bytes() == CAPABILITY).then_some(*inode),
            _ => None,
        }
    }

    /// The file that has to be given back before unless the client that asks has it: its owner may have set permissions there.
    pub fn wants_from_others(&self) -> Option<InodeId> {
        match self {
            Self::SetAttributes { inode, set } => {
                (set.mode.is_some() || set.uid.or(set.gid).is_some()).then_some(*inode)
            }
            Self::SetXattr { inode, .. } | Self::RemoveXattr { inode, .. } => Some(*inode),
            _ => None,
        }
    }
}

/// A time that shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// That of the operation.
    Now,
    /// This one.
    To(WallTime),
}

/// Whether an extended attribute must be there before it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrHow {
    /// It may or may not.
    Any,
    /// It must not.
    Create,
    /// It must.
    Replace,
}

/// What came of an operation that was not refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// There is an inode under the name.
    Created {
        /// It.
        attributes: Attributes,
        /// Whether it was not there before.
        is_new: bool,
    },
    /// An inode has changed.
    Changed {
        /// How it is now.
        attributes: Attributes,
    },
    /// A name is gone.
    Removed {
        /// What had it.
        inode: InodeId,
        /// What becomes of that.
        fate: Fate,
    },
    /// Something has another name.
    Renamed {
        /// What.
        moved: InodeId,
        /// What had the new name before, if that was something else.
        other: Option<InodeId>,
        /// What becomes of that, if it is not there any more under a name of these two.
        fate: Option<Fate>,
    },
    /// A client holds an orphan.
    Held,
    /// A client holds an orphan no more.
    Released {
        /// What becomes of that.
        fate: Fate,
    },
    /// Nothing is left of an inode.
    Deleted,
    /// A lock is had, or waited for.
    Locked {
        /// By which name it is waited for, if so.
        waits: Option<Ticket>,
        /// Who got a lock by this, as some was given up for it.
        granted: Granted,
    },
    /// Locks were given up.
    Unlocked {
        /// Who got a lock by this.
        granted: Granted,
    },
    /// A client is on record.
    Welcomed,
    /// A client has ended.
    Expired {
        /// Whether the same is to be said again.
        more: bool,
        /// Whether anything was doomed.
        dooms: bool,
        /// Whether files are lent to it. It has not ended before all are given back, and the same is to be said again then.
        lends: bool,
        /// Who got a lock by this.
        granted: Granted,
    },
    /// A client is on record no more.
    Forgotten,
    /// The limits are set.
    Limited,
}

/// What becomes of an inode that has lost a name or a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has other names.
    Named {
        /// So many.
        links: u32,
    },
    /// It has no name any more, but holders.
    Orphan {
        /// So many.
        holders: u32,
    },
    /// It is gone, and its data is to be removed everywhere.
    Doomed,
    /// It is gone. There is no data.
    Gone,
}

/// Who got a lock that was waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// In the order in which they got it, per file.
    pub all: Vec<Grant>,
    /// Whether there may be others, whom [`Change::Settle`] finds.
    pub more: bool,
}

/// A lock that was waited for and is had. Of which file, whoever asked by that ticket knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// By whom.
    pub owner: Owner,
    /// What it was waited for by.
    pub ticket: Ticket,
}

impl Op {
    /// What a client asks for. When, and for which client, whoever makes an entry of it says.
    pub const fn wanted(who: Who, change: Change) -> Self {
        Self { time: WallTime::ZERO, who, client: ClientId { certificate: 0, program: 0 }, change }
    }

    /// Refuses what is beyond what any tree takes, and so is not even carried to one.
    pub fn check_limits(&self) -> Result<(), NameError> {
        match &self.change {
            Change::Create { mode, umask, .. } if (mode | umask) & !MODE_BITS != 0 => Err(NameError::NoMode),
            Change::Enter { mode, .. } if mode & !PERMISSIONS != 0 => Err(NameError::NoMode),
            Change::SetAttributes { set: SetAttributes { mode: Some(mode), .. }, .. }
            | Change::Return { mode: Some(mode), .. }
            | Change::GiveBack { mode: Some(mode), .. }
                if mode & !MODE_BITS != 0 =>
            {
                Err(NameError::NoMode)
            }
            Change::SetXattr { name, value, .. } => {
                let bytes = (name.as_bytes().len() + value.len()) as u64;
                if bytes > XATTR_BYTES_MAX { Err(NameError::XattrTooLong { bytes }) } else { Ok(()) }
            }
            Change::Unlink { holders, .. }
            | Change::RemoveDirectory { holders, .. }
            | Change::Rename { holders, .. }
                if holders.len() > HOLDERS_MAX =>
            {
                Err(NameError::TooManyHolders { count: holders.len() as u64 })
            }
            _ => Ok(()),
        }
    }

    /// What the operation creates if it is the entry at `born`.
    pub const fn creates(&self, born: Born) -> Option<InodeId> {
        match self.change {
            Change::Create { .. } => Some(InodeId::of(born)),
            Change::Enter { under, number, .. } => InodeId::under(under, number),
            _ => None,
        }
    }
}

impl Make {
    /// A file that a client asks for. Where it is replicated, whoever makes an entry of it says.
    pub fn file() -> Self {
        Self::File { replicas: Members::new([NodeId(0)]).expect("one is enough") }
    }

    /// The kind of what is made.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::File { .. } => Kind::File,
            Self::Directory => Kind::Directory,
            Self::Symlink { .. } => Kind::Symlink,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
            Self::CharDevice { .. } => Kind::CharDevice,
            Self::BlockDevice { .. } => Kind::BlockDevice,
        }
    }
}

impl Site {
    /// A name, whatever it names.
    pub const fn new(dir: InodeId, name: Name) -> Self {
        Self { dir, name, expect: Expect::Any }
    }

    /// The same, if it names this inode.
    pub fn naming(self, inode: InodeId) -> Self {
        Self { expect: Expect::Inode(inode), ..self }
    }

    /// The same, if it names nothing.
    pub fn free(self) -> Self {
        Self { expect: Expect::Nothing, ..self }
    }
}

impl Granted {
    /// Nobody.
    pub const NONE: Self = Self { all: Vec::new(), more: false };
}
