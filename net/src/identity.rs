//! Who we are on the network: a cluster's authority and the certificates it issues.
//!
//! Invariant: a key never leaves this crate except to sign a handshake, and an [`Identity`] always carries the
//! authority it trusts, so that nobody can bind an endpoint that trusts nobody or everybody.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A cluster's certificate authority, with its key.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key, and the authority whose peers it accepts.
pub struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) authority: CertificateDer<'static>,
}

/// Why an authority or a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A host name that a certificate cannot carry.
    #[error("`{name}` cannot stand in a certificate; use a DNS name such as `node-1`")]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        source: rcgen::Error,
    },
    /// The cryptographic library refused, most likely for want of random numbers.
    #[error("could not make a key or sign a certificate; check that the system's random source works")]
    Sign(#[source] rcgen::Error),
}

impl Authority {
    /// A new authority with a fresh key, known to nobody else.
    pub fn new() -> Result<Self, IdentityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "fleasefs cluster authority");
        // No certificate that this authority issues may issue others.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(IdentityError::Sign)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(IdentityError::Sign)?;
        Ok(Self { issuer })
    }

    /// A certificate for the host `name`, good for both ends of a connection.
    pub fn issue(&self, name: &str) -> Result<Identity, IdentityError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])
            .map_err(|source| IdentityError::Name { name: name.to_owned(), source })?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Every process both calls and is called.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(IdentityError::Sign)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(IdentityError::Sign)?;
        Ok(Identity {
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            authority: self.issuer.as_ref().der().clone(),
        })
    }
}
