//! One shard of a storage daemon as a pure state machine: what the daemon drives and the simulator runs as it is.
//!
//! So far it hosts leases and locks. [`Shard`] puts together the lease protocol, the clock guard, clients' sessions
//! and what members keep about locks:
//!
//! - a client's lock is a record at a majority of the members of the lock's cell, written by the owner of the cell's
//!   lease, so that whoever owns it next knows whom to ask;
//! - a client's session is confirmed by every frame it sends, and only while the leases above its locks outlast it;
//! - tokens come from epoch numbers that never fall behind a mark on disk, so they never go back.
//!
//! [`Lines`], [`Chain`], [`Met`] and [`FirstClock`] decide what comes before a shard: which starts of which data
//! directories are let in, and where node time begins.
//!
//! Files are replicated objects ([`mod@file`]): the member with the lease of a file's cell orders what happens to it.
//!
//! [`Exports`] say which client may use which volume and as whom: the primary of a volume asks them about each request, and
//! clients are told only what they may know. A [`Capability`] is what a client shows for a file that it has open. No
//! primary of a file asks for one yet.
//!
//! # Contract
//!
//! *Events in*: `handle_*`, each with the time of its arrival. *Commands*: [`drain`](Shard::drain), and an operator's:
//! [`order_drain`](Shard::order_drain), [`change_members`](Shard::change_members), [`strike`](Shard::strike), [`accept_loss`](Shard::accept_loss), or by
//! message [`handle_order`](Shard::handle_order). *Out*:
//! [`poll_output`](Shard::poll_output) until it is empty, after every call, with a reading of the clock taken then;
//! and [`poll_timeout`](Shard::poll_timeout). Streams to peers and clients keep order and are whole while the
//! connection lasts; what a lost connection swallowed is said again when [`handle_peer_up`](Shard::handle_peer_up)
//! tells of the next one.
//!
//! # What is deliberately absent
//!
//! Clocks, sockets, disks: a mark for the disk is an output. Names of locks: a cell is a digest of one. Trust in
//! what a peer says about itself: whoever drives this says who sent what.

mod access;
mod blocked;
mod bounded;
mod bugs;
mod capability;
mod checkpoints;
mod config;
mod drain;
mod errands;
mod exports;
mod fetches;
pub mod file;
mod files;
mod first_clock;
mod from_toml;
mod grants;
mod holders;
mod hosting;
mod inspect;
mod keeper;
mod lends;
mod lock;
mod locking;
mod logs;
mod map;
mod member;
mod members;
mod message;
mod numbers;
mod orders;
mod output;
mod over;
mod owner;
mod reach;
mod recalls;
mod recent;
mod refused;
mod replies;
mod requests;
mod session;
mod shard;
mod space;
mod starts;
mod status;
mod steps;
mod store;
mod tenures;
mod upkeep;
mod volumes;
mod writes;

pub use access::AccessError;
pub use base::ClientId;
pub use bugs::{Bug, Rules};
pub use capability::{
    CAPABILITY_KEYS_MAX, CAPABILITY_LASTS, Capability, CapabilityError, CapabilityKey, CapabilityKeys,
    CertificateId, KeyEpoch, KeysError, Open, OpenMode, PROOF_BYTES, Proof, Source, Tag,
};
pub use checkpoints::FileChanges;
pub use config::{CLOCK_FRESH, ShardConfig};
pub use drain::{DrainError, DrainStatus};
pub use errands::{Errand, ErrandBody};
pub use exports::{
    ANONYMOUS_DEFAULT, ChangeKind, EXPORT_CLIENTS_MAX, EXPORT_PATH_BYTES_MAX, EXPORTS_MAX, Export,
    ExportAccess, ExportError, ExportPath, ExportPathError, ExportRefusal, Exports, ExportsError,
    ID_RANGES_MAX, IdMapError, IdRange, NotExported, Squash, change_kind, is_for_clients,
};
pub use fetches::{FetchId, Unreadable};
pub use files::{FileJournalError, FileMessage, KeptFile};
pub use first_clock::{BEHIND_MAX, FIRST_TIMES_MAX, FirstClock, FirstTime, corrected};
pub use from_toml::from_toml;
pub use grants::{CacheGrant, GrantKind, Named};
pub use holders::Attendance;
pub use inspect::{
    EndedSeen, Inspection, LeadsSeen, OwnerSeen, ReplicaSeen, ReplicaState, TRAIL_TOLD_MAX, TrailSeen,
    TrailWhat,
};
pub use map::{ClusterMap, LeaseAlgorithm, MapError, Osd, REPLICAS_DEFAULT, Settings, is_address};
pub use members::{Changed, MemberChange, MembersError, StrikeError};
pub use message::{
    CLIENT_BATCH_MAX, ClientFrame, DaemonFrame, Grant, PEER_BATCH_MAX, PeerMessage, Record, Reply, ReplyBody,
    Request, RequestBody, RequestId, Revoked, Token, Unavailable, is_file_of_volume, is_volume, lock_cell,
    object_named,
};
pub use namespace::{VOLUME_NAME_BYTES_MAX, VolumeName, VolumeNameError};
pub use orders::{Order, OrderBody, OrderReply, OrderReplyBody};
pub use output::{Output, ShardEvent};
pub use recalls::LENDS_MAX;
pub use recent::{HAPPENED_MAX, Happened, HappenedWhat, Recent, SECONDS_MAX, SecondSeen, TookSeen};
pub use session::{Certificate, SessionId};
pub use shard::{LockCounts, Remembered, Shard, ShardError};
pub use space::DiskSpace;
pub use starts::{Chain, Lines, Met, RestoredCopy, StartRefusal};
pub use status::{
    BlockedStatus, ClockStatus, ClockTrust, DaemonStatus, LackingStatus, LeaseStatus, LockStatus, PageStatus,
    PeerStatus, STATUS_BLOCKED_MAX, STATUS_LACKING_MAX, STATUS_PEERS_MAX, Status, SupervisorStatus,
    WorkStatus,
};
pub use store::{JournalFound, Memo, OpenStep, Opening, StoreFound, StoreRefusal};
pub use tenures::{EndSeen, TenureSeen, tenures};
pub use volumes::{file_object, list_of_volumes, volume_object};
pub use writes::record_data_bytes;
