//! From an identity to TLS configurations: version 1.3 only, a certificate required from both sides.
//!
//! A peer is let in when its certificate is good and of our authority (webpki checks that), names exactly one role
//! in our cluster, and is not on the deny list. All three are asked at every handshake: sessions are never resumed,
//! because a resumed one would skip them.
//!
//! The cryptography provider is always passed by hand. A process-wide default would depend on which crate asked
//! first, and two providers in one build make rustls panic.

use std::sync::Arc;

use base::{ClusterId, Role};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::deny::DenyList;
use crate::identity::Identity;
use crate::peer::{Fingerprint, Peer, PeerError};

/// The protocol's name and version in the handshake: peers of another version fail there, with a clear error.
pub(crate) const PROTOCOL: &[u8] = wire::ALPN;

/// Why an identity cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// rustls refused the key, the certificate or the combination.
    #[error("the certificate, its key and the authority do not go together; issue the certificate again")]
    Rustls(#[from] Error),
    /// The authority's certificate cannot be used to check others.
    #[error("the authority's certificate cannot be used to check a peer's; make the authority again")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    /// QUIC needs a cipher suite that the provider lacks.
    #[error("the cryptography provider lacks the cipher suite that QUIC starts with")]
    Suite(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
}

/// The certificate is on the deny list.
#[derive(Debug, thiserror::Error)]
#[error(
    "certificate {fingerprint} of {role} is on the deny list; issue a new one with `fleasefs cert issue`"
)]
struct OnDenyList {
    role: Role,
    fingerprint: Fingerprint,
}

/// How we answer: with our certificate, and only to peers that show one of the same authority.
pub(crate) fn server(identity: &Identity) -> Result<QuicServerConfig, TlsError> {
    let verifier = Gate::new(identity, issuer_verifier(identity)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config.try_into()?)
}

/// How we call: with our certificate, trusting only the authority that issued it.
pub(crate) fn client(identity: &Identity) -> Result<QuicClientConfig, TlsError> {
    client_of_version(identity, PROTOCOL)
}

/// The same with another name of the protocol.
pub(crate) fn client_of_version(identity: &Identity, protocol: &[u8]) -> Result<QuicClientConfig, TlsError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(identity)?, provider()).build()?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Gate::new(identity, verifier)))
        .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config.try_into()?)
}

/// Checks that a certificate was issued by `identity`'s authority and is good at a given time.
pub(crate) fn issuer_verifier(identity: &Identity) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    Ok(WebPkiClientVerifier::builder_with_provider(roots(identity)?, provider()).build()?)
}

impl Peer {
    /// Who is at the other end of `connection`: the holder of the certificate that its handshake accepted.
    pub(crate) fn of(connection: &quinn::Connection, cluster: ClusterId) -> Result<Self, PeerError> {
        let shown =
            connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'_>>>().ok());
        let certificate = shown.as_ref().and_then(|chain| chain.first()).ok_or(PeerError::NoRole)?;
        Self::from_certificate(certificate, cluster)
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(identity: &Identity) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority.clone())?;
    Ok(Arc::new(roots))
}

/// Lets webpki check the signature, the times and the name, and then asks for cluster, role and deny list.
#[derive(Debug)]
struct Gate<V> {
    webpki: V,
    cluster: ClusterId,
    denied: DenyList,
}

impl<V> Gate<V> {
    fn new(identity: &Identity, webpki: V) -> Self {
        Self { webpki, cluster: identity.cluster, denied: identity.denied.clone() }
    }

    fn admit(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let peer = Peer::from_certificate(certificate, self.cluster).map_err(refusal)?;
        if self.denied.denies(&peer.fingerprint) {
            return Err(refusal(OnDenyList { role: peer.role, fingerprint: peer.fingerprint }));
        }
        Ok(())
    }
}

/// The reason reaches the peer too, in the frame that ends the handshake: this kind of error alone is written out
/// as its message.
fn refusal(reason: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Other(OtherError(Arc::new(reason)))
}

impl ClientCertVerifier for Gate<Arc<dyn ClientCertVerifier>> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.webpki.verify_client_cert(end_entity, intermediates, now)?;
        self.admit(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Gate<Arc<WebPkiServerVerifier>> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.admit(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
