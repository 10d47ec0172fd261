//! The folder of a cluster's files, as `fleasefs init` makes it: which file lies where, and who signs what.
//!
//! ```text
//! cluster.toml              the map
//! ca.pem, ca.key            the authority; its key is needed for new certificates only
//! osd-N/                    everything that daemon N's machine needs, the keys of capabilities included, which all share
//! admin/, client/, client-NAME/
//!                           everything that an operator or a client needs
//! ```
//!
//! Each folder below stands on its own, with copies of the map and of the authority's certificate.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use base::{ClusterId, Name, NodeId, Role};
use clap::ValueEnum;
use net::credentials::{
    AUTHORITY_FILE, CredentialFiles, create_folder, read_authority_expiry, read_peer, read_secret,
    write_public, write_secret,
};
use net::{Authority, Denied, Peer, Validity};
use node::{CapabilityKey, CapabilityKeys, ClusterMap, KeyEpoch, Osd, REPLICAS_DEFAULT, Settings};
use osd::store::index::Engine;

const MAP_FILE: &str = "cluster.toml";
const OSD_FILE: &str = "osd.toml";
const DENIED_FILE: &str = "denied.txt";
const KEYS_FILE: &str = "capability.keys";
/// What a new deny list says.
const DENIED_TEXT: &str = "\
# Certificates that are refused although the authority issued them, one fingerprint a line; `fleasefs cert deny` adds
# to it. The daemon looks at this file every second, and ends connections that are open.
";

/// What a new file of keys says.
const KEYS_TEXT: &str = "\
# What daemons prove to each other with which file a client has open. All daemons of the cluster need the same lines, and
# nobody else may see them. A line: the key's number, the key, and perhaps from when on it is used, in seconds since 1970.
# `fleasefs cert keys` adds one. The first lines can go when nothing that was made with them is good any longer.
";

/// Who has a folder of his own in a new cluster.
const ADMIN_NAME: &str = "admin";
const CLIENT_NAME: &str = "client";

const DAY_S: u64 = 24 * 60 * 60;
/// A new certificate is good on a machine whose clock is behind, too.
const BACKDATED_S: u64 = 60 * 60;
/// An authority that expires takes its whole cluster along.
const AUTHORITY_DAYS: u64 = 10 * 365;
/// How long certificates are good unless somebody says otherwise.
pub(crate) const DAYS_DEFAULT: u32 = 365;

/// What a new cluster is to be like.
pub(crate) struct Plan {
    /// Where each daemon listens, in the order of their numbers, from 1.
    pub(crate) addresses: Vec<String>,
    /// On how many daemons a lock is kept; as many as there are, up to three, if nothing is said.
    pub(crate) replicas: Option<u8>,
    /// What all nodes agree on.
    pub(crate) settings: Settings,
    /// Clients with a folder of their own, besides the common one.
    pub(crate) clients: Vec<Name>,
    /// How long the certificates are good.
    pub(crate) days: u32,
    /// What keeps the index of the daemons' data.
    pub(crate) index: Engine,
}

/// What `--index` takes.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Index {
    /// The crate redb: one file
    Redb,
    /// The crate sled: a folder of its own. A power cut in the moments after a start may cost the node
    Sled,
}

impl From<Index> for Engine {
    fn from(index: Index) -> Self {
        match index {
            Index::Redb => Self::Redb,
            Index::Sled => Self::Sled,
        }
    }
}

/// What was made.
pub(crate) struct Made {
    /// The new cluster.
    pub(crate) map: ClusterMap,
    /// The folders, each with whom it is for.
    pub(crate) folders: Vec<(String, Role)>,
    /// When the first certificate expires.
    pub(crate) not_after_s: u64,
}

/// The folder of a cluster, or one of the folders in it.
pub(crate) struct ClusterDir {
    path: PathBuf,
    map: ClusterMap,
    /// What keeps the index of daemons that get a folder.
    index: Engine,
}

/// What came of adding a key of capabilities.
pub(crate) struct KeyAdded {
    /// The key's number.
    pub(crate) epoch: KeyEpoch,
    /// From when on it is used; at once if nothing is said.
    pub(crate) from_s: Option<u64>,
    /// The files, one for each daemon here.
    pub(crate) files: Vec<PathBuf>,
}

/// A certificate in a folder.
pub(crate) struct Held {
    /// The folder, relative to the cluster's.
    pub(crate) folder: PathBuf,
    /// Its files.
    pub(crate) files: CredentialFiles,
    /// Its holder.
    pub(crate) peer: Peer,
}

/// Makes a cluster's files at `path`, all or none. Nothing may be there but an empty folder.
pub(crate) fn create(path: &Path, plan: &Plan, now_s: u64) -> anyhow::Result<Made> {
    let (parent, path) = place(path)?;
    let authority = Authority::found(validity(now_s, AUTHORITY_DAYS))?;
    let map = map(authority.cluster(), plan)?;
    let until = validity(now_s, plan.days.into());
    let folders = folders(plan);
    let mut not_after_s = u64::MAX;
    build(&parent, &path, |building| {
        authority.save(building)?;
        write_public(&building.join(MAP_FILE), &map.to_text())?;
        let dir = ClusterDir { path: building.to_owned(), map: map.clone(), index: plan.index };
        for (folder, role) in &folders {
            let folder = building.join(folder);
            create_folder(&folder)?;
            let peer = dir.fill(&folder, &authority, role, until)?;
            not_after_s = not_after_s.min(peer.not_after_s);
        }
        dir.add_key(None)?;
        Ok(())
    })?;
    Ok(Made { map, folders, not_after_s })
}

/// From an hour ago on, for this many days.
pub(crate) fn validity(now_s: u64, days: u64) -> Validity {
    Validity {
        not_before_s: now_s.saturating_sub(BACKDATED_S),
        not_after_s: now_s.saturating_add(days.saturating_mul(DAY_S)),
    }
}

impl ClusterDir {
    /// The folder at `path`; its authority's key may be elsewhere.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = path.join(MAP_FILE);
        let text = fs::read_to_string(&file).with_context(|| {
            format!("cannot read {}; name a folder that `fleasefs init` made", file.display())
        })?;
        let map = ClusterMap::parse(&text).with_context(|| file.display().to_string())?;
        Ok(Self { path: path.to_owned(), map, index: Engine::default() })
    }

    /// The map.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The authority, whose key must be here.
    pub(crate) fn authority(&self) -> anyhow::Result<Authority> {
        let authority = Authority::load(&self.path).context(
            "the authority's key is needed for this; bring ca.key back beside ca.pem, and put it away afterwards",
        )?;
        let (theirs, ours) = (authority.cluster(), self.map.cluster());
        ensure!(
            theirs == ours,
            "ca.pem is of cluster {theirs} and {MAP_FILE} of {ours}; copy both from one folder"
        );
        Ok(authority)
    }

    /// When the authority expires.
    pub(crate) fn authority_not_after_s(&self) -> anyhow::Result<u64> {
        Ok(read_authority_expiry(&self.path.join(AUTHORITY_FILE))?)
    }

    /// The folder for `role` unless somebody says otherwise.
    pub(crate) fn folder_of(&self, role: &Role) -> PathBuf {
        self.path.join(folder_name(role))
    }

    /// Makes a folder at `path` with everything that `role` needs, all or nothing. Nothing may be there but an empty
    /// folder.
    pub(crate) fn issue(&self, path: &Path, role: &Role, until: Validity) -> anyhow::Result<Peer> {
        if let Role::Supervisor(node) = role {
            bail!("a supervisor's certificate is made together with its daemon's: use --role node/{node}");
        }
        let (parent, path) = place(path)?;
        let authority = self.authority()?;
        let mut peer = None;
        build(&parent, &path, |building| {
            peer = Some(self.fill(building, &authority, role, until)?);
            Ok(())
        })?;
        peer.context("nothing was issued")
    }

    /// Every certificate here, in the order of the folders' names.
    pub(crate) fn held(&self) -> anyhow::Result<Vec<Held>> {
        let mut held = Vec::new();
        for folder in self.folders()? {
            for files in credentials_in(&folder)? {
                let peer = read_peer(&files.certificate, self.map.cluster())?;
                let folder = folder.strip_prefix(&self.path).unwrap_or(&folder).to_owned();
                held.push(Held { folder, files, peer });
            }
        }
        Ok(held)
    }

    /// Puts a fresh certificate and key for the same role where `held` is.
    pub(crate) fn renew(&self, authority: &Authority, held: &Held, until: Validity) -> anyhow::Result<Peer> {
        let identity = authority.issue(&held.peer.role, &self.hosts(&held.peer.role), until)?;
        identity.save(&held.files)?;
        Ok(identity.peer().clone())
    }

    /// The deny lists of the daemons here, each with its file.
    pub(crate) fn deny_lists(&self) -> anyhow::Result<Vec<(PathBuf, String, Denied)>> {
        let mut lists = Vec::new();
        for folder in self.folders()? {
            let config = folder.join(OSD_FILE);
            if config.exists() {
                let path = osd::config::Config::load(&config)?.denied;
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let denied = text.parse().with_context(|| path.display().to_string())?;
                lists.push((path, text, denied));
            }
        }
        Ok(lists)
    }

    /// Puts a new key of capabilities into the file of every daemon here, behind those that are there. It is used from
    /// `from_s` on, in seconds since 1970; at once if it is the first one.
    pub(crate) fn add_key(&self, from_s: Option<u64>) -> anyhow::Result<KeyAdded> {
        ensure!(
            !self.path.join(OSD_FILE).exists(),
            "{} is the folder of one daemon, and all have the same keys; name the cluster's folder",
            self.path.display()
        );
        let files = self.key_files()?;
        ensure!(
            !files.is_empty(),
            "{} has no daemon's folder in it, so there is no place for keys; name the folder that `fleasefs init` made",
            self.path.display()
        );
        let present = common_keys(&files)?;
        let from_s = from_s.filter(|_| present.is_some());
        let (mut text, before) = match present {
            Some((text, keys)) => (text, keys.latest().0),
            None => (KEYS_TEXT.to_owned(), 0),
        };
        let epoch = before.checked_add(1).context("the last key has the highest number there is")?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let epoch = KeyEpoch(epoch);
        text.push_str(&CapabilityKey::new(random()?).line(epoch, from_s));
        CapabilityKeys::parse(&text).context("no further key can be added")?;
        let files: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
        for path in &files {
            write_secret(path, &text)?;
        }
        Ok(KeyAdded { epoch, from_s, files })
    }

    /// Where each daemon here keeps its keys of capabilities, and what stands there.
    fn key_files(&self) -> anyhow::Result<Vec<(PathBuf, Option<String>)>> {
        let mut files = Vec::new();
        for folder in self.folders()? {
            let config = folder.join(OSD_FILE);
            if config.exists() {
                let path = osd::config::Config::load(&config)?.capability_keys;
                let text = read_secret(&path)?;
                files.push((path, text));
            }
        }
        Ok(files)
    }

    /// Writes everything that `role` needs into `folder`.
    fn fill(
        &self,
        folder: &Path,
        authority: &Authority,
        role: &Role,
        until: Validity,
    ) -> anyhow::Result<Peer> {
        let identity = authority.issue(role, &self.hosts(role), until)?;
        if let Role::Node(node) = role {
            let is_known = self.map.osd(*node).is_some();
            ensure!(is_known, "node {node} is not in {MAP_FILE}; add it there first, in every copy");
            let supervisor = authority.issue(&Role::Supervisor(*node), &[], until)?;
            let denied = self.deny_lists()?.into_iter().next();
            let keys = common_keys(&self.key_files()?)?;
            identity.save(&CredentialFiles::in_folder(folder, "node"))?;
            supervisor.save(&CredentialFiles::in_folder(folder, "supervisor"))?;
            write_public(&folder.join(OSD_FILE), &osd::config::commented(*node, self.index))?;
            let denied = denied.map_or(DENIED_TEXT.to_owned(), |(_, text, _)| text);
            write_public(&folder.join(DENIED_FILE), &denied)?;
            if let Some((keys, _)) = keys {
                write_secret(&folder.join(KEYS_FILE), &keys)?;
            }
        } else {
            identity.save(&client_files(folder))?;
            write_public(&folder.join(client::CONFIG_FILE), &client::commented(role))?;
        }
        write_public(&folder.join(MAP_FILE), &self.map.to_text())?;
        Ok(identity.peer().clone())
    }

    /// The host of a daemon, for its certificate.
    fn hosts(&self, role: &Role) -> Vec<String> {
        let osd = match role {
            Role::Node(node) => self.map.osd(*node),
            _ => None,
        };
        let host = osd.and_then(|osd| osd.address.rsplit_once(':'));
        host.map(|(host, _)| host.trim_matches(['[', ']']).to_owned()).into_iter().collect()
    }

    /// This folder, if it is one of those that stand on their own, or else those in it.
    fn folders(&self) -> anyhow::Result<Vec<PathBuf>> {
        let has_config =
            |path: &Path| path.join(OSD_FILE).exists() || path.join(client::CONFIG_FILE).exists();
        if has_config(&self.path) {
            return Ok(vec![self.path.clone()]);
        }
        let unreadable = || format!("cannot list {}", self.path.display());
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(unreadable)? {
            folders.push(entry.with_context(unreadable)?.path());
        }
        folders.retain(|path| has_config(path));
        folders.sort();
        Ok(folders)
    }
}

/// What stands in the files that are there. All of them say the same, or a daemon would refuse what another one has
/// allowed.
fn common_keys(files: &[(PathBuf, Option<String>)]) -> anyhow::Result<Option<(String, CapabilityKeys)>> {
    let mut common: Option<(&Path, &str, CapabilityKeys)> = None;
    for (path, text) in files {
        let Some(text) = text else { continue };
        let keys = CapabilityKeys::parse(text).with_context(|| path.display().to_string())?;
        match &common {
            Some((other, _, known)) => ensure!(
                *known == keys,
                "{} and {} hold different keys; copy the one that the daemons use over the other",
                other.display(),
                path.display()
            ),
            None => common = Some((path, text, keys)),
        }
    }
    Ok(common.map(|(_, text, keys)| (text.to_owned(), keys)))
}

/// Bytes that nobody can guess.
fn random() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let filled = filled.context("the kernel gives no random numbers")?;
    ensure!(filled == bytes.len(), "the kernel gives too few random numbers; try again");
    Ok(bytes)
}

/// Has `fill` make a folder beside `path`, and puts it there when it is whole. It goes away by itself otherwise.
fn build(parent: &Path, path: &Path, fill: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let owner_only = fs::Permissions::from_mode(0o700);
    let building =
        tempfile::Builder::new().prefix(".fleasefs-new-").permissions(owner_only).tempdir_in(parent);
    let building = building.with_context(|| format!("cannot make a folder in {}", parent.display()))?;
    fill(building.path())?;
    fs::rename(building.path(), path)
        .with_context(|| format!("cannot put the folder at {}", path.display()))?;
    // It is at its place, and no longer where it would be cleaned up.
    let _ = building.keep();
    Ok(())
}

/// The parent and the path itself, if something can be put there.
fn place(path: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let named = || format!("{} cannot be made; name a folder in one that exists", path.display());
    let name = path.file_name().with_context(named)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = fs::canonicalize(parent).with_context(named)?;
    let path = parent.join(name);
    match fs::read_dir(&path) {
        Ok(mut entries) => ensure!(
            entries.next().is_none(),
            "{} is not empty, and nothing in it was touched; name a new folder, or use `fleasefs cert` for what is \
             there",
            path.display()
        ),
        Err(_) => ensure!(!path.exists(), "{} exists and is no folder; name a new one", path.display()),
    }
    Ok((parent, path))
}

fn map(cluster: ClusterId, plan: &Plan) -> anyhow::Result<ClusterMap> {
    let count = plan.addresses.len();
    let replicas = match plan.replicas {
        Some(replicas) => {
            ensure!(
                usize::from(replicas) <= count,
                "{replicas} replicas need as many daemons, and --osds lists {count}"
            );
            replicas
        }
        None => u8::try_from(count).unwrap_or(REPLICAS_DEFAULT).min(REPLICAS_DEFAULT),
    };
    check_families(&plan.addresses)?;
    let osds = (1..).zip(&plan.addresses);
    let osds = osds.map(|(id, address)| Osd { id: NodeId(id), address: address.clone() }).collect();
    let map = ClusterMap::new(cluster, 1, replicas, plan.settings.clone(), osds);
    let map = map.and_then(|map| map.check_clocks().map(|()| map));
    map.context("this makes no cluster")
}

/// A daemon listens and calls with one socket, which reaches addresses of its own kind.
fn check_families(addresses: &[String]) -> anyhow::Result<()> {
    let literals = || addresses.iter().filter_map(|address| address.parse::<SocketAddr>().ok());
    let (v4, v6) = (literals().find(SocketAddr::is_ipv4), literals().find(SocketAddr::is_ipv6));
    if let (Some(v4), Some(v6)) = (v4, v6) {
        bail!(
            "{v4} is an IPv4 and {v6} an IPv6 address, and daemons there cannot reach each other; use one kind"
        );
    }
    Ok(())
}

/// The folders of a new cluster, each with whom it is for.
fn folders(plan: &Plan) -> Vec<(String, Role)> {
    let name = |text: &str| text.parse::<Name>().expect("a short word");
    let osds = (1..).zip(&plan.addresses).map(|(id, _)| Role::Node(NodeId(id)));
    let others = [Role::Admin(name(ADMIN_NAME)), Role::Client(name(CLIENT_NAME))];
    let clients = plan.clients.iter().cloned().map(Role::Client);
    let mut folders: Vec<(String, Role)> = Vec::new();
    for role in osds.chain(others).chain(clients) {
        if folders.iter().all(|(_, other)| *other != role) {
            folders.push((folder_name(&role), role));
        }
    }
    folders
}

fn folder_name(role: &Role) -> String {
    match role {
        Role::Node(node) | Role::Supervisor(node) => format!("osd-{node}"),
        Role::Client(name) if name.as_str() == CLIENT_NAME => CLIENT_NAME.to_owned(),
        Role::Client(name) => format!("client-{name}"),
        Role::Admin(name) if name.as_str() == ADMIN_NAME => ADMIN_NAME.to_owned(),
        Role::Admin(name) => format!("admin-{name}"),
    }
}

fn client_files(folder: &Path) -> CredentialFiles {
    CredentialFiles {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        authority: folder.join(AUTHORITY_FILE),
    }
}

/// The certificates that the configuration in `folder` names.
fn credentials_in(folder: &Path) -> anyhow::Result<Vec<CredentialFiles>> {
    let osd = folder.join(OSD_FILE);
    if osd.exists() {
        let config = osd::config::Config::load(&osd)?;
        return Ok(vec![config.credentials, config.supervisor]);
    }
    Ok(vec![client::Config::load(&folder.join(client::CONFIG_FILE))?.credentials])
}
