//! A bound socket with an identity: it calls peers and is called by them, with certificates both ways.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use crate::identity::Identity;
use crate::tls::{self, TlsError};
use crate::transport::{self, Path, SOCKET_BUFFER_BYTES};

/// Linux adds as much again for its own bookkeeping, and reports the sum.
const REPORTED_PER_GRANTED: usize = 2;

/// A connection whose both ends have shown a certificate of the same authority.
pub(crate) type Connection = quinn::Connection;

/// A bound socket that can connect and accept.
///
/// Dropping it closes its connections at once; [`Endpoint::close`] waits until the peers have been told.
pub struct Endpoint {
    inner: quinn::Endpoint,
    address: SocketAddr,
    buffers: SocketBuffers,
}

/// What the kernel granted of [`SOCKET_BUFFER_BYTES`]. Less than asked for means lost packets under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Bytes that may wait to be sent.
    pub send_bytes: usize,
    /// Bytes that may wait to be read.
    pub receive_bytes: usize,
}

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The socket could not be made or bound.
    #[error("could not bind UDP {address}; check that the address is this machine's and the port is free")]
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

/// Why two endpoints did not come together.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address or the peer's name is unusable.
    #[error("cannot call {peer}; check the address and the peer's name")]
    Call {
        /// Whom we called.
        peer: SocketAddr,
        /// What was wrong.
        source: quinn::ConnectError,
    },
    /// The handshake failed: no answer, or a certificate that one side does not accept.
    #[error("no connection; check that the peer runs and that both certificates are of one authority")]
    Handshake(#[from] quinn::ConnectionError),
    /// The endpoint was closed while it waited.
    #[error("the endpoint was closed while it waited for a connection")]
    Closed,
}

impl Endpoint {
    /// Binds `address` with `identity`; every peer is expected on `path`. Needs a running tokio runtime.
    pub fn bind(address: SocketAddr, identity: &Identity, path: Path) -> Result<Self, BindError> {
        let (socket, buffers) =
            bind_socket(address).map_err(|source| BindError::Socket { address, source })?;
        let transport = transport::connection_config(path);
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls::server(identity)?));
        server.transport_config(Arc::clone(&transport));
        let mut client = quinn::ClientConfig::new(Arc::new(tls::client(identity)?));
        client.transport_config(transport);

        let config = transport::endpoint_config(path).map_err(BindError::PacketSize)?;
        let runtime = quinn::default_runtime().ok_or(BindError::Runtime)?;
        let mut inner = quinn::Endpoint::new(config, Some(server), socket, runtime)
            .map_err(|source| BindError::Socket { address, source })?;
        inner.set_default_client_config(client);
        let address = inner.local_addr().map_err(|source| BindError::Socket { address, source })?;
        Ok(Self { inner, address, buffers })
    }

    /// Where this endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the kernel granted as socket buffers.
    pub fn buffers(&self) -> SocketBuffers {
        self.buffers
    }

    /// Calls `peer`, whose certificate must carry `name`.
    ///
    /// The answerer checks our certificate after we have checked its own, so a refusal may only show at the
    /// first use of the connection.
    pub(crate) async fn connect(&self, peer: SocketAddr, name: &str) -> Result<Connection, ConnectError> {
        let connecting =
            self.inner.connect(peer, name).map_err(|source| ConnectError::Call { peer, source })?;
        Ok(connecting.await?)
    }

    /// Waits for the next caller and completes the handshake with it.
    pub(crate) async fn accept(&self) -> Result<Connection, ConnectError> {
        let incoming = self.inner.accept().await.ok_or(ConnectError::Closed)?;
        Ok(incoming.await?)
    }

    /// Closes every connection and waits until the peers have been told.
    pub async fn close(&self) {
        self.inner.close(quinn::VarInt::from_u32(0), b"closed");
        self.inner.wait_idle().await;
    }
}

fn bind_socket(address: SocketAddr) -> io::Result<(std::net::UdpSocket, SocketBuffers)> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // The kernel silently grants less than asked for, hence the reading back.
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    let buffers = SocketBuffers {
        send_bytes: socket.send_buffer_size()? / REPORTED_PER_GRANTED,
        receive_bytes: socket.recv_buffer_size()? / REPORTED_PER_GRANTED,
    };
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok((socket.into(), buffers))
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
        assert!(matches!(refused.1, Err(ConnectError::Handshake(_))));
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
            Err(ConnectError::Handshake(reason)) => reason.to_string(),
            _ => "no refusal".to_owned(),
        };
        assert!(reason.contains("sent no certificate"), "{reason}");
    }

    #[tokio::test]
    async fn the_kernel_grants_some_socket_buffer() {
        let buffers = endpoint(&authority()).buffers();
        assert!((1..=SOCKET_BUFFER_BYTES).contains(&buffers.send_bytes), "{buffers:?}");
        assert!((1..=SOCKET_BUFFER_BYTES).contains(&buffers.receive_bytes), "{buffers:?}");
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let authority = authority();
        let first = endpoint(&authority);
        let second = Endpoint::bind(first.address(), &node(&authority, 1), Path::Loopback);
        let message = second.err().unwrap().to_string();
        assert!(message.contains(&first.address().to_string()), "{message}");
    }
}
