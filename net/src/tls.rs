//! From an identity to TLS configurations: version 1.3 only, a certificate required from both sides.
//!
//! The cryptography provider is always passed by hand. A process-wide default would depend on which crate asked
//! first, and two providers in one build make rustls panic.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::identity::Identity;

/// The protocol's name and version in the handshake: peers of another version fail there, with a clear error.
const PROTOCOL: &[u8] = b"fleasefs/0";

/// Why an identity cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// rustls refused the key, the certificate or the combination.
    #[error("the certificate, its key and the authority do not go together; issue the certificate again")]
    Rustls(#[from] rustls::Error),
    /// The authority's certificate cannot be used to check others.
    #[error("the authority's certificate cannot be used to check a peer's; make the authority again")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    /// QUIC needs a cipher suite that the provider lacks.
    #[error("the cryptography provider lacks the cipher suite that QUIC starts with")]
    Suite(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
}

/// How we answer: with our certificate, and only to peers that show one of the same authority.
pub(crate) fn server(identity: &Identity) -> Result<QuicServerConfig, TlsError> {
    let provider = provider();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(identity)?, Arc::clone(&provider)).build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config.try_into()?)
}

/// How we call: with our certificate, trusting only the authority that issued it.
pub(crate) fn client(identity: &Identity) -> Result<QuicClientConfig, TlsError> {
    client_config(identity, true)
}

fn client_config(identity: &Identity, show_certificate: bool) -> Result<QuicClientConfig, TlsError> {
    let provider = provider();
    let verifier =
        WebPkiServerVerifier::builder_with_provider(roots(identity)?, Arc::clone(&provider)).build()?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(verifier);
    let mut config = if show_certificate {
        builder.with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())?
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config.try_into()?)
}

/// A caller that shows no certificate, to prove that it is refused.
#[cfg(test)]
pub(crate) fn client_without_certificate(identity: &Identity) -> Result<QuicClientConfig, TlsError> {
    client_config(identity, false)
}

fn roots(identity: &Identity) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority.clone())?;
    Ok(Arc::new(roots))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
