//! QUIC with certificates on both sides: the only place that names quinn, rustls and rcgen.
//!
//! Everything that leaves a process leaves it here, over TLS 1.3, and a peer that shows no certificate of the
//! cluster's authority is refused before a byte of its is decoded. There is no plaintext mode.
//!
//! Deliberately absent: decisions about retries, redirects or leadership (callers make them), the layout of
//! messages, and clocks (who measures brings its own).
//!
//! ```text
//! identity   who we are: an authority and the certificates it issued
//! tls        identity -> rustls configuration, certificates required both ways
//! transport    windows, packet sizes, stream counts
//! endpoint     a bound socket that can connect and accept
//! floor        what the above can do at best on this machine, for `fleasefs bench floor`
//! ```

pub mod credentials;
mod deny;
mod endpoint;
pub mod floor;
mod identity;
mod peer;
mod tls;
mod transport;

pub use deny::{DENIED_MAX, Denied, DenyError, DenyList};
pub use endpoint::{BindError, ConnectError, Endpoint, SocketBuffers};
pub use identity::{Authority, Identity, IdentityError, Validity};
pub use peer::{Fingerprint, FingerprintError, Peer, PeerError, server_name};
pub use tls::TlsError;
pub use transport::{LOOPBACK_PACKET_BYTES, Path, SOCKET_BUFFER_BYTES};
