//! Everything that comes in, for one task to take out.
//!
//! There are two queues, both bounded. Datagrams and news of connections are *urgent*: they are taken first, and
//! when their queue is full, datagrams are dropped and counted. Frames and the ends of connections are *orderly*:
//! when their queue is full, their streams are not read any further, and flow control makes the peers wait. So
//! lease messages do not wait behind a flood of requests.
//!
//! Events come in batches: whatever of one connection could be read at that moment is one event. In between the
//! queues one order is kept: the first event of a connection is [`Event::Opened`], the last is [`Event::Closed`].

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::{NodeId, WallTime};
use tokio::sync::mpsc::{self, Receiver, Sender};
use wire::{Admitted, TimeAnswer};

use crate::close::CloseReason;
use crate::handshake::ConnectError;
use crate::lanes::bulk::Bulk;
use crate::link::Link;

/// Orderly events taken at once, so that urgent ones are looked for again soon.
const ORDERLY_MAX: usize = 32;

/// What has happened on the network.
#[derive(Debug)]
pub enum Event {
    /// A connection on which both sides have welcomed each other.
    Opened(Link),
    /// Datagrams, in the order of their arrival. Only kinds that the peer may send.
    Datagrams(Link, Vec<Admitted>),
    /// Frames of the lane of small messages, in the order they were sent. Only kinds that the peer may send.
    Frames(Link, Vec<Admitted>),
    /// The peer opened a stream for a transfer.
    Bulk(Link, Bulk),
    /// The peer told its time.
    Time {
        /// Whose time.
        link: Link,
        /// What it said.
        answer: TimeAnswer,
        /// When the answer came, by the owner's clock.
        done: WallTime,
    },
    /// The connection has ended; nothing else comes from it.
    Closed(Link, CloseReason),
    /// A call failed. It is tried again.
    CallFailed {
        /// Who was called.
        node: NodeId,
        /// Why there is no connection.
        error: Arc<ConnectError>,
        /// How many calls in a row have failed now.
        failures: u32,
    },
    /// Somebody called and was not let in, or went away during the introductions.
    CallerRefused {
        /// Where the call came from.
        from: SocketAddr,
        /// Why there is no connection.
        error: ConnectError,
    },
}

/// The owner's end.
#[derive(Debug)]
pub struct Inbox {
    urgent: Receiver<Event>,
    orderly: Receiver<Event>,
}

/// The connections' end.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    urgent: Sender<Event>,
    orderly: Sender<Event>,
}

/// The owner has dropped its inbox.
#[derive(Debug)]
pub(crate) struct OwnerGone;

/// An inbox of which each queue holds `events_max` events.
pub(crate) fn channel(events_max: usize) -> (Outlet, Inbox) {
    let (urgent_sender, urgent) = mpsc::channel(events_max);
    let (orderly_sender, orderly) = mpsc::channel(events_max);
    (Outlet { urgent: urgent_sender, orderly: orderly_sender }, Inbox { urgent, orderly })
}

impl Inbox {
    /// Waits until something has happened and appends it to `events`, with all else that waits and is urgent. False
    /// when the endpoint and all connections are gone.
    pub async fn receive(&mut self, events: &mut Vec<Event>) -> bool {
        poll_fn(|context| self.poll_receive(context, events)).await
    }

    /// Appends to `events` what waits. False if nothing does.
    pub fn try_receive(&mut self, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        // What is orderly was sent after the urgent event that opened its connection. So if it is seen in its queue
        // first, the urgent one is found afterwards, and comes first.
        let orderly = self.orderly.len().min(ORDERLY_MAX);
        while let Ok(event) = self.urgent.try_recv() {
            events.push(event);
        }
        events.extend((0..orderly).map_while(|_| self.orderly.try_recv().ok()));
        events.len() > before
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, events: &mut Vec<Event>) -> Poll<bool> {
        if self.try_receive(events) {
            return Poll::Ready(true);
        }
        let is_urgent_over = match self.urgent.poll_recv(context) {
            Poll::Ready(Some(event)) => {
                events.push(event);
                return Poll::Ready(true);
            }
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        match self.orderly.poll_recv(context) {
            Poll::Ready(Some(event)) => {
                // As above: what opened this connection may have come since.
                while let Ok(urgent) = self.urgent.try_recv() {
                    events.push(urgent);
                }
                events.push(event);
                Poll::Ready(true)
            }
            Poll::Ready(None) if is_urgent_over => Poll::Ready(false),
            _ => Poll::Pending,
        }
    }
}

impl Outlet {
    /// Urgent, and never lost.
    pub(crate) async fn announce(&self, event: Event) -> Result<(), OwnerGone> {
        self.urgent.send(event).await.map_err(|_| OwnerGone)
    }

    /// Urgent, and given up if there is no room. Whether there was.
    pub(crate) fn try_announce(&self, event: Event) -> bool {
        self.urgent.try_send(event).is_ok()
    }

    /// In order, and never lost.
    pub(crate) async fn deliver(&self, event: Event) -> Result<(), OwnerGone> {
        self.orderly.send(event).await.map_err(|_| OwnerGone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(node: u32) -> Event {
        Event::CallFailed { node: NodeId(node), error: Arc::new(ConnectError::Closed), failures: 1 }
    }

    fn nodes(events: Vec<Event>) -> Vec<u32> {
        let node = |event| match event {
            Event::CallFailed { node, .. } => node.0,
            other => panic!("{other:?}"),
        };
        events.into_iter().map(node).collect()
    }

    #[tokio::test]
    async fn what_is_urgent_comes_first() {
        let (outlet, mut inbox) = channel(4);
        outlet.deliver(failed(2)).await.unwrap();
        outlet.announce(failed(1)).await.unwrap();
        let mut events = Vec::new();
        assert!(inbox.receive(&mut events).await);
        assert_eq!(nodes(events), [1, 2]);
    }

    #[tokio::test]
    async fn a_full_queue_of_frames_leaves_room_for_datagrams() {
        let (outlet, mut inbox) = channel(1);
        outlet.deliver(failed(2)).await.unwrap();
        assert!(outlet.try_announce(failed(1)));
        assert!(!outlet.try_announce(failed(3)), "its own queue is full");
        let mut events = Vec::new();
        assert!(inbox.try_receive(&mut events) && !inbox.try_receive(&mut events));
        assert_eq!(nodes(events), [1, 2]);
    }

    #[tokio::test]
    async fn the_end_of_all_senders_is_noticed() {
        let (outlet, mut inbox) = channel(1);
        outlet.deliver(failed(2)).await.unwrap();
        drop(outlet);
        let mut events = Vec::new();
        assert!(inbox.receive(&mut events).await);
        assert!(!inbox.receive(&mut events).await);
    }
}
