//! Layout: what is done to a tree, and what comes of it.

use base::ClientId;
use namespace::limits::{GRANTED_MAX, HOLDERS_MAX};
use namespace::{
    Change, Done, Expect, Fate, Given, Grant, Granted, Make, Op, RenameHow, SetAttributes, SetTime, Site,
    XattrHow,
};

use super::{check_mode, check_value};
use crate::DecodeError;
use crate::field::{Element, Field, Sink, Source, choice, record};

record!(Op { time, who, client, change });
choice!(Change, "a change of a tree", check_change:
    0 Create { dir, name, make, mode, umask, is_exclusive, lends };
    1 Link { inode, dir, name };
    2 Unlink { site, holders, removed };
    3 RemoveDirectory { site, holders };
    4 Rename { from, to, how, holders };
    5 SetAttributes { inode, set };
    6 SetXattr { inode, name, value, how };
    7 RemoveXattr { inode, name };
    8 Lend { inode, to };
    9 GiveBack { inode, generation, given, accessed, mode, changed };
    10 Hold { inode, client };
    11 Release { inode, client };
    12 Deleted { inode };
    13 Lock { inode, lock, wait };
    14 Unlock { inode, owner, kind, stretch };
    15 Cancel { inode, ticket };
    16 Settle;
    17 Welcome { client, opens };
    18 Expire { client };
    19 Forget { client };
    20 Limit { inodes_max, bytes_max };
    21 Return { inode, generation, modified, accessed, mode, changed, is_untouched };
    22 Enter { dir, under, number, name, replicas, mode, created };
);
choice!(Make, "what is created":
    0 File { replicas };
    1 Directory;
    2 Symlink { target };
    3 Fifo;
    4 Socket;
    5 CharDevice { rdev };
    6 BlockDevice { rdev };
);
record!(Site { dir, name, expect });
choice!(Expect, "what a name is taken to name":
    0 Any;
    1 Nothing;
    2 Inode(inode);
);
choice!(RenameHow, "what becomes of what has the new name":
    0 Replace;
    1 NoReplace;
    2 Exchange;
);
record!(Given { size, mtime, ctime });
record!(SetAttributes { mode, uid, gid, size, atime, mtime, is_open });
choice!(SetTime, "a time that shall be":
    0 Now;
    1 To(time);
);
choice!(XattrHow, "whether an extended attribute must be there":
    0 Any;
    1 Create;
    2 Replace;
);

choice!(Done, "what came of a change of a tree":
    0 Created { attributes, is_new };
    1 Changed { attributes };
    2 Removed { inode, fate };
    3 Renamed { moved, other, fate };
    4 Held;
    5 Released { fate };
    6 Deleted;
    7 Locked { waits, granted };
    8 Unlocked { granted };
    9 Welcomed;
    10 Expired { more, dooms, lends, granted };
    11 Forgotten;
    12 Limited;
);
choice!(Fate, "what becomes of an inode":
    0 Named { links };
    1 Orphan { holders };
    2 Doomed;
    3 Gone;
);
record!(Granted { all, more });
record!(Grant { owner, ticket });

fn check_change(change: &Change) -> Result<(), DecodeError> {
    match change {
        Change::Create { mode, umask, .. } => check_mode(mode | umask),
        Change::SetAttributes { set: SetAttributes { mode: Some(mode), .. }, .. }
        | Change::Return { mode: Some(mode), .. }
        | Change::GiveBack { mode: Some(mode), .. }
        | Change::Enter { mode, .. } => check_mode(*mode),
        Change::SetXattr { value, .. } => check_value(value),
        _ => Ok(()),
    }
}

/// One of those who hold an inode.
impl Element for ClientId {
    const COUNT_MAX: usize = HOLDERS_MAX;
    const BYTES_MIN: usize = 2;
}

impl Element for Grant {
    const COUNT_MAX: usize = GRANTED_MAX;
    const BYTES_MIN: usize = 20;
}
