//! What daemons say to each other and to their clients about locks.
//!
//! All of it travels on streams: in order, and whole as long as the connection lasts. When a connection is made
//! again, its two ends say again what still matters. Nothing here names its sender: the connection does.
//!
//! Layout: postcard encodes these in the order of their fields and variants.

use std::fmt;

use base::{ClientId, Epoch, Incarnation, MEMBERS_MAX, NodeId, ObjectId, Process, Seq, WallTime};
use namespace::{Generation, InodeId};
use serde::{Deserialize, Serialize};

use crate::bounded;

/// The most messages in one frame between daemons.
pub const PEER_BATCH_MAX: usize = 4_096;
/// The most requests or replies in one frame between a client and a daemon.
pub const CLIENT_BATCH_MAX: usize = 4_096;

/// What an object is for stands in its highest bits; an object that goes by a name has none of them.
const LOCK_BIT: u64 = 1 << 63;
const FILE_BIT: u64 = 1 << 62;
const VOLUME_BIT: u64 = 1 << 61;
/// How many low bits of a token count the grants of one tenure.
const TOKEN_GRANT_BITS: u32 = 20;

/// A fencing token: every grant of a lock has a higher one than all grants before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub u64);

/// Names a request within a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Who holds a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The holder.
    pub client: ClientId,
    /// The token it was given.
    pub token: Token,
}

/// The state of a lock as its members keep it. The record with the highest `(epoch, version)` is the latest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The tenure that wrote it.
    pub epoch: Epoch,
    /// Counts the writes of the tenure.
    pub version: u32,
    /// Who wrote it.
    pub writer: Process,
    /// Who holds the lock.
    pub grant: Option<Grant>,
}

/// Between the members of a lock's cell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerMessage {
    /// The owner of the lease asks for a promise to refuse everything of lower epochs.
    Promise {
        /// The lock.
        cell: ObjectId,
        /// The new tenure.
        epoch: Epoch,
        /// The members' processes that died so recently that clients may still believe in their grants.
        #[serde(deserialize_with = "bounded::list::<MEMBERS_MAX, _, _>")]
        dead: Vec<Process>,
    },
    /// Promised, and durable as far as it has to be.
    Promised {
        /// The lock.
        cell: ObjectId,
        /// What was promised.
        epoch: Epoch,
        /// The latest record here.
        record: Option<Record>,
        /// Whether this member would know of everything that the dead processes granted and had it keep.
        knows_all: bool,
    },
    /// Keep this record.
    Write {
        /// The lock.
        cell: ObjectId,
        /// Its state.
        record: Record,
    },
    /// The record is kept.
    Written {
        /// The lock.
        cell: ObjectId,
        /// The tenure that wrote it.
        epoch: Epoch,
        /// Which of its writes.
        version: u32,
    },
    /// Refused: a higher number was promised here.
    Refused {
        /// The lock.
        cell: ObjectId,
        /// The epoch of the refused request.
        epoch: Epoch,
        /// What to go above, or 0 if the member keeps as many locks as its limit allows.
        highest: u64,
    },
    /// Everything that the sender wrote before is with the receiver now: sent once after every connect, but not before
    /// the sender's start is so long ago that no client can believe in a grant of its earlier runs.
    CaughtUp,
    /// Does the receiver still stand behind this record of its own? Asked about records whose lease nobody renews.
    Query {
        /// The lock.
        cell: ObjectId,
        /// The tenure.
        epoch: Epoch,
    },
    /// No: its tenure is over, and the record may be dropped.
    Over {
        /// The lock.
        cell: ObjectId,
        /// The tenure.
        epoch: Epoch,
    },
    /// The power of the sender failed, and what it had not synced is lost: of files, what it promised and acknowledged in
    /// epochs up to this number. Sent once after every connect, until the store knows better.
    Forgot {
        /// The number.
        at: u64,
    },
    /// The disk of the sender takes no more data, or does again. Who is connected anew takes data unless it says so.
    Full(bool),
    /// Whether the sender takes leases that are handed over to it. It does not until it says so.
    Takes(bool),
}

/// What a client says in one turn. Every frame keeps its session alive, an empty one too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientFrame {
    /// Counts the frames of this connection from 1.
    pub number: u64,
    /// What it asks.
    pub requests: Vec<Request>,
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Names it in the replies.
    pub id: RequestId,
    /// What is asked.
    pub body: RequestBody,
}

/// What a client may ask about locks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RequestBody {
    /// Give me the lock.
    Acquire {
        /// The lock.
        cell: ObjectId,
        /// Whether to wait while somebody else has it.
        wait: bool,
    },
    /// I hold the lock; keep it for me here.
    Reattach {
        /// The lock.
        cell: ObjectId,
        /// My token.
        token: Token,
    },
    /// I am done with the lock.
    Release {
        /// The lock.
        cell: ObjectId,
        /// My token.
        token: Token,
    },
    /// I no longer wait for what I asked for. If I was granted the lock already, I release it by its token.
    Cancel {
        /// The lock.
        cell: ObjectId,
        /// The request to forget.
        request: RequestId,
    },
    /// Own the lease of this cell yourself, as for an open file, until I drop it or my session ends. For measurements.
    Lease {
        /// The cell.
        cell: ObjectId,
    },
    /// Give that lease up.
    Unlease {
        /// The cell.
        cell: ObjectId,
    },
    /// I have dropped what this revocation is about. Nobody replies to that.
    Dropped {
        /// Its number.
        number: u64,
    },
}

/// What a daemon says to a client in one turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DaemonFrame {
    /// Everything up to this frame of the client's was heard: its session lasts from when it sent that one. What
    /// the frame says is to be taken in first.
    pub acked: u64,
    /// What it says.
    pub replies: Vec<Reply>,
}

/// One reply, or news that nobody asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To a request.
    To {
        /// Which.
        id: RequestId,
        /// The answer.
        body: ReplyBody,
    },
    /// This daemon no longer answers for the lock: the session here does not keep it any longer.
    Dropped {
        /// The lock.
        cell: ObjectId,
        /// The token of the grant.
        token: Token,
        /// Who will answer for it, if that is known.
        successor: Option<NodeId>,
    },
    /// A witness reported this process and its earlier incarnations dead: re-attach what it kept.
    Death {
        /// The daemon.
        node: NodeId,
        /// Its run.
        incarnation: Incarnation,
    },
    /// This daemon has timed the session out. Nothing is kept any longer; connect again.
    SessionOver,
    /// Drop this from your cache, whatever comes of older replies, and say so.
    Revoke {
        /// Counts the revocations of this session from 1.
        number: u64,
        /// The volume.
        volume: ObjectId,
        /// What of it.
        what: Revoked,
    },
}

/// What is granted no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Revoked {
    /// One inode.
    Inode {
        /// Its number.
        number: u64,
        /// Its epoch.
        epoch: Epoch,
    },
    /// All that tenures before this one have granted in the volume.
    Before(Epoch),
    /// All that was granted in the volume over this session.
    All,
    /// What is lent of one inode, by the entry that lends: to be given back before that is said.
    Lend {
        /// The inode's number.
        number: u64,
        /// Its epoch.
        epoch: Epoch,
        /// The epoch of the entry.
        lent_in: Epoch,
        /// Its place.
        lent_at: Seq,
    },
    /// One directory, and where it is.
    Place {
        /// Its number.
        number: u64,
        /// Its epoch.
        epoch: Epoch,
    },
}

impl Revoked {
    /// One inode.
    pub const fn inode(inode: InodeId) -> Self {
        Self::Inode { number: inode.number, epoch: inode.epoch }
    }

    /// One directory, and where it is.
    pub const fn place(inode: InodeId) -> Self {
        Self::Place { number: inode.number, epoch: inode.epoch }
    }

    /// What is lent of one inode.
    pub const fn lend(inode: InodeId, Generation(born): Generation) -> Self {
        let InodeId { number, epoch } = inode;
        Self::Lend { number, epoch, lent_in: born.epoch, lent_at: born.seq }
    }
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplyBody {
    /// The lock is the client's.
    Granted(Token),
    /// Somebody else has the lock; the request waits here.
    Queued,
    /// Somebody else has the lock, and the request did not want to wait.
    Busy,
    /// The lock stays the client's, now by this daemon.
    Kept,
    /// The token is not the lock's present one: it was lost.
    Gone,
    /// Released, or it was not the client's.
    Released,
    /// The request waits no longer: if its answer did not come before this, none will.
    Cancelled,
    /// Another daemon answers for the lock.
    Elsewhere(NodeId),
    /// This daemon cannot answer for the lock now; ask another member, or again.
    Unavailable(Unavailable),
    /// The daemon owns the lease.
    Leased {
        /// Until when, unless it is renewed, by the daemon's clock.
        until: WallTime,
    },
}

/// Why a daemon cannot answer for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Unavailable {
    /// It is no member of the lock's cell.
    NotMember,
    /// It started recently and may not vote yet.
    Quarantined,
    /// Its clock is not trusted, or not yet.
    Clock,
    /// It cannot reach a majority of the members.
    NoMajority,
    /// Others want the lease, too.
    Contended,
    /// It is stopping.
    Stopping,
    /// It keeps as many locks as its limit allows.
    Full,
    /// The cell is of another kind than the request.
    WrongCell,
    /// Too much is under way.
    Overloaded,
    /// An operator has drained it.
    Drained,
}

/// The cell of the lock with this name. Locks have the highest bit set, and files never do.
pub fn lock_cell(name: &str) -> ObjectId {
    let ObjectId { high, low } =
        object_of(&blake3::derive_key("fleasefs 2026 name of a lock", name.as_bytes()));
    ObjectId::new(high | LOCK_BIT, low)
}

/// The object that goes by `name`, which may be any text. It is never a lock, a volume, or the data of a volume's file.
pub fn object_named(name: &str) -> ObjectId {
    object_of(&blake3::derive_key("fleasefs 2026 name of an object", name.as_bytes()))
}

/// The object that something with this hash is, and that is for nothing in particular.
fn object_of(hash: &[u8; 32]) -> ObjectId {
    let word = |at: usize| u64::from_le_bytes(hash[at..at + 8].try_into().expect("eight of 32 bytes"));
    ObjectId::new(word(0) & !(LOCK_BIT | FILE_BIT | VOLUME_BIT), word(8))
}

/// The data of the volume's file that has this hash.
pub(crate) fn file_of(hash: &[u8; 32]) -> ObjectId {
    let ObjectId { high, low } = object_of(hash);
    ObjectId::new(high | FILE_BIT, low)
}

/// The volume that has this hash, or the list of them.
pub(crate) fn volume_of(hash: &[u8; 32]) -> ObjectId {
    let ObjectId { high, low } = object_of(hash);
    ObjectId::new(high | VOLUME_BIT, low)
}

/// Whether this is the cell of a lock.
pub(crate) const fn is_lock(cell: ObjectId) -> bool {
    cell.high & LOCK_BIT != 0
}

/// Whether this is for nothing in particular.
pub(crate) const fn is_plain(object: ObjectId) -> bool {
    object.high & (LOCK_BIT | FILE_BIT | VOLUME_BIT) == 0
}

/// Whether this is the data of a volume's file.
pub const fn is_file_of_volume(object: ObjectId) -> bool {
    object.high & (LOCK_BIT | FILE_BIT) == FILE_BIT
}

/// Whether this is where a volume is, or the list of them.
pub const fn is_volume(object: ObjectId) -> bool {
    object.high & (LOCK_BIT | FILE_BIT | VOLUME_BIT) == VOLUME_BIT
}

impl Token {
    /// The token of a tenure's `version`-th write, if the tenure may grant so often.
    pub const fn new(epoch: Epoch, version: u32) -> Option<Self> {
        if version >> TOKEN_GRANT_BITS != 0 || epoch.number.leading_zeros() < TOKEN_GRANT_BITS {
            return None;
        }
        Some(Self(epoch.number << TOKEN_GRANT_BITS | version as u64))
    }
}

impl Record {
    /// What decides which of two records is the latest.
    pub const fn position(&self) -> (Epoch, u32) {
        (self.epoch, self.version)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.0 >> TOKEN_GRANT_BITS, self.0 & ((1 << TOKEN_GRANT_BITS) - 1))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_with_grants_and_tenures() {
        let epoch = |number| Epoch { number, node: NodeId(1) };
        let tokens = [(1, 1), (1, 2), (2, 1), (u64::MAX >> TOKEN_GRANT_BITS, 1)]
            .map(|(number, version)| Token::new(epoch(number), version).unwrap());
        assert!(tokens.is_sorted());
        assert_eq!(Token::new(epoch(1), 1 << TOKEN_GRANT_BITS), None);
        assert_eq!(Token::new(epoch(1 << (u64::BITS - TOKEN_GRANT_BITS)), 1), None);
    }

    #[test]
    fn no_object_is_for_two_things() {
        for number in 0..64_u64 {
            let hash = blake3::hash(&number.to_le_bytes());
            let name = number.to_string();
            let (lock, plain) = (lock_cell(&name), object_named(&name));
            let (file, volume) = (file_of(hash.as_bytes()), volume_of(hash.as_bytes()));
            let all = [lock, plain, file, volume];
            assert_eq!(all.map(is_lock), [true, false, false, false]);
            assert_eq!(all.map(is_plain), [false, true, false, false]);
            assert_eq!(all.map(is_file_of_volume), [false, false, true, false]);
            assert_eq!(all.map(is_volume), [false, false, false, true]);
        }
    }
}
