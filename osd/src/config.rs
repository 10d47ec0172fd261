//! The daemon's configuration file: what an operator writes, checked once at start.
//!
//! `fleasefs init` writes the file that [`commented`] returns, in which every key stands with its unit, its default
//! and what it does. Paths in it are relative to the folder that the file is in, so a folder can be copied to
//! another machine as it is.

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use base::{NodeId, Role};
use net::Identity;
use net::credentials::{CredentialError, CredentialFiles, DenyFile, read_secret};
use node::{CapabilityKeys, ClusterMap, KeysError, MapError, from_toml, is_address};
use serde::{Deserialize, Serialize};

use crate::store::index::Engine;

/// Far above any configuration, a map of a thousand daemons included.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The shortest token. One that is drawn at random cannot be guessed then.
const TOKEN_BYTES_MIN: usize = 16;
/// What `metrics` says when there are to be none.
const METRICS_OFF: &str = "off";

/// Everything a daemon and its supervisor are told at start. Paths are absolute or relative to the working directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The file this was read from.
    pub path: PathBuf,
    /// Which daemon of the map this is.
    pub node: NodeId,
    /// The cluster.
    pub map: ClusterMap,
    /// Where to listen for peers and clients: `host:port`.
    pub listen: String,
    /// Where the page and the metrics are served: `host:port`; nowhere if there is none.
    pub metrics: Option<String>,
    /// The token that has to be shown there. The file may be absent where only this machine can ask.
    pub page_token: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The daemon's own certificate.
    pub credentials: CredentialFiles,
    /// Its supervisor's.
    pub supervisor: CredentialFiles,
    /// The deny list.
    pub denied: PathBuf,
    /// The keys of capabilities, the same for all daemons. The file may be absent.
    pub capability_keys: PathBuf,
    /// What is logged, and how.
    pub log: Log,
    /// How much one daemon takes on.
    pub limits: Limits,
    /// How files are kept.
    pub store: StoreConfig,
}

/// How a daemon keeps files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// What keeps the index: chosen when the data directory is made, and the same from then on.
    pub index: Engine,
    /// A directory in memory that outlives the daemon, but not the power.
    pub memo: PathBuf,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { index: Engine::default(), memo: "/dev/shm".into() }
    }
}

/// What is logged, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The form of a line.
    pub format: LogFormat,
    /// What is left out.
    pub level: LogLevel,
}

/// The form of a line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// The least important lines that are still written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What needs a hand.
    Error,
    /// What may need one.
    Warn,
    /// What happened to the cluster.
    #[default]
    Info,
    /// What happened to a connection or a lease.
    Debug,
    /// Every message.
    Trace,
}

/// How much one daemon takes on. What is beyond is refused, and whoever asked is told so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Clients with a session at a time.
    pub clients_max: u32,
    /// Locks that a record is kept of.
    pub locks_max: u32,
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; `fleasefs init` makes a cluster's files")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Far too long.
    #[error("{0} is longer than {FILE_BYTES_MAX} bytes, so it is no configuration; check the path")]
    TooLong(PathBuf),
    /// A key that is unknown or missing, or a value of the wrong kind.
    #[error("{path}: {what}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, what is wrong with it, and what to do.
        what: String,
    },
    /// A value that cannot be.
    #[error("{path}: `{key}` is `{value}`; {advice}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it should say.
        advice: &'static str,
    },
    /// The map.
    #[error("{path}: {source}")]
    Map {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: MapError,
    },
    /// The daemon is not in its own map.
    #[error("{path}: `node` is {node}, which is not in {map}; use the folder that was made for this daemon")]
    NotInMap {
        /// The configuration.
        path: PathBuf,
        /// The daemon.
        node: NodeId,
        /// The map.
        map: PathBuf,
    },
    /// A host name that means nothing here.
    #[error("{path}: `{key}` is `{value}`, and {source}; use an address of this machine")]
    Resolve {
        /// The configuration.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What it says.
        value: String,
        /// What the system said.
        source: io::Error,
    },
    /// Certificates, keys, the deny list.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// The keys of capabilities.
    #[error("{path}: {source}")]
    Keys {
        /// Their file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeysError,
    },
    /// The token of the page is none.
    #[error(
        "{0} holds no token: write one line of at least {TOKEN_BYTES_MIN} letters, digits and signs into it, as `openssl rand -hex 16` \
         makes it"
    )]
    Token(PathBuf),
    /// Others could see the page.
    #[error(
        "{path}: `metrics` is `{value}`, which other machines can reach, and there is no {token}; put a token into that file (mode \
         0600), which whoever opens the page has to show, or use a loopback address"
    )]
    Unguarded {
        /// The configuration.
        path: PathBuf,
        /// What it says.
        value: String,
        /// Where the token would be.
        token: PathBuf,
    },
    /// A certificate for somebody else.
    #[error(
        "{path} is the certificate of {found} and not of {wanted}; use the folder that was made for this daemon"
    )]
    Role {
        /// The certificate.
        path: PathBuf,
        /// Whose it should be.
        wanted: Role,
        /// Whose it is.
        found: Role,
    },
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    node: NodeId,
    listen: Option<String>,
    metrics: Option<String>,
    #[serde(default)]
    files: Files,
    #[serde(default)]
    log: Log,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    store: StoreConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Files {
    map: PathBuf,
    data: PathBuf,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    supervisor_certificate: PathBuf,
    supervisor_key: PathBuf,
    denied: PathBuf,
    capability_keys: PathBuf,
    page_token: PathBuf,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            map: "cluster.toml".into(),
            data: "data".into(),
            authority: "ca.pem".into(),
            certificate: "node.pem".into(),
            key: "node.key".into(),
            supervisor_certificate: "supervisor.pem".into(),
            supervisor_key: "supervisor.key".into(),
            denied: "denied.txt".into(),
            capability_keys: "capability.keys".into(),
            page_token: "page.token".into(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { clients_max: 4_096, locks_max: 1 << 20 }
    }
}

impl Config {
    /// Reads and checks the file at `path` and the map that it names. Certificates are not looked at yet.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read(path)?, read)
    }

    /// Checks `text`, the file at `path`, and the map that it names and that `read_map` reads.
    pub fn parse(
        path: &Path,
        text: &str,
        read_map: impl FnOnce(&Path) -> Result<String, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let what = |what| ConfigError::Syntax { path: path.to_owned(), what };
        let written: Written = from_toml(text).map_err(what)?;
        let Written { node, listen, metrics, files, log, limits, store } = written;

        let folder = path.parent().unwrap_or(Path::new(""));
        let map_path = folder.join(&files.map);
        let map = ClusterMap::parse(&read_map(&map_path)?)
            .map_err(|source| ConfigError::Map { path: map_path.clone(), source })?;
        let Some(osd) = map.osd(node) else {
            return Err(ConfigError::NotInMap { path: path.to_owned(), node, map: map_path });
        };
        let listen = listen.unwrap_or_else(|| osd.address.clone());
        let metrics = metrics.unwrap_or_else(|| beside(&listen));

        let config = Self {
            path: path.to_owned(),
            node,
            map,
            listen,
            metrics: Some(metrics).filter(|metrics| metrics != METRICS_OFF),
            data: folder.join(&files.data),
            credentials: CredentialFiles {
                certificate: folder.join(&files.certificate),
                key: folder.join(&files.key),
                authority: folder.join(&files.authority),
            },
            supervisor: CredentialFiles {
                certificate: folder.join(&files.supervisor_certificate),
                key: folder.join(&files.supervisor_key),
                authority: folder.join(&files.authority),
            },
            denied: folder.join(&files.denied),
            capability_keys: folder.join(&files.capability_keys),
            page_token: folder.join(&files.page_token),
            log,
            limits,
            store: StoreConfig { memo: folder.join(&store.memo), ..store },
        };
        config.check()?;
        Ok(config)
    }

    /// The daemon's identity, with the deny list as its file is now. `now_s` counts from 1970.
    pub fn identity(&self, now_s: u64) -> Result<Identity, ConfigError> {
        let identity = self.identity_of(Role::Node(self.node), &self.credentials, now_s)?;
        if let Some(denied) = self.deny_file().poll()? {
            identity.deny_list().replace(denied);
        }
        Ok(identity)
    }

    /// The identity of the daemon's supervisor.
    pub fn supervisor_identity(&self, now_s: u64) -> Result<Identity, ConfigError> {
        self.identity_of(Role::Supervisor(self.node), &self.supervisor, now_s)
    }

    /// The deny list's file. Whoever runs [`DenyFile::follow`] with [`Identity::deny_list`] puts later versions in
    /// force.
    pub fn deny_file(&self) -> DenyFile {
        DenyFile::new(self.denied.clone())
    }

    /// The keys of capabilities; none if there is no file, as in a cluster that was made before there were any. Such a
    /// daemon serves everything but opens of files in volumes.
    pub fn capability_keys(&self) -> Result<Option<CapabilityKeys>, ConfigError> {
        let path = &self.capability_keys;
        let keys = read_secret(path)?.map(|text| CapabilityKeys::parse(&text)).transpose();
        keys.map_err(|source| ConfigError::Keys { path: path.clone(), source })
    }

    /// Where to listen, as an address.
    pub fn listen_address(&self) -> Result<SocketAddr, ConfigError> {
        self.resolve("listen", &self.listen)
    }

    /// Where to serve the page and the metrics, and the token that has to be shown. What others can reach needs one.
    pub fn page(&self) -> Result<Option<(SocketAddr, Option<String>)>, ConfigError> {
        let Some(metrics) = &self.metrics else { return Ok(None) };
        let address = self.resolve("metrics", metrics)?;
        let path = &self.page_token;
        let token = read_secret(path)?.map(|text| text.trim().to_owned());
        if let Some(token) = &token
            && !(token.len() >= TOKEN_BYTES_MIN && token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(ConfigError::Token(path.clone()));
        }
        if token.is_none() && !address.ip().is_loopback() {
            let value = metrics.clone();
            return Err(ConfigError::Unguarded { path: self.path.clone(), value, token: path.clone() });
        }
        Ok(Some((address, token)))
    }

    fn resolve(&self, key: &'static str, value: &str) -> Result<SocketAddr, ConfigError> {
        let failed =
            |source| ConfigError::Resolve { path: self.path.clone(), key, value: value.to_owned(), source };
        let mut found = value.to_socket_addrs().map_err(failed)?;
        let none = || failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        found.next().ok_or_else(none)
    }

    fn identity_of(
        &self,
        wanted: Role,
        files: &CredentialFiles,
        now_s: u64,
    ) -> Result<Identity, ConfigError> {
        let identity = Identity::load(files, self.map.cluster(), now_s)?;
        let found = identity.peer().role.clone();
        if found != wanted {
            return Err(ConfigError::Role { path: files.certificate.clone(), wanted, found });
        }
        Ok(identity)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key, value: &dyn ToString, advice| ConfigError::Value {
            path: self.path.clone(),
            key,
            value: value.to_string(),
            advice,
        };
        if !is_address(&self.listen) {
            return Err(wrong("listen", &self.listen, "use host:port"));
        }
        if let Some(metrics) = self.metrics.as_ref().filter(|metrics| !is_address(metrics)) {
            return Err(wrong("metrics", metrics, "use host:port, or \"off\""));
        }
        let Limits { clients_max, locks_max } = self.limits;
        for (key, value) in [("limits.clients_max", clients_max), ("limits.locks_max", locks_max)] {
            if value == 0 {
                return Err(wrong(
                    key,
                    &value,
                    "use at least 1: a daemon that takes on nothing is of no use",
                ));
            }
        }
        Ok(())
    }
}

impl LogLevel {
    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The file that a new daemon starts with: every key, with its unit, its default and what it does.
pub fn commented(node: NodeId, index: Engine) -> String {
    let is_default = index == Engine::default();
    let index = format!("{}index = \"{index}\"", if is_default { "#" } else { "" });
    format!(
        r#"# The storage daemon {node}. Paths are relative to this file's folder. After a change: restart the daemon.

# Which daemon of the map this is. It never changes: a lost disk gets a new number.
node = {node}

# Where to listen for daemons and clients: host:port, UDP. Default: the daemon's address in the map. Set it
# where that is not an address of this machine, as behind a forwarded port; "0.0.0.0:7000" listens on all.
#listen = "0.0.0.0:7000"

# Where the page that shows the cluster and the metrics are served: host:port, TCP. Default: 127.0.0.1, at the number
# of the port above. "off" for nowhere. An address that other machines can reach needs a token, see `page_token`.
#metrics = "127.0.0.1:7000"

[files]
# The cluster map. It must be the same on every machine; a daemon with another one is not let in.
#map = "cluster.toml"
# The data directory, made at the first start. Without its contents a daemon has to join as a new one.
#data = "data"
# Whose certificates are accepted.
#authority = "ca.pem"
# The daemon's certificate and its key. The key must be its owner's alone (chmod 600).
#certificate = "node.pem"
#key = "node.key"
# The same for the supervisor, the small process that reports the daemon's death.
#supervisor_certificate = "supervisor.pem"
#supervisor_key = "supervisor.key"
# The fingerprints of certificates that are refused although the authority issued them. Looked at every second.
#denied = "denied.txt"
# The keys that all daemons of the cluster share, for what a client shows of the files that it has open. Its owner's
# alone, too. Without the file no client can open files of volumes here; `fleasefs cert keys` makes it.
#capability_keys = "capability.keys"
# The token that whoever opens the page or asks for metrics has to show, at least 16 characters in one line. Its owner's
# alone, too. Without the file only an address of this machine will do for `metrics`, and all its users may look.
#page_token = "page.token"

[log]
# "text" for people, "json" for machines: one object a line. Default: "text".
#format = "text"
# The least important lines that are written: "error", "warn", "info", "debug" or "trace". Default: "info".
# From "debug" on the log itself costs throughput.
#level = "info"

[limits]
# Clients with a session at a time. Default: 4096. One more is refused; each takes some KiB of memory.
#clients_max = 4096
# Locks that are kept a record of. Default: 1048576. A further one is refused; each takes about 300 bytes.
#locks_max = 1048576

[store]
# What keeps the index of the data directory: "redb" or "sled". Default: "redb". It is chosen when the directory is
# made; a daemon whose directory has another one does not start.
{index}
# A directory in memory (tmpfs) that outlives the daemon and not the power. By a small file in it the daemon knows
# after a crash that nothing was lost; without that it asks the others. A directory on a disk is refused.
#memo = "/dev/shm"
"#
    )
}

/// Loopback, at the port of `address`: UDP and TCP have port numbers of their own, so it is as free as any.
fn beside(address: &str) -> String {
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    format!("127.0.0.1:{port}")
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLong(path.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
