//! Identities, authorities, deny lists and other secrets as files: the one place of this crate that touches them.
//!
//! Certificates and keys are PEM. A key that its group or others may read is refused, whoever they are: it may have
//! been copied by then, and only a new one is safe. A new file is written whole beside its place, flushed, and then
//! renamed, so that a reader never meets half of one.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::ClusterId;
use rustls::pki_types::pem::{self as pki_pem, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::deny::{DENIED_MAX, Denied, DenyError, DenyList};
use crate::identity::{Authority, Identity, IdentityError};
use crate::peer::{Peer, PeerError};

/// The authority's certificate, in every folder.
pub const AUTHORITY_FILE: &str = "ca.pem";
/// The authority's key, in the folder where the cluster was made and nowhere else.
pub const AUTHORITY_KEY_FILE: &str = "ca.key";

/// Far above any key or certificate of ours.
const PEM_BYTES_MAX: u64 = 64 << 10;
/// Far above any secret of ours that is text.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// A line holds 64 digits and a comment.
const DENIED_BYTES_MAX: u64 = DENIED_MAX as u64 * 256;
/// How often a deny list is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

const KEY_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o700;
/// The bits that let anybody but the owner touch a file.
const NOT_OWNER: u32 = 0o077;

/// Where an identity is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CredentialFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificate of the authority that issued it.
    pub authority: PathBuf,
}

/// A deny list's file, watched by looking at it.
#[derive(Debug)]
pub struct DenyFile {
    path: PathBuf,
    seen: Option<Version>,
}

/// What changes when a file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What went wrong with one file.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// It cannot be opened or read.
    #[error("cannot read {path}: {source}; check the path and who owns the file")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others than its owner may touch the key.
    #[error(
        "{path} holds a private key and has mode {mode:04o}, which lets others than its owner at it; run `chmod 600 {path}`, and \
         replace the key if somebody may have read it"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Not what its name says.
    #[error("{path} holds no {wanted} in PEM format; copy it again from where the cluster was made")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// Far too long.
    #[error("{path} is longer than {bytes_max} bytes, so it is no file of ours; check the path")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// The parts do not make an identity or an authority.
    #[error("{path}: {source}")]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        source: IdentityError,
    },
    /// The certificate does not say whose it is.
    #[error("{path}: {source}")]
    Peer {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong.
        source: PeerError,
    },
    /// The deny list has a mistake; what was in force before stays in force.
    #[error("{path}: {source}")]
    Denied {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DenyError,
    },
}

impl CredentialFiles {
    /// `NAME.pem`, `NAME.key` and the authority's certificate, all in `folder`.
    pub fn in_folder(folder: &Path, name: &str) -> Self {
        Self {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
            authority: folder.join(AUTHORITY_FILE),
        }
    }
}

impl Identity {
    /// Loads an identity and checks that it is good for `cluster` at `now_s`, in seconds since 1970.
    pub fn load(files: &CredentialFiles, cluster: ClusterId, now_s: u64) -> Result<Self, CredentialError> {
        let certificate = read_certificate(&files.certificate)?;
        let key = read_key(&files.key)?;
        let authority = read_certificate(&files.authority)?;
        Self::from_der(certificate, key, authority, cluster, now_s)
            .map_err(|source| CredentialError::Identity { path: files.certificate.clone(), source })
    }

    /// Writes the three files, the key for its owner only. What stands there is replaced.
    pub fn save(&self, files: &CredentialFiles) -> Result<(), CredentialError> {
        // The key goes first: a certificate without its key would look like a pair that does not match.
        write(&files.key, &key_text(self.key.secret_der()), KEY_MODE)?;
        write(&files.certificate, &certificate_text(&self.certificate), PUBLIC_MODE)?;
        write(&files.authority, &certificate_text(&self.authority), PUBLIC_MODE)
    }
}

impl Authority {
    /// Loads the authority from `folder`, whichever cluster it is of.
    pub fn load(folder: &Path) -> Result<Self, CredentialError> {
        let path = folder.join(AUTHORITY_FILE);
        let key = read_key(&folder.join(AUTHORITY_KEY_FILE))?;
        Self::from_der(read_certificate(&path)?, &key)
            .map_err(|source| CredentialError::Identity { path, source })
    }

    /// Writes certificate and key to `folder`.
    pub fn save(&self, folder: &Path) -> Result<(), CredentialError> {
        write(&folder.join(AUTHORITY_KEY_FILE), &key_text(self.key_der()), KEY_MODE)?;
        write(&folder.join(AUTHORITY_FILE), &certificate_text(self.certificate()), PUBLIC_MODE)
    }
}

/// Whose certificate the file at `path` holds, without its key and without asking who signed it.
pub fn read_peer(path: &Path, cluster: ClusterId) -> Result<Peer, CredentialError> {
    Peer::from_certificate(&read_certificate(path)?, cluster)
        .map_err(|source| CredentialError::Peer { path: path.to_owned(), source })
}

/// When the authority whose certificate is at `path` expires, in seconds since 1970.
pub fn read_authority_expiry(path: &Path) -> Result<u64, CredentialError> {
    crate::peer::authority_not_after_s(&read_certificate(path)?)
        .map_err(|source| CredentialError::Peer { path: path.to_owned(), source })
}

impl DenyFile {
    /// The list at `path`, not read yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    /// What the file holds now, if it is another version than at the last call. A version with a mistake is reported
    /// once.
    pub fn poll(&mut self) -> Result<Option<Denied>, CredentialError> {
        // A file that cannot be read now is read again when it can, even if it is the same.
        let seen = self.seen.take();
        let mut file = open(&self.path)?;
        let version = Version::of(&metadata(&file, &self.path)?);
        if seen == Some(version) {
            self.seen = seen;
            return Ok(None);
        }
        let text = read_text(&mut file, &self.path, DENIED_BYTES_MAX)?;
        self.seen = Some(version);
        let denied =
            text.parse().map_err(|source| CredentialError::Denied { path: self.path.clone(), source })?;
        Ok(Some(denied))
    }

    /// Keeps `list` as the file is, looking once a second, for as long as the caller waits. Troubles go to `report`,
    /// once each time they change, and `Ok` when they are over; the list stays as it was meanwhile.
    pub async fn follow(mut self, list: DenyList, mut report: impl FnMut(Result<(), &CredentialError>)) {
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        let mut reported = String::new();
        loop {
            interval.tick().await;
            match self.poll() {
                Ok(None) => {}
                Ok(Some(denied)) => {
                    list.replace(denied);
                    reported.clear();
                    report(Ok(()));
                }
                Err(error) if error.to_string() == reported => {}
                Err(error) => {
                    report(Err(&error));
                    reported = error.to_string();
                }
            }
        }
    }
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Makes a folder that only its owner may enter. Its parent must exist, and it must not.
pub fn create_folder(path: &Path) -> Result<(), CredentialError> {
    let made = fs::DirBuilder::new().mode(FOLDER_MODE).create(path);
    made.map_err(|source| CredentialError::Write { path: path.to_owned(), source })
}

/// Writes a file that anybody who may enter its folder may read, replacing what stands there.
pub fn write_public(path: &Path, text: &str) -> Result<(), CredentialError> {
    write(path, text, PUBLIC_MODE)
}

/// Writes a text that only its owner may read, replacing what stands there.
pub fn write_secret(path: &Path, text: &str) -> Result<(), CredentialError> {
    write(path, text, KEY_MODE)
}

/// Reads what [`write_secret`] wrote; nothing if there is no such file. One that others may read is refused.
pub fn read_secret(path: &Path) -> Result<Option<String>, CredentialError> {
    match open(path) {
        Err(CredentialError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => read_private(opened?, path, SECRET_BYTES_MAX).map(Some),
    }
}

fn read_certificate(path: &Path) -> Result<CertificateDer<'static>, CredentialError> {
    let text = read_text(&mut open(path)?, path, PEM_BYTES_MAX)?;
    CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| bad_pem(path, "certificate", error))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, CredentialError> {
    let text = read_private(open(path)?, path, PEM_BYTES_MAX)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| bad_pem(path, "private key", error))
}

/// Reads a file that its owner alone may touch.
fn read_private(mut file: File, path: &Path, bytes_max: u64) -> Result<String, CredentialError> {
    // The mode of the open file, not of whatever has the name by now.
    let mode = metadata(&file, path)?.permissions().mode() & 0o7777;
    if mode & NOT_OWNER != 0 {
        return Err(CredentialError::Exposed { path: path.to_owned(), mode });
    }
    read_text(&mut file, path, bytes_max)
}

fn bad_pem(path: &Path, wanted: &'static str, _: pki_pem::Error) -> CredentialError {
    CredentialError::Pem { path: path.to_owned(), wanted }
}

fn open(path: &Path) -> Result<File, CredentialError> {
    File::open(path).map_err(|source| CredentialError::Read { path: path.to_owned(), source })
}

fn metadata(file: &File, path: &Path) -> Result<Metadata, CredentialError> {
    file.metadata().map_err(|source| CredentialError::Read { path: path.to_owned(), source })
}

fn read_text(file: &mut File, path: &Path, bytes_max: u64) -> Result<String, CredentialError> {
    let mut text = String::new();
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    let bytes = read.map_err(|source| CredentialError::Read { path: path.to_owned(), source })?;
    if bytes as u64 > bytes_max {
        return Err(CredentialError::TooLong { path: path.to_owned(), bytes_max });
    }
    Ok(text)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), CredentialError> {
    replace(path, text, mode).map_err(|source| CredentialError::Write { path: path.to_owned(), source })
}

/// The file beside `path` has a name of its own kind, so one left over from a crash is simply replaced.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn certificate_text(der: &[u8]) -> String {
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der), unix_lines())
}

fn key_text(pkcs8: &[u8]) -> String {
    pem::encode_config(&pem::Pem::new("PRIVATE KEY", pkcs8), unix_lines())
}

fn unix_lines() -> pem::EncodeConfig {
    pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF)
}

#[cfg(test)]
mod tests;
