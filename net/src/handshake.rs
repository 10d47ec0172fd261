//! How two ends come to know each other: certificates first, then a hello each way, then a welcome each way.
//!
//! Both sides do the same at the same time: they send a hello, read the other's, let their owner decide, and say
//! welcome or refuse. There is a connection once both welcomes are there. A refusal carries a text, and whoever
//! refuses waits a moment for the other side to read it before the connection goes away.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use base::{ClusterId, NodeId, Role, WallTime};
use quinn::{Connection, ConnectionError, SendStream, VarInt, WriteError};
use tokio::time::timeout;
use wire::{Admitted, Hello, Kind, Message, PROTOCOL_VERSION, Refusal, Welcome, Why};

use crate::close::CloseReason;
use crate::frames::{FrameStream, ReadFramesError};
use crate::peer::{Peer, PeerError};

/// How long a refused peer has to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// TLS's alert `no_application_protocol` as QUIC reports it.
const CODE_NO_PROTOCOL: u64 = 0x178;
/// The other alerts of TLS.
const CODES_TLS: std::ops::Range<u64> = 0x100..0x200;

/// What decides about connections: the owner of an endpoint.
pub trait Owner: Send + Sync + 'static {
    /// How we introduce ourselves to `peer`.
    fn hello(&self, peer: &Peer) -> Hello;

    /// Whether the peer that introduced itself with `hello` may come in. It runs before the peer has decided about us,
    /// so a yes is not yet a connection, and nothing may be remembered of the peer.
    fn admit<'a>(&'a self, peer: &'a Peer, hello: &'a Hello) -> Admission<'a>;

    /// The peer was let in and lets us in, and the connection is about to be used. This is the time to note what has to
    /// be known of it before that. Together with [`admit`](Self::admit) it may take as long as
    /// [`hello_timeout`](crate::Config::hello_timeout).
    fn settle<'a>(&'a self, _peer: &'a Peer, _hello: &'a Hello) -> Admission<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Reads the owner's clock, for heartbeats.
    fn clock(&self) -> Reading;
}

/// The future answer of [`Owner::admit`] or [`Owner::settle`].
pub type Admission<'a> = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + 'a>>;

/// The time of an [`Owner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// What its clock shows.
    pub time: WallTime,
    /// Whether that clock has its place among its peers' already.
    pub is_fixed: bool,
}

/// Why two ends did not come together.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is unusable.
    #[error("cannot call `{address}`: {reason}; check the address in the cluster map")]
    Address {
        /// Whom we wanted to call.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing came back.
    #[error(
        "no answer from {address} within {after_ms} ms; check that a daemon runs there and that UDP gets through"
    )]
    NoAnswer {
        /// Whom we called.
        address: SocketAddr,
        /// How long we waited.
        after_ms: u128,
    },
    /// The introductions did not end in time.
    #[error("the peer at {0} did not introduce itself in time")]
    Slow(SocketAddr),
    /// The two programs share no version of the protocol.
    #[error(
        "the peer speaks another version of the protocol than {PROTOCOL_VERSION}; run the same version of fleasefs \
         everywhere"
    )]
    Version,
    /// One side does not accept the other's certificate.
    #[error("the certificates were not accepted: {0}")]
    Certificate(String),
    /// The peer's certificate is of no use here.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Somebody else answers at a node's address.
    #[error("{found} answers at the address of node {wanted}; correct the address in the cluster map")]
    WrongPeer {
        /// Whom we called.
        wanted: NodeId,
        /// Who answered.
        found: Role,
    },
    /// The peer's owner said no.
    #[error("the peer refused us: {0}")]
    RefusedByPeer(Refusal),
    /// Our owner said no.
    #[error("we refused the peer: {0}")]
    RefusedByUs(Refusal),
    /// The connection was lost before both sides had said welcome.
    #[error("the connection ended during the introductions: {0}")]
    Lost(CloseReason),
    /// Our own endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
}

/// Two ends that have welcomed each other.
pub(crate) struct Introduced {
    pub(crate) connection: Connection,
    /// Whether we called the peer.
    pub(crate) is_caller: bool,
    pub(crate) peer: Peer,
    pub(crate) hello: Hello,
    pub(crate) send: SendStream,
    pub(crate) receive: FrameStream,
}

/// Introduces us on a fresh connection. `wanted` is the node that was called.
pub(crate) async fn introduce(
    connection: Connection,
    cluster: ClusterId,
    wanted: Option<NodeId>,
    owner: &dyn Owner,
) -> Result<Introduced, ConnectError> {
    let peer = Peer::of(&connection, cluster)?;
    if let Some(wanted) = wanted
        && peer.role != Role::Node(wanted)
    {
        return Err(ConnectError::WrongPeer { wanted, found: peer.role });
    }
    let mut send = connection.open_uni().await?;
    say(&mut send, &owner.hello(&peer)).await?;
    let mut receive = FrameStream::new(connection.accept_uni().await?, peer.role.clone());

    let hello = match hear::<Hello>(&mut receive).await {
        Ok(hello) => hello,
        Err(Heard::Wrong(refusal)) => return Err(refuse(&connection, send, refusal).await),
        Err(Heard::Error(error)) => return Err(error),
    };
    if let Err(refusal) = owner.admit(&peer, &hello).await {
        return Err(refuse(&connection, send, refusal).await);
    }
    say(&mut send, &Welcome).await?;
    match hear::<Welcome>(&mut receive).await {
        Ok(Welcome) => {}
        Err(Heard::Wrong(refusal)) => return Err(refuse(&connection, send, refusal).await),
        Err(Heard::Error(error)) => return Err(error),
    }
    match owner.settle(&peer, &hello).await {
        Ok(()) => Ok(Introduced { connection, is_caller: wanted.is_some(), peer, hello, send, receive }),
        Err(refusal) => Err(refuse(&connection, send, refusal).await),
    }
}

/// What came instead of what was to come.
enum Heard {
    /// Something that we refuse.
    Wrong(Refusal),
    /// Nothing, or the peer's refusal.
    Error(ConnectError),
}

/// The next message, which has to be an `M`.
async fn hear<M: Message>(receive: &mut FrameStream) -> Result<M, Heard> {
    let frame = match receive.next().await {
        Ok(frame) => frame,
        Err(ReadFramesError::Frame(error)) => {
            let is_version = matches!(error, wire::FrameError::OtherVersion { .. });
            let why = if is_version { Why::Version } else { Why::Protocol };
            return Err(Heard::Wrong(Refusal::new(why, &error.to_string())));
        }
        Err(ReadFramesError::Connection(error)) => return Err(Heard::Error(error.into())),
        Err(ReadFramesError::End) => {
            return Err(Heard::Wrong(Refusal::new(Why::Protocol, "the introduction ended early")));
        }
    };
    match decode(&frame) {
        Ok(message) => Ok(message),
        Err(text) if frame.kind() == Kind::Refusal => Err(match frame.decode::<Refusal>() {
            Ok(refusal) => Heard::Error(ConnectError::RefusedByPeer(refusal)),
            Err(_) => Heard::Wrong(Refusal::new(Why::Protocol, &text)),
        }),
        Err(text) => Err(Heard::Wrong(Refusal::new(Why::Protocol, &text))),
    }
}

fn decode<M: Message>(frame: &Admitted) -> Result<M, String> {
    frame.decode().map_err(|error| error.to_string())
}

async fn say<M: Message>(send: &mut SendStream, message: &M) -> Result<(), ConnectError> {
    let mut bytes = Vec::new();
    wire::encode(message, &mut bytes);
    send.write_all(&bytes).await.map_err(|error| match error {
        WriteError::ConnectionLost(error) => error.into(),
        other => ConnectError::Lost(CloseReason::Protocol(other.to_string())),
    })
}

/// Says no, and leaves the peer time to read it: data that was not read goes away with its connection.
async fn refuse(connection: &Connection, mut send: SendStream, refusal: Refusal) -> ConnectError {
    if say(&mut send, &refusal).await.is_ok() && send.finish().is_ok() {
        // The peer closes as soon as it has read it.
        let _ = timeout(REFUSAL_TIMEOUT, connection.closed()).await;
    }
    connection.close(VarInt::from_u32(0), b"refused");
    ConnectError::RefusedByUs(refusal)
}

impl From<ConnectionError> for ConnectError {
    fn from(error: ConnectionError) -> Self {
        let (code, text) = match &error {
            ConnectionError::VersionMismatch => return Self::Version,
            ConnectionError::TransportError(error) => (u64::from(error.code), error.reason.clone()),
            ConnectionError::ConnectionClosed(close) => {
                (u64::from(close.error_code), format!("the peer says: {close}"))
            }
            ConnectionError::LocallyClosed => return Self::Closed,
            other => return Self::Lost(CloseReason::of(other)),
        };
        match code {
            CODE_NO_PROTOCOL => Self::Version,
            code if CODES_TLS.contains(&code) => Self::Certificate(text),
            _ => Self::Lost(CloseReason::of(&error)),
        }
    }
}
