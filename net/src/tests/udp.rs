//! turmoil's UDP as a [`PacketSocket`], with loss and duplication under a seed.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use base::Random;
use turmoil::net::UdpSocket;

use crate::PacketSocket;

type Readable = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// What happens to packets beside turmoil's own delays and partitions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost_percent: u64,
    pub(super) doubled_percent: u64,
}

/// A UDP socket of a simulated host.
pub(super) struct SimulatedUdp {
    socket: Arc<UdpSocket>,
    readable: Mutex<Option<Readable>>,
    faults: Faults,
    random: Mutex<Random>,
}

impl SimulatedUdp {
    pub(super) async fn bind(port: u16, faults: Faults, seed: u64) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind(("0.0.0.0", port)).await?);
        Ok(Self { socket, readable: Mutex::default(), faults, random: Mutex::new(Random::new(seed)) })
    }
}

impl PacketSocket for SimulatedUdp {
    fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn send(&self, to: SocketAddr, packet: &[u8]) -> io::Result<()> {
        let mut random = self.random.lock().unwrap();
        if random.chance(self.faults.lost_percent, 100) {
            return Ok(());
        }
        let times = if random.chance(self.faults.doubled_percent, 100) { 2 } else { 1 };
        for _ in 0..times {
            // A partition shows as an error in turmoil. On a network it shows as silence.
            let _ = self.socket.try_send_to(packet, to);
        }
        Ok(())
    }

    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        packet: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut readable = self.readable.lock().unwrap();
        loop {
            // A future that waits holds the socket's lock, so reading has to wait for it.
            if let Some(waiting) = readable.as_mut() {
                ready!(waiting.as_mut().poll(context))?;
                *readable = None;
            }
            match self.socket.try_recv_from(packet) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let socket = Arc::clone(&self.socket);
                    *readable = Some(Box::pin(async move { socket.readable().await }));
                }
                received => return Poll::Ready(received),
            }
        }
    }
}

impl std::fmt::Debug for SimulatedUdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedUdp")
    }
}
