//! What packets leave and arrive by: the kernel's UDP, or a simulated network.
//!
//! A simulated network implements [`PacketSocket`], which names nothing of the transport. Above it everything is
//! the product's own code: quinn, TLS, lanes and timers.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use crate::transport::SOCKET_BUFFER_BYTES;

/// Linux adds as much again for its own bookkeeping, and reports the sum.
const REPORTED_PER_GRANTED: usize = 2;

/// A socket of a network that is not the kernel's: what a simulator implements.
///
/// Packets may be lost, duplicated and reordered, as on any network. They are never cut.
pub trait PacketSocket: fmt::Debug + Send + Sync + 'static {
    /// Where this socket is reached.
    fn address(&self) -> io::Result<SocketAddr>;

    /// Sends one packet at once, or loses it. A socket never makes its sender wait.
    fn send(&self, to: SocketAddr, packet: &[u8]) -> io::Result<()>;

    /// Receives one packet into `packet`, or has the task woken when there may be one.
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        packet: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>>;
}

/// What the kernel granted of [`SOCKET_BUFFER_BYTES`]. Less than asked for means lost packets under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Bytes that may wait to be sent.
    pub send_bytes: usize,
    /// Bytes that may wait to be read.
    pub receive_bytes: usize,
}

/// Socket buffers that the kernel clamped; its `Display` is a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClampedBuffers(SocketBuffers);

impl SocketBuffers {
    /// Those of a socket that is not the kernel's.
    pub(crate) const UNLIMITED: Self = Self { send_bytes: usize::MAX, receive_bytes: usize::MAX };

    /// What is worth a warning at start, if anything.
    pub fn clamped(self) -> Option<ClampedBuffers> {
        let least = self.send_bytes.min(self.receive_bytes);
        (least < SOCKET_BUFFER_BYTES).then_some(ClampedBuffers(self))
    }
}

impl fmt::Display for ClampedBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SocketBuffers { send_bytes, receive_bytes } = self.0;
        write!(
            f,
            "the kernel granted {send_bytes} bytes of send and {receive_bytes} bytes of receive buffer instead of \
             {SOCKET_BUFFER_BYTES}, so packets are lost under load; raise both with `sysctl -w \
             net.core.wmem_max={SOCKET_BUFFER_BYTES} net.core.rmem_max={SOCKET_BUFFER_BYTES}`"
        )
    }
}

/// A bound UDP socket with as much buffer as it can get.
pub(crate) fn bind_udp(address: SocketAddr) -> io::Result<(std::net::UdpSocket, SocketBuffers)> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // A privileged process gets what it asks for. Everybody else is silently given what the machine's limit
    // allows, hence the reading back.
    if sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
        socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    }
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    }
    let buffers = SocketBuffers {
        send_bytes: socket.send_buffer_size()? / REPORTED_PER_GRANTED,
        receive_bytes: socket.recv_buffer_size()? / REPORTED_PER_GRANTED,
    };
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok((socket.into(), buffers))
}

/// A [`PacketSocket`] as quinn wants to see it.
#[derive(Debug)]
pub(crate) struct Foreign(pub(crate) Arc<dyn PacketSocket>);

#[derive(Debug)]
struct AlwaysWritable;

impl AsyncUdpSocket for Foreign {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.send(transmit.destination, transmit.contents)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut received = 0;
        for (buffer, meta) in buffers.iter_mut().zip(meta.iter_mut()) {
            match self.0.poll_receive(context, buffer) {
                Poll::Ready(Ok((len, addr))) => {
                    *meta = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
                    received += 1;
                }
                // What was received before is handed on; the error comes up again at the next call.
                Poll::Ready(Err(error)) if received == 0 => return Poll::Ready(Err(error)),
                Poll::Pending if received == 0 => return Poll::Pending,
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.address()
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clamped_buffers_name_the_setting_to_raise() {
        let full = SocketBuffers { send_bytes: SOCKET_BUFFER_BYTES, receive_bytes: SOCKET_BUFFER_BYTES };
        assert_eq!(full.clamped(), None);
        let clamped = SocketBuffers { receive_bytes: 212_992, ..full }.clamped().unwrap().to_string();
        assert!(clamped.contains("212992") && clamped.contains("net.core.rmem_max=4194304"), "{clamped}");
    }

    #[test]
    fn the_kernel_grants_some_socket_buffer() {
        let (_, buffers) = bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!((1..=SOCKET_BUFFER_BYTES).contains(&buffers.send_bytes), "{buffers:?}");
        assert!((1..=SOCKET_BUFFER_BYTES).contains(&buffers.receive_bytes), "{buffers:?}");
    }
}
