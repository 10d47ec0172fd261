//! The floor of the network: how fast this machine carries messages through quinn with certificates on, and
//! nothing else going on. Later figures are judged as ratios to these.
//!
//! A [`FanOut`] is one sender and two receivers, three endpoints on loopback, as one primary with its two backups
//! is. A message counts as carried once both receivers have it whole and have said so: what still lies in a
//! buffer is not delivered. Timing is the caller's: there is no clock in here.

mod frames;
mod load;
mod receiver;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::{ClusterId, NodeId, Role};
use bytes::{BufMut, Bytes, BytesMut};
use quinn::{RecvStream, SendStream};

pub use load::{Carriage, Load, LoadError, MESSAGE_BYTES_MAX};

use crate::endpoint::{BindError, Connection, Endpoint};
use crate::handshake::ConnectError;
use crate::identity::{Authority, Identity, IdentityError, Validity};
use crate::socket::SocketBuffers;
use crate::transport::Path;
use frames::FRAME_HEADER_BYTES;
use load::{Ack, ECHO_BYTES, Order};
use receiver::Receiver;

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// A cluster that exists only while the floor is measured.
const CLUSTER: ClusterId = ClusterId(*b"floor of quic...");
const SENDER: NodeId = NodeId(0);
const RECEIVERS: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// Small messages are drained into one write of about this size, as requests waiting for a busy connection are.
const BATCH_BYTES: u32 = 32 << 10;

/// One sender and two receivers on loopback, connected.
pub struct FanOut {
    sender: Endpoint,
    receivers: [Receiver; 2],
    connections: [Connection; 2],
}

/// A stream on which one small message at a time goes to a receiver and back.
pub struct RoundTrip {
    send: SendStream,
    receive: RecvStream,
}

/// Why the three endpoints did not come together.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No certificates.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Why a load was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The load is outside what a receiver takes.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The connection was lost under way.
    #[error("the connection to a receiver was lost; run again with less else going on")]
    Connection(#[from] quinn::ConnectionError),
    /// A receiver stopped reading.
    #[error("a receiver stopped reading; run again with less else going on")]
    Write(#[from] quinn::WriteError),
    /// A receiver did not acknowledge.
    #[error("a receiver did not acknowledge; run again with less else going on")]
    Ack(#[from] quinn::ReadExactError),
    /// A stream was finished twice: a mistake in this module.
    #[error("a stream was finished twice")]
    Finished(#[from] quinn::ClosedStream),
    /// A receiver counted something else than was sent.
    #[error("a receiver counted {got_bytes} bytes in {got_messages} messages, not what was sent")]
    Miscounted {
        /// Messages counted.
        got_messages: u64,
        /// Bytes of payload counted.
        got_bytes: u64,
    },
}

impl FanOut {
    /// Makes an authority and three certificates, binds three endpoints and connects them.
    pub async fn start() -> Result<Self, StartError> {
        let authority = Authority::new(CLUSTER, Validity::ALWAYS)?;
        let sender = Endpoint::bind(LOOPBACK, &node(&authority, SENDER)?, Path::Loopback)?;
        let (first, first_connection) = Receiver::join(&authority, RECEIVERS[0], &sender).await?;
        let (second, second_connection) = Receiver::join(&authority, RECEIVERS[1], &sender).await?;
        Ok(Self { sender, receivers: [first, second], connections: [first_connection, second_connection] })
    }

    /// Sends `load` to both receivers and waits until both have counted all of it.
    pub async fn run(&self, load: Load) -> Result<(), RunError> {
        let [first, second] = &self.connections;
        tokio::try_join!(send(first, load), send(second, load))?;
        Ok(())
    }

    /// Sends `load` to one receiver and waits until it has counted all of it.
    pub async fn run_single(&self, load: Load) -> Result<(), RunError> {
        send(&self.connections[0], load).await
    }

    /// Opens a stream for round trips to one receiver.
    pub async fn round_trip(&self) -> Result<RoundTrip, RunError> {
        let (mut send, receive) = self.connections[0].open_bi().await?;
        send.write_all(&Order::Echo.to_bytes()).await?;
        Ok(RoundTrip { send, receive })
    }

    /// The smallest socket buffers that the kernel granted any of the three endpoints.
    pub fn buffers(&self) -> SocketBuffers {
        self.receivers.iter().map(Receiver::buffers).fold(self.sender.buffers(), |least, next| {
            SocketBuffers {
                send_bytes: least.send_bytes.min(next.send_bytes),
                receive_bytes: least.receive_bytes.min(next.receive_bytes),
            }
        })
    }

    /// Closes the connections and waits until everybody knows.
    pub async fn close(&self) {
        self.sender.close().await;
        for receiver in &self.receivers {
            receiver.close().await;
        }
    }
}

impl RoundTrip {
    /// Sends one message of 128 bytes and waits until it has come back.
    pub async fn once(&mut self) -> Result<(), RunError> {
        let mut message = [0x5a; ECHO_BYTES];
        self.send.write_all(&message).await?;
        self.receive.read_exact(&mut message).await?;
        Ok(())
    }
}

fn node(authority: &Authority, id: NodeId) -> Result<Identity, IdentityError> {
    authority.issue(&Role::Node(id), &[], Validity::ALWAYS)
}

async fn send(connection: &Connection, load: Load) -> Result<(), RunError> {
    let load = load.checked()?;
    let (mut control, mut acks) = connection.open_bi().await?;
    control.write_all(&Order::Load(load).to_bytes()).await?;
    match load.carriage {
        Carriage::OneStream => send_on_one_stream(&mut control, load).await?,
        Carriage::StreamEach => send_on_streams(connection, load).await?,
    }
    control.finish()?;
    let mut ack = [0; Ack::BYTES];
    acks.read_exact(&mut ack).await?;
    let Ack { messages, bytes } = Ack::from_bytes(ack);
    if messages != load.messages || bytes != load.messages * u64::from(load.message_bytes) {
        return Err(RunError::Miscounted { got_messages: messages, got_bytes: bytes });
    }
    Ok(())
}

/// Small messages are copied together into one write; from half a batch on copying costs more than it saves.
async fn send_on_one_stream(stream: &mut SendStream, load: Load) -> Result<(), RunError> {
    let payload = payload(load);
    let frame_bytes = FRAME_HEADER_BYTES + load.message_bytes;
    let batch_messages = BATCH_BYTES / frame_bytes;
    let mut left = load.messages;
    while left > 0 {
        if batch_messages < 2 {
            let header = Bytes::copy_from_slice(&load.message_bytes.to_le_bytes());
            stream.write_all_chunks(&mut [header, payload.clone()]).await?;
            left -= 1;
            continue;
        }
        let messages = left.min(u64::from(batch_messages));
        let mut batch = BytesMut::with_capacity(BATCH_BYTES as usize);
        for _ in 0..messages {
            batch.put_u32_le(load.message_bytes);
            batch.put_slice(&payload);
        }
        stream.write_chunk(batch.freeze()).await?;
        left -= messages;
    }
    Ok(())
}

async fn send_on_streams(connection: &Connection, load: Load) -> Result<(), RunError> {
    let payload = payload(load);
    for _ in 0..load.messages {
        let mut stream = connection.open_uni().await?;
        stream.write_chunk(payload.clone()).await?;
        stream.finish()?;
    }
    Ok(())
}

fn payload(load: Load) -> Bytes {
    Bytes::from(vec![0x5a; load.message_bytes as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn deliver(load: Load) {
        let fan_out = FanOut::start().await.unwrap();
        fan_out.run(load).await.unwrap();
        fan_out.run_single(load).await.unwrap();
        fan_out.close().await;
    }

    #[tokio::test]
    async fn every_byte_of_small_messages_arrives() {
        deliver(Load { message_bytes: 128, messages: 1_003, carriage: Carriage::OneStream }).await;
    }

    #[tokio::test]
    async fn every_byte_of_large_messages_arrives() {
        for carriage in [Carriage::OneStream, Carriage::StreamEach] {
            deliver(Load { message_bytes: 1 << 20, messages: 7, carriage }).await;
        }
    }

    #[tokio::test]
    async fn more_streams_than_a_peer_may_open_at_once() {
        deliver(Load { message_bytes: 64, messages: 1_000, carriage: Carriage::StreamEach }).await;
    }

    #[tokio::test]
    async fn round_trips_come_back() {
        let fan_out = FanOut::start().await.unwrap();
        let mut trip = fan_out.round_trip().await.unwrap();
        for _ in 0..10 {
            trip.once().await.unwrap();
        }
        fan_out.close().await;
    }

    #[tokio::test]
    async fn a_load_outside_the_bounds_is_refused_before_anything_is_sent() {
        let fan_out = FanOut::start().await.unwrap();
        for message_bytes in [0, MESSAGE_BYTES_MAX + 1] {
            let load = Load { message_bytes, messages: 1, carriage: Carriage::OneStream };
            assert!(matches!(fan_out.run(load).await, Err(RunError::Load(_))));
        }
        fan_out.close().await;
    }
}
