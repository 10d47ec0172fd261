//! What an operator orders of a daemon about files, and what it answers.
//!
//! Orders name no daemon: each goes to the one that is asked, and some have to be repeated, there or where the answer says.

use base::{Members, NodeId, ObjectId, WallTime};
use lease::Algorithm;

use crate::{Changed, DrainError, MemberChange, MembersError, RequestId, Shard, StrikeError};

/// One order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Names it in the reply.
    pub id: RequestId,
    /// What is ordered.
    pub body: OrderBody,
}

/// What an operator may order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderBody {
    /// Who are the members of a file?
    Members(ObjectId),
    /// See [`change_members`](Shard::change_members).
    Change {
        /// The file.
        object: ObjectId,
        /// How its members are to change.
        change: MemberChange,
    },
    /// See [`strike`](Shard::strike).
    Strike(NodeId),
    /// See [`accept_loss`](Shard::accept_loss).
    AcceptLoss(ObjectId),
    /// See [`order_drain`](Shard::order_drain).
    Drain {
        /// Whatever it breaks.
        forced: bool,
    },
    /// See [`undrain`](Shard::undrain).
    Undrain,
}

/// The answer to an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderReply {
    /// To which.
    pub id: RequestId,
    /// The answer.
    pub body: OrderReplyBody,
}

/// What an operator is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderReplyBody {
    /// They are these, as far as this daemon knows.
    Members(Members),
    /// How far the change is, or why there is none.
    Changed(Result<Changed, MembersError>),
    /// Nobody waits for the node any more, as far as this daemon knows; or why that is not so.
    Struck(Result<(), StrikeError>),
    /// Whether a recovery waited for somebody, and goes on without.
    LossAccepted(bool),
    /// Whether the order to lead nothing, or to lead again, is followed.
    Drained(Result<(), DrainError>),
}

impl<A: Algorithm> Shard<A> {
    /// An operator, whose certificate says so, has ordered something.
    pub fn handle_order(&mut self, now: WallTime, order: Order) -> OrderReply {
        let body = match order.body {
            OrderBody::Members(object) => OrderReplyBody::Members(self.members_of(object)),
            OrderBody::Change { object, change } => {
                OrderReplyBody::Changed(self.change_members(now, object, change))
            }
            OrderBody::Strike(node) => OrderReplyBody::Struck(self.strike(now, node)),
            OrderBody::AcceptLoss(object) => OrderReplyBody::LossAccepted(self.accept_loss(now, object)),
            OrderBody::Drain { forced } => OrderReplyBody::Drained(self.order_drain(now, forced)),
            OrderBody::Undrain => OrderReplyBody::Drained(self.undrain(now)),
        };
        OrderReply { id: order.id, body }
    }
}
