//! What nodes tell each other about cells.
//!
//! A lease's owner is the process of the ballot it was written under: nobody writes another's lease, so the value
//! need not repeat it.

use base::{NodeId, ObjectId, Process, Seq, Span, View, ViewId, WallTime};

use crate::Ballot;

/// Names one tenure of one owner; random, so that chains of leases can be followed across replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LeaseId(pub u64);

/// How the lease before this one ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Ended {
    /// There was none, or nobody remembers it.
    #[default]
    Unknown,
    /// Its owner gave it up.
    Released,
    /// Nobody renewed it.
    Expired,
    /// A witness reported its owner's death.
    Died,
    /// Its owner named the successor.
    HandedOver,
}

/// Until when a lease is valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Expiry {
    /// Flease: until this time, on every clock within ε.
    At(WallTime),
    /// PaxosLease: for this long, by the clock of whoever counts. Zero means it is over.
    After(Span),
}

/// The end of a log as its last owner left it: a hint for the next owner, never a proof.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Watermark {
    /// The epoch of the last committed entry.
    pub epoch: base::Epoch,
    /// Its position.
    pub seq: Seq,
}

/// How the owner gave its lease up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Given {
    /// Who may take it at once; anybody if nobody is named.
    pub successor: Option<NodeId>,
    /// The end of the log.
    pub watermark: Watermark,
}

/// The value of a register.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lease {
    /// Names the tenure; renewals keep it.
    pub id: LeaseId,
    /// Until when.
    pub expiry: Expiry,
    /// The lease before this one, `LeaseId(0)` if unknown.
    pub previous: LeaseId,
    /// How that one ended.
    pub ended: Ended,
    /// Set once the owner gave it up. Boxed, because few values carry it and all pay for its size.
    pub given: Option<Box<Given>>,
}

/// A lease and the ballot it was written under.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Written {
    /// Whose lease, and which attempt wrote it.
    pub ballot: Ballot,
    /// The value.
    pub lease: Lease,
}

/// One message about one cell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Message {
    /// The cell.
    pub cell: ObjectId,
    /// The view its sender believes in.
    pub view: ViewId,
    /// The attempt that a request opens and an answer repeats.
    pub ballot: Ballot,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Body {
    /// Promise to refuse lower ballots and say what was written.
    Read,
    /// Promised; this is what was written here.
    ReadAck(Option<Box<Written>>),
    /// Accept this value.
    Write(Lease),
    /// Accepted.
    WriteAck,
    /// Refused: `highest` was promised here.
    Nack {
        /// What to go above.
        highest: Ballot,
    },
    /// Refused: the sender's view is older than the acceptor's. Neither a vote nor a nack.
    WrongView(Box<View>),
    /// The owner handed the lease to the receiver, who may acquire it at once. A hint.
    Offer,
}

/// All that one node has to say to another in one turn of its loop.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Batch {
    /// Who sent it.
    pub sender: Process,
    /// A digest of the cluster-wide settings: nodes that disagree must not vote for each other.
    pub settings: u32,
    /// When, by the sender's clock.
    pub sent: WallTime,
    /// What it says.
    pub messages: Vec<Message>,
}

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Why a message was refused without changing anything. Each is counted.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Reject { $($(#[$doc])* $name,)* }

        impl Reject {
            /// All reasons, in the order of the counters.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The reason as a metric's label.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }
        }
    };
}

rejects! {
    /// The sender runs with other cluster-wide settings.
    SettingsDiffer = "settings_differ",
    /// The sender is an incarnation that a witness reported dead.
    DeadSender = "dead_sender",
    /// Sent too long ago to be honest.
    TooOld = "too_old",
    /// This node is silent after its start.
    Quarantined = "quarantined",
    /// Nobody told this node about the cell.
    UnknownCell = "unknown_cell",
    /// The sender is not a member of the cell's view.
    SenderNotMember = "sender_not_member",
    /// This node is not a member of the cell's view.
    NotMember = "not_member",
    /// The sender's view is newer than the one known here.
    ViewBehind = "view_behind",
    /// This node joined the view too recently to vote.
    Newcomer = "newcomer",
    /// A request under another process's ballot.
    ForeignBallot = "foreign_ballot",
    /// A ballot from the far future.
    FutureBallot = "future_ballot",
    /// A lease that would outlive `t_max`.
    LeaseTooLong = "lease_too_long",
    /// An expiry of the other algorithm, or a lease without an id.
    Malformed = "malformed",
    /// A second value under a ballot that already has one.
    TwoValues = "two_values",
    /// An answer to an attempt that is over, or a request that was already answered.
    Stale = "stale",
    /// The limit of registers is reached.
    Full = "full",
}

impl LeaseId {
    /// No lease.
    pub const NONE: Self = Self(0);
}

impl Lease {
    /// Whether its owner still means to keep it.
    pub const fn is_kept(&self) -> bool {
        self.given.is_none()
    }
}
