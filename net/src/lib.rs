//! QUIC with certificates on both sides: the only place that names quinn, rustls and rcgen.
//!
//! Everything that leaves a process leaves it here, over TLS 1.3, and a peer that shows no certificate of the
//! cluster's authority is refused before a byte of its is decoded. There is no plaintext mode.
//!
//! Deliberately absent: decisions about who is let in, who calls whom, and which request is repeated (owners make
//! them), the layout of messages, and clocks (an owner brings its own; timers are tokio's). `docs/network.md` says
//! what happens on each failure.
//!
//! ```text
//! identity     who we are: an authority and the certificates it issued
//! credentials  identities in files
//! peer         who the other side is, from its certificate
//! deny         certificates that are no longer welcome
//! tls          identity -> rustls configuration, certificates required both ways
//! transport    windows, packet sizes, stream counts
//! congestion   how much may be on its way at once
//! socket       the kernel's UDP, or a simulated network
//! timer        tokio for quinn, with timers that wake nobody in vain
//! reset        how peers learn at once that a process was replaced
//! endpoint     a bound socket that can connect and accept
//! handshake    hello and welcome each way, and what the owner has to decide
//! link         a connection and its tasks: heartbeats, and the lanes below
//! lanes        datagrams, small messages, transfers
//! frames       frames out of a stream
//! inbox        everything that comes in, for one task to take out
//! network      an endpoint at work: lets callers in
//! caller       keeps one connection to a node
//! close        why connections end
//! floor        what the above can do at best on this machine, for `fleasefs bench floor`
//! ```

mod caller;
mod close;
mod config;
mod congestion;
pub mod credentials;
mod deny;
mod endpoint;
pub mod floor;
mod frames;
mod handshake;
mod identity;
mod inbox;
mod lanes;
mod link;
mod network;
mod peer;
mod reset;
mod socket;
mod timer;
mod tls;
mod transport;

pub use caller::Caller;
pub use close::CloseReason;
pub use config::{Config, ConfigError};
pub use deny::{DENIED_MAX, Denied, DenyError, DenyList};
pub use endpoint::{BindError, Endpoint};
pub use handshake::{Admission, ConnectError, Owner, Reading};
pub use identity::{Authority, Identity, IdentityError, Validity, date};
pub use inbox::{Event, Inbox};
pub use lanes::bulk::{BULK_BYTES_MIN, Bulk, BulkError, BulkReceiver, BulkSender};
pub use lanes::datagrams::DatagramError;
pub use lanes::messages::SendError;
pub use link::{Link, LinkId, LinkStats};
pub use network::Network;
pub use peer::{Fingerprint, FingerprintError, Peer, PeerError, server_name};
pub use socket::{ClampedBuffers, PacketSocket, SocketBuffers};
pub use tls::TlsError;
pub use transport::{LOOPBACK_PACKET_BYTES, Path, SOCKET_BUFFER_BYTES};

#[cfg(test)]
mod tests;
