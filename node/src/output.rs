//! What a shard wants done. Plain data: ids, never channels.

use base::{ClientId, Epoch, Incarnation, NodeId, ObjectId, Process, Span, View, WallTime};
use lease::{Batch, ClockState, Ended, Loss};

use replication::Record;

use crate::file::{File, FileReply, Place, Stored};
use crate::{DaemonFrame, EndedSeen, Errand, FetchId, FileMessage, Grant, PeerMessage, SessionId};

/// Something to do, in this order.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Send these lease messages by datagram.
    Lease {
        /// To whom.
        to: NodeId,
        /// What.
        batch: Batch,
    },
    /// Send these messages in order.
    Peer {
        /// To whom.
        to: NodeId,
        /// What, at most [`PEER_BATCH_MAX`](crate::PEER_BATCH_MAX).
        messages: Vec<PeerMessage>,
    },
    /// Send this frame in order.
    Client {
        /// Over which connection.
        session: SessionId,
        /// What.
        frame: DaemonFrame,
    },
    /// Close this client's connection, once what it was sent has left.
    Close {
        /// Which connection.
        session: SessionId,
    },
    /// Put this epoch ceiling on disk, then call [`handle_ceiling`](crate::Shard::handle_ceiling).
    RaiseCeiling {
        /// The new mark.
        to: u64,
    },
    /// Keep on disk whether an operator has drained this node, then call
    /// [`handle_drain_kept`](crate::Shard::handle_drain_kept).
    KeepDrained(bool),
    /// Send this message between replicas of a file, in order.
    File {
        /// To whom.
        to: NodeId,
        /// What.
        message: FileMessage,
    },
    /// Send this reply about a file.
    FileReply {
        /// Over which connection.
        session: SessionId,
        /// What.
        reply: FileReply,
    },
    /// Send this errand, in order.
    Errand {
        /// To whom.
        to: NodeId,
        /// What.
        errand: Errand,
    },
    /// Send this reply to an errand.
    ErrandReply {
        /// To whom.
        to: NodeId,
        /// What.
        reply: FileReply,
    },
    /// Read and check this content, then call [`handle_fetched`](crate::Shard::handle_fetched).
    Fetch {
        /// Names it.
        fetch: FetchId,
        /// What, in this order.
        stored: Vec<Stored>,
    },
    /// Append this record to the journal, then call [`handle_written`](crate::Shard::handle_written).
    Write {
        /// Counts the records of this process.
        number: u64,
        /// The file it is about.
        object: ObjectId,
        /// The record.
        record: Record<File>,
    },
    /// Sync the journal, then call [`handle_durable`](crate::Shard::handle_durable).
    Sync {
        /// At least up to this record.
        upto: u64,
    },
    /// Mark the store as failed, in its memo and as well as it goes on its disk, and end the process. Nothing else comes
    /// out any more.
    StoreFailed,
    /// For logs and metrics.
    Event(ShardEvent),
}

/// Something an operator may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShardEvent {
    /// This node's time can, or can no longer, be trusted.
    Clock(ClockState),
    /// A witness reported a process dead.
    Death {
        /// The daemon.
        node: NodeId,
        /// Its run.
        incarnation: Incarnation,
    },
    /// A lock was taken over from a tenure that did not give it up.
    TakenOver {
        /// The lock.
        cell: ObjectId,
        /// How that tenure ended.
        ended: Ended,
        /// Who had the lock, as far as is known.
        grant: Option<Grant>,
        /// Nobody else gets it before then, if anybody may still believe to have it.
        wait_until: Option<WallTime>,
    },
    /// This node serves a file or a volume that another run was primary of until it died, fell silent or named this one.
    FileTakenOver {
        /// The file.
        object: ObjectId,
        /// Who was its primary, as far as is known.
        from: Process,
        /// How that ended.
        ended: EndedSeen,
        /// How long somebody may have waited for a primary.
        stall: Span,
    },
    /// A lease ended against this node's will.
    LeaseLost {
        /// The cell.
        cell: ObjectId,
        /// Why.
        why: Loss,
    },
    /// A client that held locks was silent for too long.
    SessionOver {
        /// Which connection.
        session: SessionId,
        /// How many locks it held or waited for.
        cells: usize,
    },
    /// The lease above a client's lock may end too early, so its client was told to attach anew.
    Detached {
        /// The lock.
        cell: ObjectId,
    },
    /// Too few members remember all that they have acknowledged of a file: an operator is needed, or who is missing.
    FileBlocked {
        /// The file.
        object: ObjectId,
        /// Members that did not answer.
        missing: Vec<NodeId>,
        /// Members that may have lost what was not synced.
        forgot: Vec<NodeId>,
    },
    /// What was written to a file and not synced may be lost, because the power failed at too many members.
    FileLost {
        /// The file.
        object: ObjectId,
        /// The tenure that found that.
        generation: Epoch,
    },
    /// A member has sent what would have dropped something committed. Nothing has changed.
    FileUnsound {
        /// The file.
        object: ObjectId,
        /// Who sent it.
        from: NodeId,
    },
    /// Parts of a file could not be read, or are not what was written. They are not returned, and come back from other
    /// members.
    FileDamaged {
        /// The file.
        object: ObjectId,
        /// How many.
        parts: usize,
    },
    /// Nothing of a file is lacking any more.
    FileMended {
        /// The file.
        object: ObjectId,
    },
    /// This node knows of other members of a file.
    FileMembers {
        /// The file.
        object: ObjectId,
        /// Who they are.
        view: View,
    },
    /// A client that changed a file was not heard of for long, and its place was needed: its changes are refused from now
    /// on.
    FileClientOver {
        /// The file.
        object: ObjectId,
        /// The client.
        client: ClientId,
    },
    /// Content of a file is not what it was when it was put on the disk, or cannot be read.
    FileUnreadable {
        /// The file.
        object: ObjectId,
        /// Where it should be.
        place: Place,
    },
    /// The disk has done nothing for long although it should, so this node leads no file; or it goes on.
    DiskStalled(bool),
    /// The disk takes no more data, or does again.
    DiskFull(bool),
    /// A peer runs with other cluster-wide settings; its lease messages are ignored.
    SettingsDiffer {
        /// The peer.
        peer: NodeId,
    },
    /// A member sent what a member must not.
    Misbehaved {
        /// The peer.
        peer: Process,
        /// What it did.
        what: &'static str,
    },
}
