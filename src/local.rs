//! A cluster whose daemons all run on this machine, in the background, with everything under one folder.
//!
//! ```text
//! DIR/           as `fleasefs init` makes it
//! DIR/osd-N/pid  which process the supervisor of daemon N is
//! DIR/osd-N/log  what it and the daemon have to say
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ::osd::config::Config;
use ::osd::supervisor::STOP_TIMEOUT;
use anyhow::{Context, bail, ensure};
use base::{NodeId, Random};
use node::ClusterMap;

use crate::background::{Noted, Stopped};

/// Ports for daemons: above those of well-known services, below those that the system hands out by itself.
const PORTS: std::ops::RangeInclusive<u64> = 20_000..=32_767;
/// How many ports to try for one daemon.
const PORT_ATTEMPTS: u32 = 1_000;
/// More than a supervisor needs for killing its daemon and telling the peers.
const STOP_PATIENCE: Duration = STOP_TIMEOUT.saturating_add(Duration::from_secs(5));
/// How much of a log's end is shown when a daemon does not start.
const LOG_END_BYTES: u64 = 2_000;

/// A cluster on this machine.
pub(crate) struct LocalCluster {
    dir: PathBuf,
    map: ClusterMap,
    /// Only one command at a time starts and stops daemons here.
    _lock: File,
}

/// One daemon of it.
#[derive(Clone)]
pub(crate) struct LocalDaemon {
    /// Which.
    pub(crate) node: NodeId,
    folder: PathBuf,
}

impl LocalCluster {
    /// The cluster in the folder `dir`, for this command alone.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let dir =
            fs::canonicalize(dir).with_context(|| format!("there is no cluster at {}", dir.display()))?;
        let file = dir.join("cluster.toml");
        let text = fs::read_to_string(&file).with_context(|| {
            format!("cannot read {}; name a folder that `fleasefs up` made", file.display())
        })?;
        let map = ClusterMap::parse(&text).with_context(|| file.display().to_string())?;
        let file = dir.join("up.lock");
        // What runs on a disk that has become read-only must be stopped, too.
        let lock = OpenOptions::new().create(true).append(true).open(&file).or_else(|_| File::open(&file));
        let lock = lock.with_context(|| format!("cannot write to {}", dir.display()))?;
        lock.lock().with_context(|| format!("cannot lock {}", dir.display()))?;
        Ok(Self { dir, map, _lock: lock })
    }

    /// Its folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its map.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Its daemons.
    pub(crate) fn daemons(&self) -> Vec<LocalDaemon> {
        let daemon = |node| LocalDaemon { node, folder: self.dir.join(format!("osd-{node}")) };
        self.map.osds().map(|osd| daemon(osd.id)).collect()
    }
}

impl LocalDaemon {
    /// Its configuration. Only starting it takes one; its address must be this machine's own.
    pub(crate) fn config(&self) -> anyhow::Result<Config> {
        let (node, config) = (self.node, Config::load(&self.folder.join("osd.toml"))?);
        let mut addresses = config
            .listen
            .to_socket_addrs()
            .with_context(|| format!("{} is no address of this machine", config.listen))?;
        ensure!(
            addresses.all(|address| address.ip().is_loopback()),
            "daemon {node} listens at {}, which others can reach, so it is not for `fleasefs up`; start it with \
             `fleasefs osd --config {}`",
            config.listen,
            config.path.display()
        );
        Ok(config)
    }

    /// Its log.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Its supervisor, if it runs.
    pub(crate) fn running(&self) -> anyhow::Result<Option<Noted>> {
        Noted::find(&self.pid_file())
    }

    /// Starts it in the background. It is not ready when this returns.
    pub(crate) fn start(&self) -> anyhow::Result<(Child, Noted)> {
        let failed = || format!("daemon {} cannot be started", self.node);
        let log = OpenOptions::new().create(true).append(true).open(self.log()).with_context(failed)?;
        let mut child = Command::new("/proc/self/exe")
            .arg0("fleasefs")
            .arg("osd")
            .arg("--config")
            .arg(self.folder.join("osd.toml"))
            .arg("--log-file")
            .arg(self.log())
            // What a terminal sends is for the command in front of it.
            .process_group(0)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(failed)?;
        let noted = Noted::running(child.id()).and_then(|noted| {
            noted.save(&self.pid_file())?;
            Ok(noted)
        });
        match noted {
            Ok(noted) => Ok((child, noted)),
            Err(error) => {
                // A daemon that cannot be found again would run for ever.
                let _ = child.kill().and_then(|()| child.wait());
                let why = self.log_end().unwrap_or_default();
                Err(error).with_context(|| format!("{}\n{why}", failed()))
            }
        }
    }

    /// Stops it, if it runs, and says how that went.
    pub(crate) fn stop(&self) -> anyhow::Result<Option<Stopped>> {
        ensure!(
            self.folder.is_dir(),
            "{} is not here, so nobody knows whether daemon {} runs",
            self.folder.display(),
            self.node
        );
        let Some(noted) = self.running()? else { return Ok(None) };
        let stopped =
            noted.stop(STOP_PATIENCE).with_context(|| format!("daemon {} cannot be stopped", self.node))?;
        if stopped != Stopped::Stuck {
            // A note of a process that is gone does no harm.
            let _ = fs::remove_file(self.pid_file());
        }
        Ok(Some(stopped))
    }

    /// The last thing in its log that needs a hand, if that is near the end.
    pub(crate) fn last_error(&self) -> Option<String> {
        let end = self.log_end().ok()?;
        end.lines().rev().find(|line| line.contains("ERROR")).map(str::to_owned)
    }

    /// The last lines of its log.
    pub(crate) fn log_end(&self) -> io::Result<String> {
        let mut log = File::open(self.log())?;
        let start = log.metadata()?.len().saturating_sub(LOG_END_BYTES);
        log.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        log.take(LOG_END_BYTES).read_to_end(&mut end)?;
        let end = String::from_utf8_lossy(&end).into_owned();
        // The first line is most likely cut.
        let whole = if start > 0 { end.split_once('\n').map_or("", |(_, rest)| rest) } else { &end };
        Ok(whole.trim_end().to_owned())
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }
}

/// Loopback addresses for `count` daemons whose ports are free at present, for UDP and for TCP.
pub(crate) fn free_addresses(count: usize) -> anyhow::Result<Vec<String>> {
    let mut seed = [0; 8];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .context("the kernel gives no random numbers")?;
    let mut random = Random::new(u64::from_le_bytes(seed));
    // Held until all are found, so that none is found twice.
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(free_port(&mut random)?);
    }
    Ok(held.into_iter().map(|(address, _, _)| address.to_string()).collect())
}

fn free_port(random: &mut Random) -> anyhow::Result<(SocketAddr, UdpSocket, TcpListener)> {
    for _ in 0..PORT_ATTEMPTS {
        let port =
            u16::try_from(random.between(*PORTS.start(), *PORTS.end())).context("ports have 16 bits")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if let (Ok(udp), Ok(tcp)) = (UdpSocket::bind(address), TcpListener::bind(address)) {
            return Ok((address, udp, tcp));
        }
    }
    bail!("no free port was found on 127.0.0.1; stop something that uses them, and try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_addresses_are_distinct_and_can_be_bound() {
        let addresses = free_addresses(5).unwrap();
        let sockets: Vec<_> = addresses.iter().map(|address| UdpSocket::bind(address).unwrap()).collect();
        assert_eq!(sockets.len(), 5);
    }
}
