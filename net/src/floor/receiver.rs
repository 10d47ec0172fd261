//! A receiver of the fan-out: an endpoint and a task that counts what arrives and acknowledges it.

use base::NodeId;
use bytes::Bytes;
use quinn::{RecvStream, SendStream, VarInt};
use tokio::task::JoinSet;

use super::StartError;
use super::frames::{FrameCounter, FrameTooLong};
use super::load::{Ack, Carriage, ECHO_BYTES, Load, LoadError, Order};
use crate::endpoint::{Connection, Endpoint};
use crate::identity::Authority;
use crate::peer::server_name;
use crate::socket::SocketBuffers;
use crate::transport::Path;

/// Pieces taken from a stream under one lock.
const PIECES: usize = 32;

/// What a sender reads as the reason when a receiver gives up on it.
const CODE_GAVE_UP: VarInt = VarInt::from_u32(1);

/// An endpoint that serves one sender until that goes away.
pub(super) struct Receiver {
    endpoint: Endpoint,
}

/// Why a receiver gave up on a sender.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Order(#[from] LoadError),
    #[error(transparent)]
    Frame(#[from] FrameTooLong),
    #[error("the sender broke off: {0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("the sender broke off: {0}")]
    Read(#[from] quinn::ReadError),
    #[error("the sender broke off: {0}")]
    ReadExact(#[from] quinn::ReadExactError),
    #[error("the sender does not read: {0}")]
    Write(#[from] quinn::WriteError),
    #[error("a reading task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Receiver {
    /// Binds the receiver `id`, connects `sender` to it and starts to serve.
    pub(super) async fn join(
        authority: &Authority,
        id: NodeId,
        sender: &Endpoint,
    ) -> Result<(Self, Connection), StartError> {
        let endpoint = Endpoint::bind(super::LOOPBACK, &super::node(authority, id)?, Path::Loopback)?;
        let name = server_name(super::CLUSTER, id);
        let (ours, theirs) = tokio::try_join!(endpoint.accept(), sender.connect(endpoint.address(), &name))?;
        tokio::spawn(serve(ours));
        Ok((Self { endpoint }, theirs))
    }

    pub(super) fn buffers(&self) -> SocketBuffers {
        self.endpoint.buffers()
    }

    /// The task that serves ends with its connection.
    pub(super) async fn close(&self) {
        self.endpoint.close().await;
    }
}

/// Serves orders one after the other until the connection ends.
async fn serve(connection: Connection) {
    while let Ok((send, receive)) = connection.accept_bi().await {
        if let Err(error) = serve_order(&connection, send, receive).await {
            // The sender must learn of it, or it would wait for an acknowledgement that never comes.
            connection.close(CODE_GAVE_UP, error.to_string().as_bytes());
            return;
        }
    }
}

async fn serve_order(
    connection: &Connection,
    mut send: SendStream,
    mut receive: RecvStream,
) -> Result<(), ServeError> {
    let mut order = [0; Order::BYTES];
    receive.read_exact(&mut order).await?;
    let counted = match Order::from_bytes(order)? {
        Order::Echo => return echo(send, receive).await,
        Order::Load(load) => match load.carriage {
            Carriage::OneStream => count_frames(&mut receive).await?,
            Carriage::StreamEach => count_streams(connection, load).await?,
        },
    };
    send.write_all(&counted.to_bytes()).await?;
    Ok(())
}

async fn echo(mut send: SendStream, mut receive: RecvStream) -> Result<(), ServeError> {
    let mut message = [0; ECHO_BYTES];
    // A stream that ends between messages, or is dropped with its round trip, is the normal end.
    while receive.read_exact(&mut message).await.is_ok() {
        send.write_all(&message).await?;
    }
    Ok(())
}

async fn count_frames(stream: &mut RecvStream) -> Result<Ack, ServeError> {
    let mut counter = FrameCounter::default();
    let mut pieces: [Bytes; PIECES] = Default::default();
    while let Some(filled) = stream.read_chunks(&mut pieces).await? {
        for piece in &pieces[..filled] {
            counter.feed(piece)?;
        }
    }
    Ok(counter.counted())
}

/// Streams are read at the same time: read in turn, those not yet read could use up the connection's window that
/// the one being read needs.
async fn count_streams(connection: &Connection, load: Load) -> Result<Ack, ServeError> {
    let mut readers = JoinSet::new();
    let mut counted = Ack::default();
    for _ in 0..load.messages {
        readers.spawn(count_stream(connection.accept_uni().await?));
        while let Some(bytes) = readers.try_join_next() {
            add(&mut counted, bytes??);
        }
    }
    while let Some(bytes) = readers.join_next().await {
        add(&mut counted, bytes??);
    }
    Ok(counted)
}

async fn count_stream(mut stream: RecvStream) -> Result<u64, ServeError> {
    let mut bytes = 0;
    let mut pieces: [Bytes; PIECES] = Default::default();
    while let Some(filled) = stream.read_chunks(&mut pieces).await? {
        bytes += pieces[..filled].iter().map(|piece| piece.len() as u64).sum::<u64>();
    }
    Ok(bytes)
}

fn add(counted: &mut Ack, bytes: u64) {
    counted.messages += 1;
    counted.bytes += bytes;
}
