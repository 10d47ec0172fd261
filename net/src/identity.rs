//! Who we are on the network: a cluster's authority and the certificates it issues.
//!
//! Invariants: a key leaves this crate only into a file that its owner alone can read, and to sign a handshake. An
//! [`Identity`] always carries the authority it trusts and the cluster it belongs to, so nobody can bind an endpoint
//! that trusts nobody or everybody. What was loaded is checked like what was just issued: key, certificate,
//! authority and cluster go together, or there is no identity.

use std::fmt;
use std::time::Duration;

use base::{ClusterId, Role};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error as RustlsError, InconsistentKeys};

use crate::deny::DenyList;
use crate::peer::{self, Peer, PeerError};
use crate::tls::{self, TlsError};

/// The last second that the format of certificates can name: the end of the year 9999.
const TIME_MAX_S: u64 = 253_402_300_799;

/// A cluster's certificate authority, with its key.
pub struct Authority {
    cluster: ClusterId,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate with its key, the authority whose peers it accepts, and those it no longer accepts.
pub struct Identity {
    pub(crate) cluster: ClusterId,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) denied: DenyList,
    peer: Peer,
}

/// From when to when a certificate is good, both included, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// The first second.
    pub not_before_s: u64,
    /// The last second.
    pub not_after_s: u64,
}

/// Why an authority, a certificate or an identity could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A host name that a certificate cannot carry.
    #[error("`{name}` cannot stand in a certificate; use a DNS name such as `node-1` or an IP address")]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        source: rcgen::Error,
    },
    /// Times that no certificate can carry.
    #[error(
        "a certificate cannot be good from {not_before_s} to {not_after_s}: use seconds since 1970, the earlier first"
    )]
    Validity {
        /// The first second asked for.
        not_before_s: u64,
        /// The last second asked for.
        not_after_s: u64,
    },
    /// No random numbers.
    #[error("the system gave no random numbers; check that its random source works")]
    Random,
    /// The cryptographic library refused, most likely for want of random numbers.
    #[error("could not make a key or sign a certificate; check that the system's random source works")]
    Sign(#[source] rcgen::Error),
    /// The file of the authority's key, or of its certificate, holds something else.
    #[error("the authority cannot be read; restore its certificate and key from a backup")]
    Authority(#[source] rcgen::Error),
    /// The certificate does not say who its holder is, or names another cluster.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A key that no certificate was issued for, or no key at all.
    #[error(
        "the key does not belong to the certificate; copy both from one folder, or issue a new pair with `fleasefs cert issue`"
    )]
    Key,
    /// Past its last second.
    #[error("the certificate of {role} expired {ago_s} s ago; make a new one with `fleasefs cert renew`")]
    Expired {
        /// Whose certificate.
        role: Role,
        /// Seconds since then.
        ago_s: u64,
    },
    /// Before its first second: the clock is wrong, as certificates are issued for now.
    #[error("the certificate of {role} is not good yet; check this machine's clock")]
    TooEarly {
        /// Whose certificate.
        role: Role,
    },
    /// Signed by somebody else.
    #[error("the certificate of {0} was not issued by the authority beside it; copy both from one folder")]
    OtherAuthority(Role),
    /// TLS cannot use it for another reason.
    #[error("the certificate of {role} cannot be used; make a new one with `fleasefs cert renew`")]
    Unusable {
        /// Whose certificate.
        role: Role,
        /// What TLS said.
        source: RustlsError,
    },
    /// The authority's certificate cannot check others.
    #[error("the authority's certificate cannot check others; copy it again from where the cluster was made")]
    Roots(#[from] TlsError),
}

impl Validity {
    /// Good at any time: for identities that stay in one process, such as those of a measurement.
    pub const ALWAYS: Self = Self { not_before_s: 0, not_after_s: TIME_MAX_S };

    fn apply(self, params: &mut CertificateParams) -> Result<(), IdentityError> {
        let Self { not_before_s, not_after_s } = self;
        if not_before_s > not_after_s || not_after_s > TIME_MAX_S {
            return Err(IdentityError::Validity { not_before_s, not_after_s });
        }
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(not_before_s);
        params.not_after = epoch + Duration::from_secs(not_after_s);
        Ok(())
    }
}

impl Authority {
    /// A new authority for a new cluster, named at random.
    pub fn found(validity: Validity) -> Result<Self, IdentityError> {
        let mut name = [0; 16];
        tls::provider().secure_random.fill(&mut name).map_err(|_| IdentityError::Random)?;
        Self::new(ClusterId(name), validity)
    }

    /// A new authority for `cluster`, with a fresh key known to nobody else.
    pub fn new(cluster: ClusterId, validity: Validity) -> Result<Self, IdentityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("fleasefs cluster {cluster}"));
        params.subject_alt_names = vec![uri(peer::authority_uri(cluster))?];
        // No certificate that this authority issues may issue others.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        validity.apply(&mut params)?;
        let key = KeyPair::generate().map_err(IdentityError::Sign)?;
        let certificate = params.self_signed(&key).map_err(IdentityError::Sign)?.der().clone();
        Ok(Self { cluster, issuer: Issuer::new(params, key), certificate })
    }

    /// The authority with this certificate and key, of whichever cluster the certificate names.
    pub(crate) fn from_der(
        certificate: CertificateDer<'static>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, IdentityError> {
        let cluster = peer::authority_cluster(&certificate)?;
        let key = KeyPair::try_from(key).map_err(IdentityError::Authority)?;
        if peer::public_key(&certificate)? != key.public_key_raw() {
            return Err(IdentityError::Key);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(IdentityError::Authority)?;
        Ok(Self { cluster, issuer, certificate })
    }

    /// Whose authority this is.
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// A certificate for `role`, with a fresh key. A node's carries [`server_name`](crate::server_name) and `hosts`,
    /// which are DNS names or IP addresses, and is good for both ends of a connection; any other can only call. None
    /// outlives its authority.
    pub fn issue(
        &self,
        role: &Role,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Identity, IdentityError> {
        self.issue_for(self.cluster, role, hosts, validity)
    }

    /// As [`Authority::issue`], for a cluster that a test may choose.
    pub(crate) fn issue_for(
        &self,
        cluster: ClusterId,
        role: &Role,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Identity, IdentityError> {
        let mut params = leaf_params(cluster, role, hosts)?;
        let not_after_s = validity.not_after_s.min(peer::authority_not_after_s(&self.certificate)?);
        Validity { not_after_s, ..validity }.apply(&mut params)?;
        let key = KeyPair::generate().map_err(IdentityError::Sign)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(IdentityError::Sign)?.der().clone();
        let peer = Peer::from_certificate(&certificate, cluster)?;
        Ok(Identity {
            cluster,
            certificate,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            authority: self.certificate.clone(),
            denied: DenyList::default(),
            peer,
        })
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The key as PKCS#8.
    pub(crate) fn key_der(&self) -> &[u8] {
        self.issuer.key().serialized_der()
    }
}

impl Identity {
    /// Puts an identity together from what was stored, and checks that it is good for `cluster` at `now_s`.
    pub(crate) fn from_der(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        authority: CertificateDer<'static>,
        cluster: ClusterId,
        now_s: u64,
    ) -> Result<Self, IdentityError> {
        let theirs = peer::authority_cluster(&authority)?;
        if theirs != cluster {
            return Err(PeerError::OtherCluster { theirs: theirs.to_string(), ours: cluster }.into());
        }
        let peer = Peer::from_certificate(&certificate, cluster)?;
        let identity = Self { cluster, certificate, key, authority, denied: DenyList::default(), peer };
        identity.check_key()?;
        identity.check_issuer(now_s)?;
        Ok(identity)
    }

    /// The list of certificates that endpoints with this identity refuse; empty until somebody replaces it.
    pub fn deny_list(&self) -> &DenyList {
        &self.denied
    }

    /// Whom a peer sees.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Which cluster we belong to.
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn check_key(&self) -> Result<(), IdentityError> {
        let provider = tls::provider();
        let matched = CertifiedKey::from_der(vec![self.certificate.clone()], self.key.clone_key(), &provider);
        match matched {
            Ok(_) => Ok(()),
            Err(RustlsError::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(IdentityError::Key),
            Err(source) => Err(IdentityError::Unusable { role: self.peer.role.clone(), source }),
        }
    }

    fn check_issuer(&self, now_s: u64) -> Result<(), IdentityError> {
        let verifier = tls::issuer_verifier(self)?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
        let role = || self.peer.role.clone();
        match verifier.verify_client_cert(&self.certificate, &[], now) {
            Ok(_) => Ok(()),
            Err(RustlsError::InvalidCertificate(error)) => Err(match error {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    let ago_s = now_s.saturating_sub(self.peer.not_after_s);
                    IdentityError::Expired { role: role(), ago_s }
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    IdentityError::TooEarly { role: role() }
                }
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    IdentityError::OtherAuthority(role())
                }
                other => IdentityError::Unusable { role: role(), source: other.into() },
            }),
            Err(source) => Err(IdentityError::Unusable { role: role(), source }),
        }
    }
}

impl fmt::Debug for Identity {
    /// Shows who it is, never the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("cluster", &self.cluster).field("peer", &self.peer).finish()
    }
}

/// The day in UTC, as `2030-01-31`, on which the second `time_s` falls; counted from 1970.
pub fn date(time_s: u64) -> String {
    let time = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(time_s.min(TIME_MAX_S));
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

fn leaf_params(
    cluster: ClusterId,
    role: &Role,
    hosts: &[String],
) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, role.to_string());
    params.subject_alt_names.push(uri(peer::role_uri(cluster, role))?);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    // The issuer's key is named, so that a certificate can be traced to its authority by hand too.
    params.use_authority_key_identifier_extension = true;
    if let Role::Node(node) = role {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        for name in std::iter::once(&peer::server_name(cluster, *node)).chain(hosts) {
            params.subject_alt_names.push(host(name)?);
        }
    }
    Ok(params)
}

fn host(name: &str) -> Result<SanType, IdentityError> {
    let bad_name = |source| IdentityError::Name { name: name.to_owned(), source };
    match name.parse() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.try_into().map_err(bad_name)?)),
    }
}

fn uri(text: String) -> Result<SanType, IdentityError> {
    let bad_name = |source| IdentityError::Name { name: text.clone(), source };
    Ok(SanType::URI(text.as_str().try_into().map_err(bad_name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_cluster_has_a_name_of_its_own() {
        let found = || Authority::found(Validity::ALWAYS).unwrap().cluster();
        assert_ne!(found(), found());
    }

    #[test]
    fn times_that_no_certificate_can_carry_are_refused() {
        let new = |not_before_s, not_after_s| {
            Authority::new(ClusterId([7; 16]), Validity { not_before_s, not_after_s })
                .err()
                .map(|e| e.to_string())
        };
        assert_eq!(new(0, TIME_MAX_S), None);
        assert_eq!(new(7, 7), None);
        assert!(new(8, 7).unwrap().contains("from 8 to 7"));
        assert!(new(0, u64::MAX).unwrap().contains(&u64::MAX.to_string()));
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let authority = Authority::found(Validity { not_before_s: 0, not_after_s: 1_000 }).unwrap();
        let issue = |validity| authority.issue(&"client/a".parse().unwrap(), &[], validity);
        assert_eq!(issue(Validity::ALWAYS).unwrap().peer().not_after_s, 1_000);
        let late = Validity { not_before_s: 1_001, not_after_s: 2_000 };
        assert!(matches!(issue(late), Err(IdentityError::Validity { .. })));
    }

    #[test]
    fn a_name_that_no_certificate_can_carry_is_refused() {
        let authority = Authority::found(Validity::ALWAYS).unwrap();
        let issue =
            |host: &str| authority.issue(&"node/1".parse().unwrap(), &[host.to_owned()], Validity::ALWAYS);
        assert!(issue("10.0.0.1").is_ok() && issue("::1").is_ok() && issue("host-a.example").is_ok());
        assert!(issue("zürich").unwrap_err().to_string().contains("`zürich` cannot stand in a certificate"));
    }

    #[test]
    fn dates_are_days_in_utc() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_868_799), "2000-02-29");
        assert_eq!(date(951_868_800), "2000-03-01");
        assert_eq!(date(u64::MAX), "9999-12-31");
    }
}
