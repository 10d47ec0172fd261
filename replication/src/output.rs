//! What a replica wants done. Plain data; what must wait for a write names it.

use base::{Epoch, NodeId, Seq, WallTime};

use crate::{Entry, Machine, Message, Position, Request};

/// Names a write to the journal; counted from 1 for each replica and each start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Io(pub u64);

/// Names a question or a wish for durability, for whoever asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What is written to the journal, in order. A replica that starts again is given all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record<O> {
    /// Nobody earlier is followed any more.
    Promised(Epoch),
    /// What stood behind `after` is dropped, and these stand there.
    Appended {
        /// The predecessor of the first.
        after: Seq,
        /// In order, without a gap.
        entries: Vec<Entry<O>>,
        /// Up to where entries were known to be committed by then. What is lost of that is learned again.
        committed: Seq,
    },
}

/// When a message may leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum When {
    /// At once.
    Now,
    /// When this write, and so all before it, would survive the end of the process.
    Written(Io),
    /// When this write, and so all before it, would survive a power cut.
    Durable(Io),
}

/// Something to do, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Output<M: Machine> {
    /// Append this to the journal.
    Journal {
        /// Its name.
        io: Io,
        /// What.
        record: Record<M::Op>,
    },
    /// Send this to a replica, which may be the sender itself: then hand it back.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message<M::Op>,
        /// When.
        when: When,
    },
    /// A request has taken effect. To be told only while the clock is below `until` (R4).
    Done {
        /// Which.
        request: Request,
        /// What came of it.
        outcome: M::Outcome,
        /// Where it stands; what is to be made durable for it.
        at: Position,
        /// When the lease ends.
        until: WallTime,
    },
    /// An answer to a question. To be told only while the clock is below `until` (R4).
    Answer {
        /// Which question.
        ticket: Ticket,
        /// The answer.
        answer: M::Answer,
        /// When the lease ends.
        until: WallTime,
    },
    /// What a sync was asked for is durable at a majority. To be told only while the clock is below `until` (R4).
    Durable {
        /// Which sync.
        ticket: Ticket,
        /// When the lease ends.
        until: WallTime,
    },
    /// A request, a question or a sync will not be answered here: its outcome is unknown, and it is to be asked again.
    Unknown(Waiting),
    /// Something happened that the node has to act upon.
    Event(Event),
}

/// Who waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Waiting {
    /// A request.
    Request(Request),
    /// A question or a sync.
    Ticket(Ticket),
}

/// Something the rest of the node has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// What the tenure recovered is committed; requests are taken.
    Serving {
        /// The tenure's epoch.
        epoch: Epoch,
    },
    /// A member follows somebody later, so this tenure is over. The next epoch of this node has to be above that.
    Outbid {
        /// Whom it follows.
        promised: Epoch,
    },
    /// No majority has answered for long: somebody who is better connected should have the lease.
    Isolated,
}
