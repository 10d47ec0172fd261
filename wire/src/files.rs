//! Layout: what replicas of files tell each other, and what clients ask and are told about files.
//!
//! Several messages share a frame, and the data of all of them follows in its tail. How many there may be is bounded, and so is
//! what they may weigh: whatever a replica or a client may say in one message fits into a frame of its own.

use std::collections::VecDeque;

use bytes::Bytes;
use namespace::cost;
use namespace::limits::{ATTRIBUTES_BYTES, LISTED_BYTES, PAGE_BYTES_MAX, PAGE_MAX};
use node::file::{
    Answer, Change, Done, File, FileBody, FileReply, FileReplyBody, FileRequest, Level, Query,
    READ_BYTES_MAX, WRITE_BYTES_MAX,
};
use node::{Attendance, CacheGrant, FileMessage, GrantKind, PROOF_BYTES, Unavailable, VOLUME_NAME_BYTES_MAX};
use replication::{Account, Memory, Message, Page};

use crate::DecodeError;
use crate::codec::Body;
use crate::entries::{check_entries, check_parts};
use crate::field::{Element, Field, Sink, Source, choice, read_whole, record};
use crate::kind::{FILE_METADATA_BYTES_MAX, Kind, Sender};

/// The most messages, requests or replies about files in one frame.
pub const FILE_BATCH_MAX: usize = 1_024;
/// What a message between replicas costs at most, and all in one frame together.
pub const FILE_MESSAGE_BYTES_MAX: u64 = 5 << 20;
/// The most data in one frame between a client and a daemon.
pub const FILE_DATA_BYTES_MAX: u64 = 1 << 20;
const _: () = assert!(
    WRITE_BYTES_MAX <= FILE_DATA_BYTES_MAX && READ_BYTES_MAX <= FILE_DATA_BYTES_MAX,
    "one write and the answer to one read fit into a frame"
);

/// What a request or a reply takes in metadata, if it is not about a tree.
const ORDINARY_BYTES_MAX: u64 = 256;
const _: () = assert!(
    ORDINARY_BYTES_MAX * FILE_BATCH_MAX as u64 <= FILE_METADATA_BYTES_MAX as u64,
    "a frame has room for as many as it may have"
);
/// What a capability takes.
const CAPABILITY_BYTES_MAX: u64 = 192;
/// What a proof takes.
const PROOF_BYTES_MAX: u64 = PROOF_BYTES as u64 + 5;
/// What a grant takes without its inodes and directories, and what each of the inodes takes.
const GRANT_BYTES_MAX: u64 = 48;
const INODE_BYTES_MAX: u64 = 25;
const _: () = assert!(
    PAGE_BYTES_MAX / (LISTED_BYTES + ATTRIBUTES_BYTES) < PAGE_MAX,
    "what a page tells of is granted, and its directory"
);
/// What a question about a tree takes.
const QUESTION_BYTES_MAX: u64 = 768;

/// Messages that are sent in batches.
pub trait Batched: Weighed {}

impl<T: Weighed> Batched for T {}

/// The part of [`Batched`] that nobody else needs to see.
pub trait Weighed {
    /// What those in one frame may weigh together.
    const WEIGHT_MAX: u64;

    /// What one weighs.
    fn weight(&self) -> u64;

    /// What it takes of the metadata of a frame, at most. None where the weight bounds that, too.
    fn metadata_bytes(&self) -> u64 {
        0
    }
}

/// Takes from the front of a queue as many messages as fit into one frame, and at least one if there is one.
pub fn next_batch<T: Batched>(queue: &mut VecDeque<T>) -> Vec<T> {
    let (mut weight, mut metadata) = (0, 0);
    let fits = |message: &&T| {
        weight += message.weight();
        metadata += message.metadata_bytes();
        weight <= T::WEIGHT_MAX && metadata <= u64::from(FILE_METADATA_BYTES_MAX)
    };
    let count = queue.iter().take(FILE_BATCH_MAX).take_while(fits).count();
    queue.drain(..count.max(1).min(queue.len())).collect()
}

/// What a message costs its receiver is more than its bytes in a frame.
impl Weighed for FileMessage {
    const WEIGHT_MAX: u64 = FILE_MESSAGE_BYTES_MAX;

    fn weight(&self) -> u64 {
        self.message.bytes()
    }
}

impl Weighed for FileRequest {
    const WEIGHT_MAX: u64 = FILE_DATA_BYTES_MAX;

    fn weight(&self) -> u64 {
        self.body.data_bytes()
    }

    fn metadata_bytes(&self) -> u64 {
        let tree = match &self.body {
            FileBody::Change { change: Change::Tree(op), .. } => cost::op_bytes(op),
            FileBody::Change { change: Change::Plant(_), .. } => VOLUME_NAME_BYTES_MAX as u64,
            FileBody::Ask(Query::Tree(_)) | FileBody::Open { .. } | FileBody::Renew { .. } => {
                QUESTION_BYTES_MAX
            }
            FileBody::Attend(Attendance { open: Some(open), .. }) => open.len() as u64 * INODE_BYTES_MAX,
            _ => 0,
        };
        ORDINARY_BYTES_MAX + tree
    }
}

impl Weighed for FileReply {
    const WEIGHT_MAX: u64 = FILE_DATA_BYTES_MAX;

    fn weight(&self) -> u64 {
        match &self.body {
            FileReplyBody::Answer(Ok(Answer::Data(data))) => data.len() as u64,
            FileReplyBody::Answer(Ok(Answer::Tree(answer))) => cost::answer_bytes(answer),
            _ => 0,
        }
    }

    fn metadata_bytes(&self) -> u64 {
        let tree = match &self.body {
            FileReplyBody::Answer(Ok(Answer::Tree(answer))) => cost::answer_bytes(answer),
            FileReplyBody::Changed { outcome: Ok(Done::Tree(_)), .. } => {
                cost::OUTCOME_BYTES_MAX + CAPABILITY_BYTES_MAX
            }
            FileReplyBody::Opened { .. } => cost::OUTCOME_BYTES_MAX + CAPABILITY_BYTES_MAX,
            _ => 0,
        };
        let granted = self.grant.as_ref().map_or(0, |grant| {
            let (inodes, changed) = (grant.inodes.len() as u64, grant.changed.len() as u64);
            GRANT_BYTES_MAX + inodes * INODE_BYTES_MAX + changed * ATTRIBUTES_BYTES as u64
        });
        ORDINARY_BYTES_MAX + tree + granted + self.proofs.len() as u64 * PROOF_BYTES_MAX
    }
}

impl Body for Vec<FileMessage> {
    const KIND: Kind = Kind::FilePeer;

    fn write(&self, out: &mut Sink) {
        self.put(out);
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        read_whole(metadata, tail)
    }

    /// What only a primary says, or who wants to be one, names an epoch of its own.
    fn check_sender(&self, sender: Sender) -> Result<(), DecodeError> {
        let Sender::Node(actual) = sender else { return Err(DecodeError::WrongRole(Self::KIND)) };
        let named =
            self.iter().filter(|said| is_primarys(&said.message)).map(|said| said.message.epoch().node);
        match named.into_iter().find(|named| *named != actual) {
            Some(named) => Err(DecodeError::WrongSender { named, actual }),
            None => Ok(()),
        }
    }
}

impl Body for Vec<FileRequest> {
    const KIND: Kind = Kind::FileRequest;

    fn write(&self, out: &mut Sink) {
        self.put(out);
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        read_whole(metadata, tail)
    }
}

impl Body for Vec<FileReply> {
    const KIND: Kind = Kind::FileReply;

    fn write(&self, out: &mut Sink) {
        self.put(out);
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        read_whole(metadata, tail)
    }
}

const fn is_primarys(message: &Message<File>) -> bool {
    match message {
        Message::Promise { .. }
        | Message::Fetch { .. }
        | Message::Sync { .. }
        | Message::Offer { .. }
        | Message::Pulled { .. }
        | Message::Adopt { .. }
        | Message::WhichView { .. }
        | Message::Lacks { .. }
        | Message::Forget { .. } => true,
        // An answer to a new primary names that one's epoch.
        Message::Append { .. }
        | Message::Promised { .. }
        | Message::Refused { .. }
        | Message::WrongView { .. }
        | Message::Apart { .. }
        | Message::Appended { .. }
        | Message::Missing { .. }
        | Message::Synced { .. }
        | Message::Pull { .. }
        | Message::Adopted { .. }
        | Message::Found { .. }
        | Message::There { .. } => false,
    }
}

/// What a message says fits together.
fn check(message: &Message<File>) -> Result<(), DecodeError> {
    match message {
        Message::Append { epoch, after, entries, .. } => check_entries(*after, entries, *epoch),
        Message::Pull { have, .. } => check_parts(have),
        Message::Lacks { parts, .. } => check_parts(parts),
        Message::Found { parts, .. } => check_parts(parts),
        Message::Pulled { page, .. } if page.rest.is_some() != page.upto.is_none() => {
            Err(DecodeError::Impossible("the end of a state in its middle"))
        }
        Message::Pulled { page, .. } => {
            check_parts(&page.parts)?;
            check_parts(&page.same)
        }
        _ => Ok(()),
    }
}

impl Field for FileMessage {
    fn put(&self, out: &mut Sink) {
        self.object.put(out);
        self.view.put(out);
        self.message.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (object, view) = (Field::get(from)?, Field::get(from)?);
        let message = Message::get(from)?;
        check(&message)?;
        Ok(Self { object, view, message })
    }
}

choice!(Message<File>, "what a replica says":
    0 Promise { epoch, begun_after };
    1 Promised { epoch, account };
    2 Refused { epoch, promised };
    3 WrongView { epoch, current };
    4 Fetch { epoch, after };
    5 Apart { epoch };
    6 Append { epoch, after, entries, committed };
    7 Appended { epoch, upto };
    8 Missing { epoch, committed };
    9 Sync { epoch, upto };
    10 Synced { epoch, upto };
    11 Offer { epoch, at, generation };
    12 Pull { epoch, at, after, upto, have };
    13 Pulled { epoch, at, page };
    14 Adopt { epoch, view };
    15 Adopted { epoch, view };
    16 WhichView { epoch };
    17 There { epoch };
    18 Forget { epoch, view };
    19 Lacks { epoch, at, parts };
    20 Found { epoch, parts };
);
record!(Page<File> { after, upto, parts, same, rest });
record!(Account { tail, committed, memory, frozen_at });
choice!(Memory, "what a replica remembers":
    0 Clean;
    1 Forgot;
    2 Mixed { source };
    3 Torn;
);

record!(FileRequest { id, object, shown, body, proof, holds, caches });
choice!(FileBody, "what is asked about a file":
    0 Create;
    1 Change { number, settled, level, under, change };
    2 Ask(query);
    3 Sync { oldest, newest };
    4 Open { who, inode, mode };
    5 Renew { capability };
    6 Attend(attendance);
);
record!(Attendance { tenure, stamp, open });
choice!(Level, "how safe a change is":
    0 Written;
    1 Durable;
);
choice!(Query, "a question about a file":
    0 Read { offset, length, under };
    1 Stat;
    2 Tree(query);
    3 Extent { offset, under };
);

record!(FileReply { id, body, proofs, grant });
record!(CacheGrant { kind, tenure, at, revoked, inodes, changed });
choice!(GrantKind, "what a grant allows":
    0 Shared;
    1 Placed;
);
choice!(FileReplyBody, "what is said about a file":
    0 Exists;
    1 Changed { outcome, mark, level, opened };
    2 Answer(answer);
    3 Durable;
    4 Lost;
    5 Refused(error);
    6 NoSuchFile;
    7 Expired;
    8 Settled;
    9 Elsewhere(node);
    10 Unavailable(why);
    11 Opened { attributes, capability };
    12 Attended { tenure, is_told };
);
choice!(Answer, "an answer about a file":
    0 Data(data);
    1 Stat(stat);
    2 Tree(answer);
    3 Extent(extent);
);
choice!(Unavailable, "why a daemon cannot say":
    0 NotMember;
    1 Quarantined;
    2 Clock;
    3 NoMajority;
    4 Contended;
    5 Stopping;
    6 Full;
    7 WrongCell;
    8 Overloaded;
    9 Drained;
);

impl Element for FileMessage {
    const COUNT_MAX: usize = FILE_BATCH_MAX;
    const BYTES_MIN: usize = 8;
}

impl Element for FileRequest {
    const COUNT_MAX: usize = FILE_BATCH_MAX;
    const BYTES_MIN: usize = 5;
}

impl Element for FileReply {
    const COUNT_MAX: usize = FILE_BATCH_MAX;
    const BYTES_MIN: usize = 2;
}
