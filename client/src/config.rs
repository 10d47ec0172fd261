//! A client's configuration: how to find a cluster, and who to be there.
//!
//! A cluster is named by a path: the configuration itself, the folder it is in, or the folder that `fleasefs init`
//! made. Paths in the file are relative to its folder, so a folder can be copied to another machine as it is.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base::Role;
use net::Identity;
use net::credentials::{CredentialError, CredentialFiles};
use node::{ClusterMap, MapError, from_toml};
use serde::Deserialize;

/// Names the cluster when nothing else does.
pub const CLUSTER_VARIABLE: &str = "FLEASEFS_CLUSTER";
/// The configuration's name in its folder.
pub const CONFIG_FILE: &str = "client.toml";

/// Where a configuration lies in a folder that somebody names, the first that is there. An operator who has both uses
/// the certificate that may do more.
const PLACES: [&str; 3] = ["", "admin", "client"];
/// Far above any configuration, a map of a thousand daemons included.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a client needs to be one. Paths are absolute or relative to the working directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The file this was read from.
    pub path: PathBuf,
    /// The cluster.
    pub map: ClusterMap,
    /// The client's certificate.
    pub credentials: CredentialFiles,
    /// Whether what is written to a file that nobody else uses stays here for a while, or until it is synced.
    pub write_behind: bool,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nobody said which cluster.
    #[error(
        "no cluster is named; name the folder that `fleasefs init` made, or set {CLUSTER_VARIABLE} to it"
    )]
    Unnamed,
    /// The path leads nowhere.
    #[error(
        "no cluster at {0}: it has no {CONFIG_FILE}, nor have admin/ and client/ in it; `fleasefs init` makes one"
    )]
    NotFound(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and who owns the file")]
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
    /// The map.
    #[error("{path}: {source}")]
    Map {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: MapError,
    },
    /// Certificate or key.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// A daemon's certificate.
    #[error(
        "{path} is the certificate of {found}, and a client needs one of client/NAME or admin/NAME; issue one with `fleasefs cert issue`"
    )]
    Role {
        /// The certificate.
        path: PathBuf,
        /// Whose it is.
        found: Role,
    },
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    map: PathBuf,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    write_behind: bool,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            map: "cluster.toml".into(),
            authority: "ca.pem".into(),
            certificate: "cert.pem".into(),
            key: "key.pem".into(),
            write_behind: true,
        }
    }
}

impl Config {
    /// The configuration of the cluster that `named` says, or else the variable [`CLUSTER_VARIABLE`].
    pub fn find(named: Option<&Path>) -> Result<Self, ConfigError> {
        let variable = env::var_os(CLUSTER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = named.map(Path::to_owned).or(variable).ok_or(ConfigError::Unnamed)?;
        Self::load(&locate(&named)?)
    }

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
        let Written { map, authority, certificate, key, write_behind } = from_toml(text).map_err(what)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let map_path = folder.join(map);
        let map = ClusterMap::parse(&read_map(&map_path)?)
            .map_err(|source| ConfigError::Map { path: map_path, source })?;
        let credentials = CredentialFiles {
            certificate: folder.join(certificate),
            key: folder.join(key),
            authority: folder.join(authority),
        };
        Ok(Self { path: path.to_owned(), map, credentials, write_behind })
    }

    /// Who we are in the cluster. `now_s` counts from 1970.
    pub fn identity(&self, now_s: u64) -> Result<Identity, ConfigError> {
        let identity = Identity::load(&self.credentials, self.map.cluster(), now_s)?;
        match &identity.peer().role {
            Role::Client(_) | Role::Admin(_) => Ok(identity),
            found => {
                let path = self.credentials.certificate.clone();
                Err(ConfigError::Role { path, found: found.clone() })
            }
        }
    }
}

/// The configuration that `named` means: itself, or the first of the known places below it.
fn locate(named: &Path) -> Result<PathBuf, ConfigError> {
    if named.is_file() {
        return Ok(named.to_owned());
    }
    for path in PLACES.map(|place| named.join(place).join(CONFIG_FILE)) {
        match path.try_exists() {
            Ok(true) => return Ok(path),
            Ok(false) => {}
            // A folder of another user is not to be taken for none.
            Err(source) => return Err(ConfigError::Read { path, source }),
        }
    }
    Err(ConfigError::NotFound(named.to_owned()))
}

/// The file that a new client starts with: every key, with its default and what it does.
pub fn commented(role: &Role) -> String {
    format!(
        r#"# How {role} finds its cluster. Paths are relative to this file's folder.

# The cluster map. It must be the one that the daemons have.
#map = "cluster.toml"
# Whose certificates are accepted.
#authority = "ca.pem"
# The certificate of {role} and its key. The key must be its owner's alone (chmod 600).
#certificate = "cert.pem"
#key = "key.pem"
# Whether what is written to a file that nobody else uses stays with the client for half a second, or until it is synced: small files are
# written faster, and a client that dies takes with it what it has not synced. With `false` daemons have it when a write returns.
#write_behind = true
"#
    )
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
mod tests {
    use std::fs;

    use base::{ClusterId, NodeId};
    use net::credentials::write_public;
    use net::{Authority, Validity};
    use node::{Osd, Settings};
    use tempfile::TempDir;

    use super::*;

    const CLUSTER: ClusterId = ClusterId([7; 16]);
    const NOW_S: u64 = 1_800_000_000;

    fn map_text() -> String {
        let osd = Osd { id: NodeId(1), address: "10.0.0.1:7000".to_owned() };
        ClusterMap::new(CLUSTER, 1, 1, Settings::default(), vec![osd]).unwrap().to_text()
    }

    /// Makes the folder of a client below `parent`.
    fn folder(parent: &Path, name: &str, role: &str) -> PathBuf {
        let (folder, role) = (parent.join(name), role.parse().unwrap());
        fs::create_dir(&folder).unwrap();
        write_public(&folder.join(CONFIG_FILE), &commented(&role)).unwrap();
        write_public(&folder.join("cluster.toml"), &map_text()).unwrap();
        let files = CredentialFiles {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            authority: folder.join("ca.pem"),
        };
        let authority = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
        authority.issue(&role, &[], Validity::ALWAYS).unwrap().save(&files).unwrap();
        folder
    }

    #[test]
    fn a_cluster_is_found_by_any_of_its_paths() {
        let parent = TempDir::new().unwrap();
        assert!(matches!(Config::find(Some(parent.path())), Err(ConfigError::NotFound(_))));
        // A link to itself can be looked into by nobody, whatever rights he has.
        let closed = parent.path().join("closed");
        std::os::unix::fs::symlink(&closed, &closed).unwrap();
        assert!(matches!(Config::find(Some(&closed)), Err(ConfigError::Read { .. })));
        let client = folder(parent.path(), "client", "client/anna");
        for named in [parent.path(), &client, &client.join(CONFIG_FILE)] {
            let config = Config::find(Some(named)).unwrap();
            assert_eq!(config.path, client.join(CONFIG_FILE));
            assert_eq!(config.identity(NOW_S).unwrap().peer().role.to_string(), "client/anna");
        }
        // With both there the operator's is taken.
        let admin = folder(parent.path(), "admin", "admin/root");
        assert_eq!(Config::find(Some(parent.path())).unwrap().path, admin.join(CONFIG_FILE));
    }

    #[test]
    fn the_file_that_a_client_starts_with_says_what_holds_anyway() {
        let parent = TempDir::new().unwrap();
        let path = folder(parent.path(), "client", "client/anna").join(CONFIG_FILE);
        let config = Config::load(&path).unwrap();
        let uncommented = fs::read_to_string(&path).unwrap().replace("\n#", "\n").replace("\n ", "\n# ");
        assert_eq!(
            uncommented.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')).count(),
            5
        );
        write_public(&path, &uncommented).unwrap();
        assert_eq!(Config::load(&path).unwrap(), config);
    }

    #[test]
    fn a_daemons_certificate_makes_no_client() {
        let parent = TempDir::new().unwrap();
        let folder = folder(parent.path(), "client", "supervisor/1");
        let error = Config::find(Some(&folder)).unwrap().identity(NOW_S).unwrap_err().to_string();
        assert!(error.contains("cert.pem is the certificate of supervisor/1, and a client needs"), "{error}");
    }

    #[test]
    fn mistakes_name_file_key_and_remedy() {
        let parent = TempDir::new().unwrap();
        let path = folder(parent.path(), "client", "client/anna").join(CONFIG_FILE);
        for (text, expected) in [
            ("mpa = \"cluster.toml\"", "client.toml: line 1, `mpa = \"cluster.toml\"`: unknown field `mpa`"),
            ("map = 3", "client.toml: line 1, `map = 3`: "),
            ("map = \"gone.toml\"", "gone.toml: No such file"),
            ("map = \"client.toml\"", "client.toml: line 1, `map = "),
        ] {
            write_public(&path, text).unwrap();
            let error = Config::load(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} lacks {expected}");
        }
    }
}
