//! What a replica wants done. Plain data; what must wait for a write names it.

use base::{Epoch, NodeId, Seq, View, ViewId, WallTime};

use crate::{Entry, Machine, Message, Parts, Position, Request, Rest};

/// Names a write to the journal; counted from 1 for each replica and each start. 0 stands for all that was there at the
/// start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Io(pub u64);

/// Names a question or a wish for durability, for whoever asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// What is written to the journal, in order. A replica that starts again is given all of it since its last checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub enum Record<M: Machine> {
    /// Nobody earlier is followed any more.
    Promised(Epoch),
    /// What stood behind `after` is dropped, and these stand there.
    Appended {
        /// The predecessor of the first.
        after: Seq,
        /// In order, without a gap.
        entries: Vec<Entry<M::Op>>,
        /// Up to where entries were known to be committed by then. What is lost of that is learned again.
        committed: Seq,
    },
    /// From here on a state is taken over: what is here makes no sense until all of it has come.
    Began {
        /// Whose state.
        source: NodeId,
        /// Up to where entries had taken effect here: the parts that come are for a state that has them.
        applied: Seq,
    },
    /// These parts cannot be read any more.
    Damaged {
        /// Up to where entries had taken effect here.
        applied: Seq,
        /// Which, each in this version.
        parts: Vec<(M::Key, Position)>,
    },
    /// They are back, as they were.
    Mended(Parts<M>),
    /// All of a later state has come instead of one that lacked something, whose log stays.
    Repaired(Box<Rest<M::Outcome>>),
    /// Parts of it.
    Placed(Parts<M>),
    /// All of it has come.
    Ended(Box<Rest<M::Outcome>>),
    /// This view is committed; the log may not have it.
    Adopted(View),
    /// All of it is gone. At a home the last view stays.
    Buried(Option<View>),
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
        record: Record<M>,
    },
    /// Send this to a replica, which may be the sender itself: then hand it back.
    Send {
        /// To whom.
        to: NodeId,
        /// The last view that is known to be committed; goes along.
        view: ViewId,
        /// What.
        message: Message<M>,
        /// When.
        when: When,
    },
    /// A request has taken effect. To be told only while the clock is below `until` (R4).
    Done {
        /// Which.
        request: Request,
        /// What came of it.
        outcome: M::Outcome,
        /// What is to be made durable for it.
        mark: Mark,
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

/// Names something that was acknowledged as written, so that it can be made durable, or be found lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mark {
    /// Where it stands.
    pub at: Position,
    /// The loss generation in which it was acknowledged. In a later one it may be lost.
    pub generation: Epoch,
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
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// The tenure is over before it began: nobody has anything of the object, and it was not to begin now.
    Nothing,
    /// The tenure is over before it began: this node lacks too much, and `holder` should have the lease.
    Behind {
        /// Who has what this node lacks.
        holder: NodeId,
    },
    /// Too few of those who answer remember all that they have acknowledged. Who is gone has to come back, or an operator
    /// has to give up what may be lost.
    Blocked {
        /// Members whose answer is missing.
        missing: Vec<NodeId>,
        /// Members that answered and may have lost what was not synced.
        forgot: Vec<NodeId>,
    },
    /// The tenure is over before it began: for long nobody has said what it still had to know. Another member may hear
    /// of whoever could.
    Fruitless {
        /// Who does answer.
        answered: Vec<NodeId>,
    },
    /// What was acknowledged as written, and not made durable, before this tenure may be lost.
    Lost {
        /// The new loss generation.
        generation: Epoch,
    },
    /// The members are these: leases are theirs to grant.
    View(View),
    /// The tenure is over: it began without knowing of the view that was told with [`Event::View`].
    WrongView,
    /// Parts of the state could not be read any more. The tenure is over, if there was one; nothing is answered until they
    /// are back.
    Damaged {
        /// How many.
        parts: usize,
    },
    /// Nothing is lacking any more.
    Mended,
    /// A member lacks what only a primary can give it, and nobody is known to be one.
    Wanted,
    /// This node is no member any more, and nobody will ask it about the object: all of it can go.
    Forgotten,
    /// Nobody needs what this member has of the object: all of it can go.
    Over,
    /// A replica has sent what would have dropped something committed. Nothing has changed.
    Unsound {
        /// Which one.
        from: NodeId,
    },
}
