//! A cluster of real daemons in this process, on loopback ports of its own.

use std::fs::{File, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base::{ClusterId, NodeId, Random, Role};
use client::{Client, Config};
use net::credentials::CredentialFiles;
use net::{Authority, Validity};
use node::{CapabilityKey, ClusterMap, KeyEpoch, Osd, Settings};
use osd::daemon::{self, DaemonError, Options};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

const VALIDITY: Validity = Validity { not_before_s: 0, not_after_s: 4_000_000_000 };
/// Any instant while the certificates are valid.
const NOW_S: u64 = 1_800_000_000;

pub(crate) struct Cluster {
    folder: TempDir,
    authority: Authority,
    map: ClusterMap,
    daemons: Vec<Option<Daemon>>,
}

/// A daemon on a thread of its own.
struct Daemon {
    stop: watch::Sender<bool>,
    kill: oneshot::Sender<()>,
    /// How it ended, unless it was killed.
    ended: oneshot::Receiver<Option<Result<(), DaemonError>>>,
}

impl Cluster {
    /// A started cluster of `count` daemons.
    pub(crate) fn start(count: u32, settings: Settings) -> Self {
        Self::start_under("", count, settings)
    }

    /// The same with these rules behind the map.
    pub(crate) fn start_under(exports: &str, count: u32, settings: Settings) -> Self {
        Self::start_with(exports, (count, 3), settings)
    }

    /// The same where each object is at so many daemons.
    pub(crate) fn start_with(exports: &str, (count, replicas): (u32, u8), settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ClusterId([7; 16]);
        let authority = Authority::new(cluster, VALIDITY).unwrap();
        let osds = free_ports(count).into_iter().zip(1..);
        let osds = osds.map(|(port, id)| Osd { id: NodeId(id), address: format!("127.0.0.1:{port}") });
        let map = ClusterMap::new(cluster, 1, replicas, settings, osds.collect()).unwrap();
        let map = ClusterMap::parse(&(map.to_text() + exports)).unwrap();
        let keys = CapabilityKey::new([7; 32]).line(KeyEpoch(1), None);
        for id in 1..=count {
            let home = folder.path().join(format!("osd-{id}"));
            std::fs::create_dir(&home).unwrap();
            std::fs::write(home.join("cluster.toml"), map.to_text()).unwrap();
            std::fs::write(home.join("denied.txt"), "").unwrap();
            std::fs::write(home.join("osd.toml"), format!("node = {id}\nmetrics = \"off\"\n")).unwrap();
            let path = home.join("capability.keys");
            std::fs::write(&path, &keys).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            for (role, name) in
                [(Role::Node(NodeId(id)), "node"), (Role::Supervisor(NodeId(id)), "supervisor")]
            {
                let identity = authority.issue(&role, &[], VALIDITY).unwrap();
                identity.save(&CredentialFiles::in_folder(&home, name)).unwrap();
            }
        }
        let daemons = (0..count).map(|_| None).collect();
        let mut cluster = Self { folder, authority, map, daemons };
        cluster.add_client("client/tester", "client");
        (1..=count).for_each(|id| cluster.start_daemon(id));
        cluster
    }

    /// The map of the cluster.
    pub(crate) const fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Whoever has this role has a folder of this name.
    pub(crate) fn add_client(&self, role: &str, name: &str) -> PathBuf {
        let home = self.folder.path().join(name);
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join("cluster.toml"), self.map().to_text()).unwrap();
        std::fs::write(home.join("client.toml"), "").unwrap();
        let identity = self.authority.issue(&role.parse().unwrap(), &[], VALIDITY).unwrap();
        let files = CredentialFiles {
            certificate: home.join("cert.pem"),
            key: home.join("key.pem"),
            authority: home.join("ca.pem"),
        };
        identity.save(&files).unwrap();
        home
    }

    pub(crate) fn start_daemon(&mut self, id: u32) {
        let path = self.folder.path().join(format!("osd-{id}/osd.toml"));
        let config = osd::config::Config::load(&path).unwrap();
        let (stop, stopping) = watch::channel(false);
        let (kill, killed) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let options = Options { config, now_s: NOW_S, supervised: None };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let end = runtime.block_on(async {
                tokio::select! {
                    end = daemon::run(options, stopping, |_| Ok(())) => Some(end),
                    _ = killed => None,
                }
            });
            drop(runtime);
            // A test that is over does not ask.
            let _ = ending.send(end);
        });
        self.daemons[id as usize - 1] = Some(Daemon { stop, kill, ended });
    }

    /// Stops a daemon cleanly and returns how it ended.
    pub(crate) async fn stop_daemon(&mut self, id: u32) -> Result<(), DaemonError> {
        let daemon = self.daemons[id as usize - 1].take().unwrap();
        daemon.stop.send(true).unwrap();
        daemon.ended.await.unwrap().unwrap()
    }

    /// Takes a daemon away in the middle of what it does.
    pub(crate) async fn kill_daemon(&mut self, id: u32) {
        let daemon = self.daemons[id as usize - 1].take().unwrap();
        daemon.kill.send(()).unwrap();
        daemon.ended.await.unwrap();
    }

    pub(crate) fn config(&self) -> Config {
        Config::find(Some(&self.home_of(""))).unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.config()).await.unwrap()
    }

    /// Another process opens a daemon's data directory.
    pub(crate) fn lock_data(&self, id: u32) -> File {
        let lock = File::open(self.folder.path().join(format!("osd-{id}/data/lock"))).unwrap();
        // Threads of a daemon that has stopped may have it for a moment.
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        lock
    }

    /// A folder of whoever takes part, or of all.
    pub(crate) fn home_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Ports that are free. Not of those that the system hands out by itself: it would give them to others while a daemon
/// that has them is down.
fn free_ports(count: u32) -> Vec<u16> {
    let mut seed = [0; 8];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).unwrap();
    let mut random = Random::new(u64::from_le_bytes(seed));
    let mut any = || UdpSocket::bind(("127.0.0.1", u16::try_from(random.between(20_000, 32_767)).unwrap()));
    // Held until all are found, so that none is found twice.
    let held: Vec<UdpSocket> = (0..count).map(|_| (0..100).find_map(|_| any().ok()).unwrap()).collect();
    held.iter().map(|socket| socket.local_addr().unwrap().port()).collect()
}
