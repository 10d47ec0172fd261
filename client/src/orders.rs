//! An operator's orders: each goes to one daemon, once, and is answered at once.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{NodeId, ObjectId, Role};
use node::{DrainError, Order, OrderBody, OrderReply, OrderReplyBody, RequestId};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::driver::Client;

/// How long a daemon has to answer.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an order was not given, or is not followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The certificate is no operator's.
    #[error(
        "only an operator may order that, and this certificate is of {0}; name a folder with one of admin/NAME with --cluster"
    )]
    Role(Role),
    /// The map has no such daemon.
    #[error("the map of this cluster has no daemon {0}; `fleasefs status` lists them")]
    NoSuchDaemon(NodeId),
    /// It does not answer.
    #[error("daemon {node} does not answer: {why}")]
    Unanswered {
        /// Which.
        node: NodeId,
        /// Why not, as far as that is known.
        why: String,
    },
    /// The daemon says no.
    #[error("daemon {node} is not drained: {why}")]
    Drain {
        /// Which.
        node: NodeId,
        /// Why.
        why: DrainError,
    },
}

/// Orders that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    given: u64,
    waiting: BTreeMap<RequestId, (NodeId, oneshot::Sender<OrderReplyBody>)>,
}

impl Orders {
    /// An order for a daemon, and where its answer comes.
    pub(crate) fn give(
        &mut self,
        node: NodeId,
        body: OrderBody,
    ) -> (Order, oneshot::Receiver<OrderReplyBody>) {
        let (sender, receiver) = oneshot::channel();
        self.given += 1;
        let id = RequestId(self.given);
        self.waiting.insert(id, (node, sender));
        (Order { id, body }, receiver)
    }

    pub(crate) fn handle_reply(&mut self, from: NodeId, reply: OrderReply) {
        if self.waiting.get(&reply.id).is_some_and(|(node, _)| *node == from)
            && let Some((_, waiting)) = self.waiting.remove(&reply.id)
        {
            // Whoever gave the order may have gone.
            let _ = waiting.send(reply.body);
        }
    }

    /// Nothing comes from this daemon any more.
    pub(crate) fn lose(&mut self, from: NodeId) {
        self.waiting.retain(|_, (node, _)| *node != from);
    }

    pub(crate) fn end(&mut self) {
        self.waiting.clear();
    }
}

impl Client {
    /// Has a daemon lead nothing until it is told otherwise; see [`Shard::order_drain`](node::Shard::order_drain). It has begun to give
    /// its leases up when this returns.
    pub async fn drain(&self, node: NodeId, forced: bool) -> Result<(), OrderError> {
        self.order_drained(node, OrderBody::Drain { forced }).await
    }

    /// Has a daemon lead again what it is asked for.
    pub async fn undrain(&self, node: NodeId) -> Result<(), OrderError> {
        self.order_drained(node, OrderBody::Undrain).await
    }

    /// Has a daemon go on with a recovery that waits, without what only those have who do not answer; see
    /// [`Shard::accept_loss`](node::Shard::accept_loss). False if none waits there now.
    pub async fn accept_loss(&self, node: NodeId, object: ObjectId) -> Result<bool, OrderError> {
        match self.order(node, OrderBody::AcceptLoss(object)).await? {
            OrderReplyBody::LossAccepted(accepted) => Ok(accepted),
            _ => Err(something_else(node)),
        }
    }

    /// An error if this client's certificate is no operator's.
    pub fn may_order(&self) -> Result<(), OrderError> {
        match &self.role {
            Role::Admin(_) => Ok(()),
            role => Err(OrderError::Role(role.clone())),
        }
    }

    async fn order_drained(&self, node: NodeId, body: OrderBody) -> Result<(), OrderError> {
        match self.order(node, body).await? {
            OrderReplyBody::Drained(Ok(())) => Ok(()),
            OrderReplyBody::Drained(Err(why)) => Err(OrderError::Drain { node, why }),
            _ => Err(something_else(node)),
        }
    }

    /// Gives an order to a daemon. It may have been followed although there is no answer.
    async fn order(&self, node: NodeId, body: OrderBody) -> Result<OrderReplyBody, OrderError> {
        self.may_order()?;
        if self.map().osd(node).is_none() {
            return Err(OrderError::NoSuchDaemon(node));
        }
        match timeout(ORDER_TIMEOUT, self.shared.order(node, body)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) => Err(OrderError::Unanswered { node, why: self.shared.trouble(node) }),
            Err(_) => {
                Err(OrderError::Unanswered { node, why: "connected, but it does not answer".to_owned() })
            }
        }
    }
}

fn something_else(node: NodeId) -> OrderError {
    let why = "it has answered something else; see that all run the same version".to_owned();
    OrderError::Unanswered { node, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_from_whoever_was_ordered() {
        let mut orders = Orders::default();
        let (order, mut answer) = orders.give(NodeId(1), OrderBody::Undrain);
        let reply = OrderReply { id: order.id, body: OrderReplyBody::Drained(Ok(())) };
        orders.handle_reply(NodeId(2), reply.clone());
        assert!(answer.try_recv().is_err());
        orders.handle_reply(NodeId(1), reply);
        assert_eq!(answer.try_recv().ok(), Some(OrderReplyBody::Drained(Ok(()))));
        let (_, mut answer) = orders.give(NodeId(1), OrderBody::Undrain);
        orders.lose(NodeId(1));
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
