//! The numbers QUIC runs with. Nothing here is left to a default, because the defaults assume the open internet.

use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use crate::congestion::BoundedCubic;
use crate::socket::SocketBuffers;

/// The largest UDP payload used on loopback.
///
/// Loopback would carry ten times as much, but quinn hands the kernel up to ten packets in one send, and together
/// they must fit one UDP datagram of 65,507 bytes. Larger packets make every full send fail; they then leave one by
/// one, and throughput falls a hundredfold.
pub const LOOPBACK_PACKET_BYTES: u16 = 6_550;

/// What a socket asks the kernel for, in each direction: a burst of a full window must not be dropped.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// quinn's bound on the packets of one segmented send.
const SEGMENTS_PER_SEND: usize = 10;
/// The largest payload that an IPv4 UDP datagram's length field can describe.
const UDP_PAYLOAD_BYTES_MAX: usize = 65_507;
const _: () = assert!(LOOPBACK_PACKET_BYTES as usize * SEGMENTS_PER_SEND <= UDP_PAYLOAD_BYTES_MAX);

/// What every path must carry (RFC 9000, section 14); elsewhere than on loopback we start here and probe upwards.
const SAFE_PACKET_BYTES: u16 = 1_200;
/// What fits an Ethernet frame below IPv6 and UDP headers.
const ETHERNET_PACKET_BYTES: u16 = 1_452;

/// One stream may have this much under way: several of the largest transfers.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// All streams of a connection together. Together with the number of peers it bounds a process's memory.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Streams in each direction that a peer may have open at once.
const STREAMS_MAX: u32 = 256;
/// Datagrams that wait inside quinn to be sent. More wait in our own queue, where they are counted when dropped.
pub(crate) const DATAGRAM_SEND_BYTES: usize = 1 << 20;
/// Datagrams that have arrived and were not yet read. A burst may come in before the reading task has its turn.
pub(crate) const DATAGRAM_RECEIVE_BYTES: usize = 8 << 20;
/// Only an abandoned connection is this quiet. Heartbeats detect failures, long before this does.
const IDLE_TIMEOUT_MS: u32 = 30_000;
/// A sender starts with this much on its way. Loopback has no queue to be polite to but the socket's buffer.
const LOOPBACK_INITIAL_WINDOW_BYTES: u64 = 1 << 20;
/// The first guess of a round trip: the default of 333 ms would make the first lost packet of a LAN a stall.
const INITIAL_RTT: Duration = Duration::from_millis(5);

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
const _: () = assert!(LOOPBACK_INITIAL_WINDOW_BYTES <= SOCKET_BUFFER_BYTES as u64);

/// What lies between two endpoints; it decides the size of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Both ends on this machine: large packets from the start.
    Loopback,
    /// A real network: start with what every path carries and probe up to an Ethernet frame.
    Network,
}

impl Path {
    /// The largest UDP payload that is sent or accepted on this path.
    pub const fn packet_bytes_max(self) -> u16 {
        match self {
            Self::Loopback => LOOPBACK_PACKET_BYTES,
            Self::Network => ETHERNET_PACKET_BYTES,
        }
    }

    /// What this path carries for certain: losses are no reason to send less.
    const fn packet_bytes_at_least(self) -> u16 {
        match self {
            Self::Loopback => LOOPBACK_PACKET_BYTES,
            Self::Network => SAFE_PACKET_BYTES,
        }
    }
}

/// The configuration of connections on `path`, between sockets with such buffers.
pub(crate) fn connection_config(path: Path, buffers: SocketBuffers) -> Arc<TransportConfig> {
    let window_at_start = match path {
        Path::Loopback => Some(LOOPBACK_INITIAL_WINDOW_BYTES),
        Path::Network => None,
    };
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(path.packet_bytes_max());
    let mut config = TransportConfig::default();
    config
        .min_mtu(path.packet_bytes_at_least())
        .initial_mtu(path.packet_bytes_at_least())
        .mtu_discovery_config(Some(discovery))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(u64::from(CONNECTION_WINDOW_BYTES))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MAX))
        .datagram_send_buffer_size(DATAGRAM_SEND_BYTES)
        .datagram_receive_buffer_size(Some(DATAGRAM_RECEIVE_BYTES))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MS))))
        .initial_rtt(INITIAL_RTT)
        .congestion_controller_factory(Arc::new(BoundedCubic::new(buffers.receive_bytes, window_at_start)));
    Arc::new(config)
}

/// The configuration of an endpoint whose peers are reached over `path`.
pub(crate) fn endpoint_config(path: Path) -> Result<EndpointConfig, quinn::ConfigError> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(path.packet_bytes_max())?;
    Ok(config)
}
