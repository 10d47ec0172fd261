//! Layout: why a change of a tree is refused, or a question about it has no answer.

use namespace::{NameError, NotAcl};

use crate::DecodeError;
use crate::field::{Field, Sink, Source, choice};

choice!(NameError, "why a tree refuses":
    0 NoInode { inode };
    1 NoEntry { dir };
    2 Exists { inode };
    3 NotDirectory { inode };
    4 IsDirectory { inode };
    5 WrongKind { inode };
    6 NotEmpty { dir };
    7 Denied { inode };
    8 NotPermitted { inode };
    9 TooManyLinks { inode };
    10 Loop { dir };
    11 TooDeep { dir };
    12 Stale { dir };
    13 Lent { inode, generation };
    14 NotLent { inode, generation };
    15 NoInodes { inodes_max };
    16 NoSpace { bytes_max };
    17 TooLong { size };
    18 NoXattr { inode };
    19 XattrExists { inode };
    20 XattrTooLong { bytes };
    21 NoXattrSpace { inode };
    22 NotSupported { inode };
    23 NotAcl(why);
    24 Locked { by };
    25 Deadlock { owner };
    26 TooManyLocks { inode };
    27 NoStretch;
    28 NotWaiting { ticket };
    29 Foreign { owner };
    30 NotOrphan { inode };
    31 Orphan { inode };
    32 NotHeld { inode, client };
    33 NotDoomed { inode };
    34 TooManyHolders { count };
    35 TooManyClients;
    36 Expired { client };
    37 NotExpired { client };
    38 NoClient { client };
    39 NoMode;
);

const LAYOUT: u8 = 0;
const TOO_LONG: u8 = 1;
const ENTRIES: u8 = 2;

/// How many entries there are has the width of any number.
impl Field for NotAcl {
    fn put(&self, out: &mut Sink) {
        match self {
            Self::Layout => out.metadata.push(LAYOUT),
            Self::TooLong { entries } => {
                out.metadata.push(TOO_LONG);
                (*entries as u64).put(out);
            }
            Self::Entries => out.metadata.push(ENTRIES),
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        match from.take()? {
            [LAYOUT] => Ok(Self::Layout),
            [TOO_LONG] => usize::try_from(u64::get(from)?)
                .map(|entries| Self::TooLong { entries })
                .map_err(|_| DecodeError::Impossible("an acl of so many entries")),
            [ENTRIES] => Ok(Self::Entries),
            [byte] => Err(DecodeError::UnknownByte { field: "why bytes are no acl", byte }),
        }
    }
}
