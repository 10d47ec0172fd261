//! A connection on which both sides have welcomed each other, and the tasks that serve it.
//!
//! ```text
//! owner --datagram--> DatagramSender --pace--> quinn --> peer
//! owner --send------> MessageSender --write--> quinn --> peer
//! peer --> quinn --> one task for each lane --> inbox --> owner
//! ```
//!
//! The tasks live as long as the connection. When it ends, what had been read is still delivered, and then
//! [`Event::Closed`], exactly once.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::{Span, WallTime};
use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::{Admitted, Frame, Heartbeat, Hello, Kind, TimeAnswer};

use crate::close::CloseReason;
use crate::config::Config;
use crate::deny::DenyList;
use crate::frames::{FrameStream, ReadFramesError};
use crate::handshake::{Introduced, Owner};
use crate::inbox::{Event, Outlet, OwnerGone};
use crate::lanes::bulk::{Bulk, BulkError};
use crate::lanes::datagrams::{self, DatagramError, DatagramSender};
use crate::lanes::messages::{MessageSender, SendError};
use crate::peer::Peer;

/// How long what was sent before [`Link::close_after_sending`] may take to arrive.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// So often who does not answer is to hear something in the time after which it takes us for silent.
const WORDS_IN_SILENCE: u32 = 3;

/// A handle of a connection. Clones are cheap and stand for the same connection, which lives until it is closed.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

/// Tells connections of one endpoint apart. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// How a connection fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// The smoothed time from a packet to its acknowledgement.
    pub round_trip: Span,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that were sent and never acknowledged. What streams had in them was sent again.
    pub packets_lost: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Datagrams given up before they were sent, because both buffers were full.
    pub datagrams_dropped_sending: u64,
    /// Datagrams received and given up, because the owner or its reading task was too slow.
    pub datagrams_dropped_receiving: u64,
    /// Bytes of small messages that wait to be sent.
    pub messages_waiting_bytes: u64,
}

struct Inner {
    id: LinkId,
    connection: Connection,
    /// Whether we called the peer.
    is_caller: bool,
    peer: Peer,
    hello: Hello,
    datagrams: DatagramSender,
    messages: MessageSender,
    /// Anything came from the peer since the last heartbeat.
    is_heard: AtomicBool,
    /// Anything but a heartbeat was sent to it since the last heartbeat.
    has_spoken: AtomicBool,
    /// It was asked for its time since the last heartbeat, in one packet with an answer.
    has_asked: AtomicBool,
    datagrams_taken: AtomicU64,
    datagrams_refused: AtomicU64,
    /// Why we closed, if it was us.
    ours: OnceLock<CloseReason>,
}

/// What all connections of an endpoint share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) owner: Arc<dyn Owner>,
    pub(crate) outlet: Outlet,
    pub(crate) denied: DenyList,
    /// Whether we may send heartbeats at all; a client answers none.
    pub(crate) may_ask: bool,
    pub(crate) next_link: AtomicU64,
}

impl Link {
    /// Which connection this is.
    pub fn id(&self) -> LinkId {
        self.inner.id
    }

    /// Who is at the other end, by certificate.
    pub fn peer(&self) -> &Peer {
        &self.inner.peer
    }

    /// What the peer said of itself. Its cluster map and incarnation are as checked by [`Owner::admit`].
    pub fn hello(&self) -> &Hello {
        &self.inner.hello
    }

    /// Sends an encoded datagram, or queues it. It may get lost on the way, and [`LinkStats`] counts it if it was
    /// given up here.
    pub fn datagram(&self, datagram: Bytes) -> Result<(), DatagramError> {
        self.inner.has_spoken.store(true, Ordering::Relaxed);
        self.inner.datagrams.send(datagram)
    }

    /// The longest datagram that fits a packet at present. It may change with the path.
    pub fn datagram_bytes_max(&self) -> usize {
        self.inner.datagrams.size_max()
    }

    /// Queues encoded frames for the lane of small messages: in order, without loss while the connection lasts.
    pub fn send(&self, frames: Bytes) -> Result<(), SendError> {
        self.inner.has_spoken.store(true, Ordering::Relaxed);
        self.inner.messages.send([frames])
    }

    /// The same for one frame in pieces, whose memory is shared until it has arrived.
    pub fn send_in_pieces(&self, frame: Vec<Bytes>) -> Result<(), SendError> {
        self.inner.has_spoken.store(true, Ordering::Relaxed);
        self.inner.messages.send(frame)
    }

    /// How many bytes wait in that lane, or are being written.
    pub fn waiting_bytes(&self) -> usize {
        self.inner.messages.waiting_bytes()
    }

    /// Opens a stream for a transfer. Waits while the peer has as many open as it allows.
    pub async fn open_bulk(&self) -> Result<Bulk, BulkError> {
        Bulk::open(&self.inner.connection).await
    }

    /// Closes the connection at once; the peer is told `reason`. What still waits is not sent.
    pub fn close(&self, reason: &str) {
        self.end(CloseReason::Ours(reason.to_owned()));
    }

    /// Takes no more small messages, and closes the connection once those before have arrived, or a second later:
    /// a peer that does not read keeps no place. Needs a running tokio runtime.
    pub fn close_after_sending(&self, reason: &str) {
        self.inner.messages.close(reason);
        let (link, reason) = (self.clone(), reason.to_owned());
        tokio::spawn(async move {
            let _ = timeout(LAST_WORDS_TIMEOUT, link.inner.connection.closed()).await;
            link.close(&reason);
        });
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) -> CloseReason {
        let error = self.inner.connection.closed().await;
        self.inner.ours.get().cloned().unwrap_or_else(|| CloseReason::of(&error))
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.inner.connection.close_reason().is_some()
    }

    /// How the connection fares.
    pub fn stats(&self) -> LinkStats {
        let Inner { connection, datagrams, messages, .. } = &*self.inner;
        let stats = connection.stats();
        // What quinn gave up by itself shows as the difference between what came and what we took.
        let taken = self.inner.datagrams_taken.load(Ordering::Relaxed);
        let unread = stats.frame_rx.datagram.saturating_sub(taken);
        LinkStats {
            round_trip: span(stats.path.rtt),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            packets_received: stats.udp_rx.datagrams,
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            datagrams_dropped_sending: datagrams.dropped(),
            datagrams_dropped_receiving: unread + self.inner.datagrams_refused.load(Ordering::Relaxed),
            messages_waiting_bytes: messages.waiting_bytes() as u64,
        }
    }

    /// Closes the connection for `reason`, unless it has one already.
    pub(crate) fn end(&self, reason: CloseReason) {
        let (code, text) = reason.to_peer();
        if !self.is_closed() && self.inner.ours.set(reason).is_ok() {
            self.inner.connection.close(code, text.as_bytes());
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({}, {})", self.inner.id.0, self.inner.peer.role)
    }
}

/// A connection that is ready to serve, with what [`serve`] needs.
pub(crate) struct Ready {
    pub(crate) link: Link,
    send: SendStream,
    receive: FrameStream,
}

/// Makes a connection ready; nothing runs before [`serve`].
pub(crate) fn prepare(introduced: Introduced, shared: &Shared) -> Ready {
    let Introduced { connection, is_caller, peer, hello, send, receive } = introduced;
    let inner = Inner {
        id: LinkId(shared.next_link.fetch_add(1, Ordering::Relaxed)),
        datagrams: DatagramSender::new(connection.clone(), shared.config.datagram_queue_bytes),
        messages: MessageSender::new(shared.config.message_queue_bytes),
        connection,
        is_caller,
        peer,
        hello,
        is_heard: AtomicBool::new(true),
        has_spoken: AtomicBool::new(false),
        has_asked: AtomicBool::new(false),
        datagrams_taken: AtomicU64::new(0),
        datagrams_refused: AtomicU64::new(0),
        ours: OnceLock::new(),
    };
    Ready { link: Link { inner: Arc::new(inner) }, send, receive }
}

/// Tells the owner of a connection, serves it until it ends, and tells the owner again.
pub(crate) async fn serve(ready: Ready, shared: Arc<Shared>) {
    let Ready { link, send, receive } = ready;
    if shared.outlet.announce(Event::Opened(link.clone())).await.is_err() {
        return end_ownerless(&link);
    }
    let (mut readers, mut others) = (JoinSet::new(), JoinSet::new());
    readers.spawn(read_datagrams(link.clone(), Arc::clone(&shared)));
    readers.spawn(read_frames(link.clone(), receive, shared.outlet.clone()));
    readers.spawn(accept_bulk(link.clone(), shared.outlet.clone()));
    others.spawn(write_frames(link.clone(), send));
    others.spawn(pace_datagrams(link.clone()));
    others.spawn(beat(link.clone(), Arc::clone(&shared)));
    others.spawn(watch_denied(link.clone(), shared.denied.clone()));

    let reason = link.closed().await;
    link.inner.messages.close("");
    others.abort_all();
    // Readers end by themselves, after they have handed on what they had read.
    while readers.join_next().await.is_some() {}
    // Nobody is left to be told if the owner is gone.
    let _ = shared.outlet.deliver(Event::Closed(link, reason)).await;
}

async fn read_datagrams(link: Link, shared: Arc<Shared>) {
    while let Ok(batch) = datagrams::receive(&link.inner.connection).await {
        link.inner.is_heard.store(true, Ordering::Relaxed);
        link.inner.datagrams_taken.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let mut admitted = Vec::with_capacity(batch.len());
        for datagram in batch {
            match admit(&link, datagram) {
                Ok(frame) if frame.kind() == Kind::Heartbeat => {
                    if let Err(reason) = take_heartbeat(&link, &frame, &shared) {
                        return link.end(reason);
                    }
                }
                Ok(frame) => admitted.push(frame),
                Err(reason) => return link.end(reason),
            }
        }
        let count = admitted.len() as u64;
        if count > 0 && !shared.outlet.try_announce(Event::Datagrams(link.clone(), admitted)) {
            link.inner.datagrams_refused.fetch_add(count, Ordering::Relaxed);
        }
    }
}

fn admit(link: &Link, datagram: Bytes) -> Result<Admitted, CloseReason> {
    let frame = Frame::from_datagram(datagram).and_then(|frame| frame.admit(&link.inner.peer.role));
    frame.map_err(|error| CloseReason::Protocol(error.to_string()))
}

/// Answers a question at once, or hands an answer to the owner.
fn take_heartbeat(link: &Link, frame: &Admitted, shared: &Shared) -> Result<(), CloseReason> {
    let heartbeat = frame.decode().map_err(|error| CloseReason::Protocol(error.to_string()))?;
    let now = shared.owner.clock();
    match heartbeat {
        Heartbeat::Ask { asked } if shared.may_ask => {
            let answer =
                TimeAnswer { asked, received: now.time, answered: now.time, time_is_fixed: now.is_fixed };
            send_heartbeat(link, &Heartbeat::Answer(answer));
            if !link.inner.is_caller {
                send_heartbeat(link, &Heartbeat::Ask { asked: now.time });
                link.inner.has_asked.store(true, Ordering::Relaxed);
            }
        }
        Heartbeat::Ask { .. } => {}
        Heartbeat::Answer(answer) => {
            // One of the next will find room.
            shared.outlet.try_announce(Event::Time { link: link.clone(), answer, done: now.time });
        }
    }
    Ok(())
}

fn send_heartbeat(link: &Link, heartbeat: &Heartbeat) {
    let mut bytes = Vec::new();
    wire::encode(heartbeat, &mut bytes);
    // It always fits a packet, and a connection that has ended needs none.
    let _ = link.inner.datagrams.send_first(bytes.into());
}

async fn read_frames(link: Link, mut receive: FrameStream, outlet: Outlet) {
    loop {
        let frames = match receive.batch().await {
            Ok(frames) => frames,
            Err(ReadFramesError::Connection(_)) => return,
            // The peer has sent its last words and closes when they have arrived.
            Err(ReadFramesError::End) => return,
            Err(ReadFramesError::Frame(error)) => {
                return link.end(CloseReason::Protocol(error.to_string()));
            }
        };
        link.inner.is_heard.store(true, Ordering::Relaxed);
        let introduction = |frame: &Admitted| is_introduction(frame.kind()).then(|| frame.kind());
        if let Some(kind) = frames.iter().find_map(introduction) {
            return link.end(CloseReason::Protocol(format!("a {kind} frame after the introductions")));
        }
        if let Err(OwnerGone) = outlet.deliver(Event::Frames(link.clone(), frames)).await {
            return end_ownerless(&link);
        }
    }
}

const fn is_introduction(kind: Kind) -> bool {
    matches!(kind, Kind::Hello | Kind::Welcome | Kind::Refusal)
}

async fn accept_bulk(link: Link, outlet: Outlet) {
    while let Ok(bulk) = Bulk::accept(&link.inner.connection).await {
        link.inner.is_heard.store(true, Ordering::Relaxed);
        if let Err(OwnerGone) = outlet.deliver(Event::Bulk(link.clone(), bulk)).await {
            return end_ownerless(&link);
        }
    }
}

async fn write_frames(link: Link, mut send: SendStream) {
    let Ok(reason) = link.inner.messages.write_to(&mut send).await else { return };
    if send.finish().is_ok() {
        // All has arrived, or the connection has ended.
        let _ = send.stopped().await;
    }
    link.close(&reason);
}

async fn pace_datagrams(link: Link) {
    link.inner.datagrams.pace().await;
}

/// Asks the peer for its time at every interval, and notices when nothing comes from it any more. Of two nodes the one that was called asks
/// when it is asked, in the packet of its answer. Who answers nothing, a client, is asked only so that it hears something now and then.
///
/// Silence is counted in beats, not taken from a clock: a process that was stopped for a while has missed many
/// packets that lie in its socket, but only one beat.
async fn beat(link: Link, shared: Arc<Shared>) {
    let peer_beats = Kind::Heartbeat.may_come_from(&link.inner.peer.role);
    let unspoken_max = (shared.config.silent_intervals / WORDS_IN_SILENCE).max(1);
    let (mut silent, mut unspoken) = (0, 0);
    loop {
        let flag = |flag: &AtomicBool| flag.swap(false, Ordering::Relaxed);
        silent = if flag(&link.inner.is_heard) { 0 } else { silent + 1 };
        if peer_beats && silent >= shared.config.silent_intervals {
            return link.end(CloseReason::Silent(shared.config.silent_after()));
        }
        unspoken = if flag(&link.inner.has_spoken) { 0 } else { unspoken + 1 };
        let was_asked = flag(&link.inner.has_asked);
        let is_due = if peer_beats { !was_asked } else { unspoken >= unspoken_max };
        if shared.may_ask && is_due {
            unspoken = 0;
            send_heartbeat(&link, &Heartbeat::Ask { asked: shared.owner.clock().time });
        }
        sleep(until_next_beat(shared.owner.clock().time, shared.config.heartbeat_interval)).await;
    }
}

/// All links beat at the same times, whole intervals of the clock: so a beat wakes a process once for all of them, and those of its peers,
/// if they have the same clock, arrive together. Between two beats is half an interval at least.
fn until_next_beat(now: WallTime, interval: Duration) -> Duration {
    let every = span(interval).as_micros().max(1);
    let left = every - now.as_micros() % every;
    Duration::from_micros(if left < every / 2 { left + every } else { left })
}

async fn watch_denied(link: Link, denied: DenyList) {
    denied.denied(link.inner.peer.fingerprint).await;
    link.end(CloseReason::Denied);
}

fn end_ownerless(link: &Link) {
    link.close("the process is stopping");
}

fn span(duration: Duration) -> Span {
    Span::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_come_at_whole_intervals_and_not_soon_after_one() {
        const INTERVAL: Duration = Duration::from_millis(100);
        let ms = |at| until_next_beat(WallTime::from_micros(at), INTERVAL).as_millis();
        assert_eq!([0, 1_000, 50_000].map(ms), [100, 99, 50]);
        assert_eq!([50_001, 99_999].map(ms), [149, 100], "it is near enough to the next");
    }
}
