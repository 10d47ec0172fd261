//! A bound socket with an identity: what connections start from. Everybody who is let in shows a certificate.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Role;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{AsyncUdpSocket, Runtime};
use tokio::time::timeout;

use crate::deny::DenyList;
use crate::handshake::ConnectError;
use crate::identity::Identity;
use crate::reset;
use crate::socket::{self, Foreign, PacketSocket, SocketBuffers};
use crate::timer::Tokio;
use crate::tls::{self, TlsError};
use crate::transport::{self, Path};

/// A connection whose both ends have shown a certificate of the same authority.
pub(crate) type Connection = quinn::Connection;

/// Callers that have sent a first packet and wait for their turn; quinn drops further ones.
const INCOMING_MAX: usize = 1_024;
/// What all of these together may have sent meanwhile.
const INCOMING_BYTES_MAX: u64 = 16 << 20;
/// How long peers may take to hear that everything is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

/// A bound socket that can connect and, with a node's identity, accept. [`Network`](crate::Network) puts it to use.
///
/// Dropping it closes its connections at once; [`Endpoint::close`] waits until the peers have been told.
pub struct Endpoint {
    pub(crate) inner: quinn::Endpoint,
    address: SocketAddr,
    buffers: SocketBuffers,
    identity: Whose,
}

/// What of an identity is asked for after the handshake.
#[derive(Clone)]
pub(crate) struct Whose {
    pub(crate) cluster: base::ClusterId,
    pub(crate) role: Role,
    pub(crate) denied: DenyList,
}

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there.
    #[error(
        "UDP port {address} is in use; stop the program that has it (`ss -ulpn` names it) or choose another port"
    )]
    InUse {
        /// Where the endpoint was to listen.
        address: SocketAddr,
    },
    /// The address is another machine's.
    #[error("{address} is no address of this machine; use one that `ip address` shows, or 0.0.0.0")]
    NotOurs {
        /// Where the endpoint was to listen.
        address: SocketAddr,
    },
    /// The socket could not be made or bound for another reason.
    #[error(
        "could not bind UDP {address}: {source}; check the address, the port and this user's permissions"
    )]
    Socket {
        /// Where the endpoint was to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The identity cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The packet size is outside what QUIC allows: a mistake in this crate's constants.
    #[error("the packet size is outside what QUIC allows")]
    PacketSize(#[source] quinn::ConfigError),
    /// No asynchronous runtime is running.
    #[error("an endpoint needs a running tokio runtime; bind it inside one")]
    Runtime,
}

impl Endpoint {
    /// Binds `address` with `identity`; every peer is expected on `path`. Needs a running tokio runtime.
    pub fn bind(address: SocketAddr, identity: &Identity, path: Path) -> Result<Self, BindError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(BindError::Runtime);
        }
        let (udp, buffers) = socket::bind_udp(address).map_err(|source| bind_error(address, source))?;
        let udp = Tokio.wrap_udp_socket(udp).map_err(|source| bind_error(address, source))?;
        Self::new(udp, buffers, identity, path, None)
    }

    /// An endpoint over another network than the kernel's, for simulations. What the transport draws at random
    /// comes from `seed`; keys of encryption do not.
    pub fn over(
        socket: Arc<dyn PacketSocket>,
        identity: &Identity,
        path: Path,
        seed: u64,
    ) -> Result<Self, BindError> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self::new(Arc::new(Foreign(socket)), SocketBuffers::UNLIMITED, identity, path, Some(bytes))
    }

    fn new(
        socket: Arc<dyn AsyncUdpSocket>,
        buffers: SocketBuffers,
        identity: &Identity,
        path: Path,
        seed: Option<[u8; 32]>,
    ) -> Result<Self, BindError> {
        let role = identity.peer().role.clone();
        let transport = transport::connection_config(path, buffers);
        let mut client = quinn::ClientConfig::new(Arc::new(tls::client(identity)?));
        client.transport_config(Arc::clone(&transport));
        // Only a node's certificate is good for answering.
        let server = match role {
            Role::Node(_) => Some(server_config(tls::server(identity)?, transport)),
            Role::Supervisor(_) | Role::Client(_) | Role::Admin(_) => None,
        };
        let mut config = transport::endpoint_config(path).map_err(BindError::PacketSize)?;
        reset::survive_restarts(&mut config, identity.key.secret_der());
        config.rng_seed(seed);

        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let address = socket.local_addr().map_err(|source| bind_error(unknown, source))?;
        let mut inner = quinn::Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(Tokio))
            .map_err(|source| bind_error(address, source))?;
        inner.set_default_client_config(client);
        let identity = Whose { cluster: identity.cluster(), role, denied: identity.deny_list().clone() };
        Ok(Self { inner, address, buffers, identity })
    }

    /// Where this endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the kernel granted as socket buffers.
    pub fn buffers(&self) -> SocketBuffers {
        self.buffers
    }

    pub(crate) fn whose(&self) -> &Whose {
        &self.identity
    }

    /// Calls `peer`, whose certificate must carry `name`.
    ///
    /// The answerer checks our certificate after we have checked its own, so a refusal may only show at the
    /// first use of the connection.
    pub(crate) async fn connect(&self, peer: SocketAddr, name: &str) -> Result<Connection, ConnectError> {
        connect(&self.inner, peer, name).await
    }

    /// Waits for the next caller and completes the handshake with it.
    pub(crate) async fn accept(&self) -> Result<Connection, ConnectError> {
        let incoming = self.inner.accept().await.ok_or(ConnectError::Closed)?;
        Ok(incoming.await?)
    }

    /// Closes every connection and waits until the peers have been told.
    pub async fn close(&self) {
        self.close_all();
        // A connection of which the other side has gone would be waited for, for long.
        let _ = timeout(CLOSE_TIMEOUT, self.inner.wait_idle()).await;
    }

    fn close_all(&self) {
        self.inner.close(quinn::VarInt::from_u32(0), b"the process is stopping");
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Connections hold handles of their own to the socket, and would go on without an owner.
        self.close_all();
    }
}

/// Calls `peer`, whose certificate must carry `name`.
pub(crate) async fn connect(
    endpoint: &quinn::Endpoint,
    peer: SocketAddr,
    name: &str,
) -> Result<Connection, ConnectError> {
    let connecting = endpoint.connect(peer, name).map_err(|error| match error {
        quinn::ConnectError::EndpointStopping => ConnectError::Closed,
        other => ConnectError::Address { address: peer.to_string(), reason: other.to_string() },
    })?;
    Ok(connecting.await?)
}

fn server_config(tls: QuicServerConfig, transport: Arc<quinn::TransportConfig>) -> quinn::ServerConfig {
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config
        .transport_config(transport)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_MAX);
    config
}

fn bind_error(address: SocketAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        io::ErrorKind::AddrNotAvailable => BindError::NotOurs { address },
        _ => BindError::Socket { address, source },
    }
}

#[cfg(test)]
mod tests {
    use base::{ClusterId, NodeId, Role};

    use super::*;
    use crate::{Authority, Identity, Validity};

    const CLUSTER: ClusterId = ClusterId([7; 16]);

    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn authority() -> Authority {
        Authority::new(CLUSTER, Validity::ALWAYS).unwrap()
    }

    fn node(authority: &Authority, id: u32) -> Identity {
        authority.issue(&Role::Node(NodeId(id)), &[], Validity::ALWAYS).unwrap()
    }

    fn bind(identity: &Identity) -> Endpoint {
        Endpoint::bind(ANY_PORT, identity, Path::Loopback).unwrap()
    }

    fn endpoint(authority: &Authority) -> Endpoint {
        bind(&node(authority, 1))
    }

    fn name() -> String {
        crate::server_name(CLUSTER, NodeId(1))
    }

    /// Whether a message of the caller's reached the answerer.
    async fn talks(answerer: &Endpoint, caller: &Endpoint) -> bool {
        let call = async {
            let connection = caller.connect(answerer.address(), &name()).await.ok()?;
            let mut stream = connection.open_uni().await.ok()?;
            stream.write_all(b"hello").await.ok()?;
            stream.finish().ok()?;
            connection.closed().await;
            Some(())
        };
        let answer = async {
            let connection = answerer.accept().await.ok()?;
            let heard = connection.accept_uni().await.ok()?.read_to_end(16).await.ok()?;
            connection.close(quinn::VarInt::from_u32(0), b"heard");
            Some(heard == b"hello")
        };
        tokio::join!(call, answer).1.unwrap_or(false)
    }

    fn client_without_certificate(authority: &Authority) -> quinn::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![tls::PROTOCOL.to_vec()];
        let config = quinn::crypto::rustls::QuicClientConfig::try_from(config).unwrap();
        quinn::ClientConfig::new(Arc::new(config))
    }

    #[tokio::test]
    async fn peers_of_one_authority_talk() {
        let authority = authority();
        assert!(talks(&endpoint(&authority), &endpoint(&authority)).await);
    }

    #[tokio::test]
    async fn a_caller_of_another_authority_is_refused() {
        let (ours, theirs) = (authority(), authority());
        let answerer = endpoint(&ours);
        // The stranger trusts our authority, so only the answerer's own check can turn it away.
        let mut stranger = node(&theirs, 1);
        stranger.authority = ours.certificate().clone();
        let caller = bind(&stranger);
        assert!(!talks(&answerer, &caller).await);
    }

    #[tokio::test]
    async fn a_caller_does_not_trust_another_authority() {
        let (ours, theirs) = (authority(), authority());
        let (answerer, caller) = (endpoint(&theirs), endpoint(&ours));
        let name = name();
        let refused = tokio::join!(answerer.accept(), caller.connect(answerer.address(), &name));
        assert!(matches!(refused.1, Err(ConnectError::Certificate(_))));
        assert!(refused.0.is_err());
    }

    #[tokio::test]
    async fn a_caller_without_certificate_is_refused() {
        let authority = authority();
        let answerer = endpoint(&authority);
        let mut caller = endpoint(&authority);
        caller.inner.set_default_client_config(client_without_certificate(&authority));
        let call = async {
            // Refused at once, or at the first use.
            let connection = caller.connect(answerer.address(), &name()).await.ok()?;
            connection.accept_uni().await.ok()
        };
        let (called, answered) = tokio::join!(call, answerer.accept());
        assert!(called.is_none());
        let reason = match answered {
            Err(ConnectError::Certificate(reason)) => reason,
            _ => "no refusal".to_owned(),
        };
        assert!(reason.contains("sent no certificate"), "{reason}");
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let authority = authority();
        let first = endpoint(&authority);
        let second = Endpoint::bind(first.address(), &node(&authority, 1), Path::Loopback);
        let message = second.err().unwrap().to_string();
        let wanted = format!("UDP port {} is in use", first.address());
        assert!(message.starts_with(&wanted), "{message}");
    }

    #[tokio::test]
    async fn a_foreign_address_is_named() {
        let foreign = "192.0.2.1:0".parse().unwrap();
        let error = Endpoint::bind(foreign, &node(&authority(), 1), Path::Loopback).err().unwrap();
        assert!(matches!(error, BindError::NotOurs { address } if address == foreign), "{error}");
    }
}
