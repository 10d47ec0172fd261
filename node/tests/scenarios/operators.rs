//! What operators say in the stories.

use base::{ObjectId, Span};
use lease::Algorithm;
use node::{Changed, DrainError, MemberChange, MembersError, Order, OrderBody, OrderReplyBody, RequestId};

use crate::cluster::{Cluster, ms};

impl<A: Algorithm> Cluster<A> {
    /// An operator's word to one daemon.
    pub(crate) fn order(
        &mut self,
        node: u32,
        object: ObjectId,
        change: MemberChange,
    ) -> Result<Changed, MembersError> {
        match self.obey(node, OrderBody::Change { object, change }) {
            OrderReplyBody::Changed(told) => told,
            told => panic!("{told:?} is no answer"),
        }
    }

    /// An operator's word of any kind.
    pub(crate) fn obey(&mut self, node: u32, body: OrderBody) -> OrderReplyBody {
        let (id, mut told) = (RequestId(7), None);
        self.call(node, |shard, now| told = Some(shard.handle_order(now, Order { id, body })));
        self.settle();
        let reply = told.expect("it runs");
        assert_eq!(reply.id, id);
        reply.body
    }

    /// An operator's word to whoever answers for a file, again and again until it is done within `limit`. Who did it.
    pub(crate) fn must_change(
        &mut self,
        asked: u32,
        object: ObjectId,
        change: MemberChange,
        limit: Span,
    ) -> u32 {
        let (start, mut asked) = (self.now, asked);
        loop {
            let told = self.order(asked, object, change);
            match told {
                Ok(Changed::Done) => return asked,
                Err(MembersError::Elsewhere(node)) => asked = node.0,
                Ok(Changed::UnderWay)
                | Err(MembersError::Undecided | MembersError::Unavailable(_) | MembersError::Changing) => {}
                Err(error) => panic!("{change:?} at node {asked}: {error}"),
            }
            assert!(self.now.since(start) < limit, "{change:?} at node {asked}: {told:?}");
            self.run(ms(5));
        }
    }

    pub(crate) fn drain(&mut self, node: u32) {
        self.call(node, |shard, now| shard.drain(now));
        self.settle();
    }

    /// An operator's word that a daemon is to lead nothing.
    pub(crate) fn order_drain(&mut self, node: u32, forced: bool) -> Result<(), DrainError> {
        match self.obey(node, OrderBody::Drain { forced }) {
            OrderReplyBody::Drained(told) => told,
            told => panic!("{told:?} is no answer"),
        }
    }

    /// An operator's word that it is to lead again.
    pub(crate) fn undrain(&mut self, node: u32) {
        assert_eq!(self.obey(node, OrderBody::Undrain), OrderReplyBody::Drained(Ok(())));
    }
}
