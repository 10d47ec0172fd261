//! Who is at the other end of a connection, as its certificate says.
//!
//! A certificate carries exactly one URI of ours, `fleasefs://CLUSTER/ROLE`. One with none or with two says nothing
//! that can be relied on, and is refused. The signature is not checked here: [`Peer::from_certificate`] reads what
//! TLS has already traced back to the cluster's authority.

use std::fmt;
use std::str::FromStr;

use base::{ClusterId, NodeId, Role, RoleError};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// What our URIs start with.
const SCHEME: &str = "fleasefs://";
/// The path of the authority's own URI, which is no role.
const AUTHORITY: &str = "authority";

/// The holder of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// What the authority vouches for.
    pub role: Role,
    /// Which certificate this is: what the deny list names.
    pub fingerprint: Fingerprint,
    /// The certificate's last second, counted from 1970.
    pub not_after_s: u64,
}

/// The BLAKE3 hash of a certificate's DER bytes, shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// A text that is not 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no fingerprint: use the 64 hexadecimal digits that `fleasefs cert list` shows")]
pub struct FingerprintError(String);

/// Why a certificate does not say who its holder is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerError {
    /// Not an X.509 certificate, or one with extensions that contradict each other.
    #[error("the certificate cannot be read; issue it again with `fleasefs cert issue`")]
    Malformed,
    /// Not one of ours.
    #[error("the certificate names no fleasefs role; issue one with `fleasefs cert issue`")]
    NoRole,
    /// A holder with two roles could choose the one that suits.
    #[error("the certificate names more than one fleasefs role; issue one certificate for each role")]
    SeveralRoles,
    /// The URI's path is no role.
    #[error("the certificate's role cannot be used: {0}")]
    Role(#[from] RoleError),
    /// Neither side may take a member of another cluster for one of its own.
    #[error(
        "the certificate belongs to cluster {theirs}, and this is cluster {ours}; use one of this cluster"
    )]
    OtherCluster {
        /// The certificate's cluster, as it is written there.
        theirs: String,
        /// The cluster that it was shown to.
        ours: ClusterId,
    },
}

impl Peer {
    /// Reads the certificate `der`, which must belong to `cluster`.
    pub fn from_certificate(der: &[u8], cluster: ClusterId) -> Result<Self, PeerError> {
        let certificate = read(der)?;
        let (theirs, role) = our_uri(&certificate)?;
        if theirs != cluster.to_string() {
            return Err(PeerError::OtherCluster { theirs, ours: cluster });
        }
        let not_after_s = not_after_s(&certificate);
        Ok(Self { role: role.parse()?, fingerprint: Fingerprint::of(der), not_after_s })
    }
}

impl Fingerprint {
    /// The fingerprint of the certificate `der`.
    pub fn of(der: &[u8]) -> Self {
        Self(blake3::hash(der).into())
    }
}

/// The name under which node `node` of `cluster` is called. A certificate that is not that node's does not carry it,
/// so calling the wrong node already fails in the handshake.
pub fn server_name(cluster: ClusterId, node: NodeId) -> String {
    format!("node-{node}.{cluster}.fleasefs")
}

/// The URI that says `role` in `cluster`.
pub(crate) fn role_uri(cluster: ClusterId, role: &Role) -> String {
    format!("{SCHEME}{cluster}/{role}")
}

/// The URI of `cluster`'s authority.
pub(crate) fn authority_uri(cluster: ClusterId) -> String {
    format!("{SCHEME}{cluster}/{AUTHORITY}")
}

/// The cluster whose authority `der` is, if it is one.
pub(crate) fn authority_cluster(der: &[u8]) -> Result<ClusterId, PeerError> {
    let certificate = read(der)?;
    let (cluster, path) = our_uri(&certificate)?;
    if path != AUTHORITY || !certificate.is_ca() {
        return Err(PeerError::NoRole);
    }
    cluster.parse().map_err(|_| PeerError::Malformed)
}

/// The last second of an authority's certificate.
pub(crate) fn authority_not_after_s(der: &[u8]) -> Result<u64, PeerError> {
    authority_cluster(der)?;
    Ok(not_after_s(&read(der)?))
}

/// The public key in `der`, as a signer shows it.
pub(crate) fn public_key(der: &[u8]) -> Result<Vec<u8>, PeerError> {
    Ok(read(der)?.public_key().subject_public_key.data.to_vec())
}

fn read(der: &[u8]) -> Result<X509Certificate<'_>, PeerError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(PeerError::Malformed),
    }
}

fn not_after_s(certificate: &X509Certificate<'_>) -> u64 {
    // A year before 1970 is in the past all the same.
    u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0)
}

/// The cluster and the path of the one URI of ours.
fn our_uri(certificate: &X509Certificate<'_>) -> Result<(String, String), PeerError> {
    let names = certificate.subject_alternative_name().map_err(|_| PeerError::Malformed)?;
    let names = names.ok_or(PeerError::NoRole)?;
    let mut ours = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(SCHEME),
        _ => None,
    });
    match (ours.next(), ours.next()) {
        (Some(uri), None) => {
            let (cluster, path) = uri.split_once('/').ok_or(PeerError::NoRole)?;
            Ok((cluster.to_owned(), path.to_owned()))
        }
        (None, _) => Err(PeerError::NoRole),
        (Some(_), Some(_)) => Err(PeerError::SeveralRoles),
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(hash.into()))
            .map_err(|_| FingerprintError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterId = ClusterId([7; 16]);

    /// A certificate with these URIs, signed by itself.
    fn certificate(uris: &[&str]) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.subject_alt_names =
            uris.iter().map(|&uri| rcgen::SanType::URI(uri.try_into().unwrap())).collect();
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn error(uris: &[&str]) -> String {
        Peer::from_certificate(&certificate(uris), CLUSTER).unwrap_err().to_string()
    }

    #[test]
    fn a_holder_is_read_from_the_one_uri_of_ours() {
        for text in ["node/3", "supervisor/3", "client/build-7", "admin/root"] {
            let ours = format!("fleasefs://{CLUSTER}/{text}");
            let der = certificate(&["https://example.org/node/9", &ours]);
            let peer = Peer::from_certificate(&der, CLUSTER).unwrap();
            assert_eq!(peer.role.to_string(), text);
            assert_eq!(peer.fingerprint, Fingerprint::of(&der));
            // What rcgen takes when nothing is said: the start of the year 4096.
            assert_eq!(peer.not_after_s, 67_090_118_400);
        }
    }

    #[test]
    fn what_says_nothing_to_rely_on_is_refused() {
        let ours = |path: &str| format!("fleasefs://{CLUSTER}/{path}");
        assert!(error(&[]).contains("names no fleasefs role"));
        assert!(error(&["https://example.org/node/1"]).contains("names no fleasefs role"));
        assert!(error(&["fleasefs://node"]).contains("names no fleasefs role"));
        assert!(error(&[&ours("node/1"), &ours("admin/a")]).contains("more than one"));
        assert!(error(&[&ours("node/1"), &ours("node/1")]).contains("more than one"));
        assert!(error(&[&ours("node/x")]).contains("`x` is no node id"));
        assert!(error(&[&ours("king/1")]).contains("`king/1` is no role"));
        assert!(error(&[&ours("client/a/b")]).contains("`a/b` is no name"));
        assert!(error(&[&ours("authority")]).contains("`authority` is no role"));
        let strange = error(&["fleasefs://0808/node/1"]);
        assert!(strange.contains("belongs to cluster 0808, and this is cluster 0707"), "{strange}");
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let good = certificate(&[&format!("fleasefs://{CLUSTER}/node/1")]);
        let longer = [&good[..], &[0]].concat();
        for bad in [&[][..], b"garbage", &good[..good.len() - 1], &longer] {
            assert_eq!(Peer::from_certificate(bad, CLUSTER), Err(PeerError::Malformed));
        }
    }

    #[test]
    fn fingerprints_read_as_they_are_written() {
        let fingerprint = Fingerprint::of(b"a certificate");
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        for text in ["", "0", &fingerprint.to_string()[1..], &"g".repeat(64)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
