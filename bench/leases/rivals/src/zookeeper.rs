//! ZooKeeper: a lease is an ephemeral node, which goes when its session does.
//!
//! All leases of a connection share one session, as a server's leases would. That favours ZooKeeper: a lease of its
//! own life would need a session of its own, which costs it another transaction.

mod jute;
mod session;

use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, ClusterError, MEMBERS, Ports};
use crate::drive::{RequestError, Rival};
use crate::measure::System;
use jute::Lifetime;
use session::Session;

const PARENT: &str = "/leases";

/// Sessions to all servers in turn.
pub(crate) struct ZooKeeper {
    sessions: Vec<Session>,
}

/// What it takes to run ZooKeeper.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Program {
    /// The Java machine
    #[arg(long, default_value = "java")]
    java: PathBuf,
    /// The folder with ZooKeeper's jar and those it needs
    #[arg(long, default_value = "/usr/share/java")]
    jars: PathBuf,
}

impl System for Program {
    const NAME: &'static str = "zookeeper";

    type Client = ZooKeeper;

    fn start(&self, dir: &Path) -> Result<Cluster, ClusterError> {
        start(&self.java, &self.jars, dir)
    }

    async fn version(&self, ports: &[Ports]) -> Result<String, RequestError> {
        version(ports).await
    }

    async fn connect(&self, ports: &[Ports], connections: usize) -> Result<ZooKeeper, RequestError> {
        ZooKeeper::connect(ports, connections).await
    }
}

/// Starts three servers with their data in `dir`, everything else as the example configuration has it. `jars` is the
/// folder with ZooKeeper and what it needs.
fn start(java: &Path, jars: &Path, dir: &Path) -> Result<Cluster, ClusterError> {
    Cluster::start(dir, |member, ports, home| {
        let data = home.join("data");
        fs::create_dir(&data)?;
        fs::write(data.join("myid"), member_id(member))?;
        let config = home.join("zoo.cfg");
        write_config(&config, &data, &ports[member], ports)?;
        let mut command = Command::new(java);
        // The heap is what ZooKeeper's own scripts give it. Java leaves files in /tmp without the second option.
        command.args(["-Xmx1000m", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
        command.arg("-Dzookeeper.admin.enableServer=false");
        command.arg("-cp").arg(jars.join("*"));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        Ok(command)
    })
}

fn write_config(path: &Path, data: &Path, own: &Ports, all: &[Ports]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    writeln!(file, "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0")?;
    writeln!(file, "dataDir={}", data.display())?;
    writeln!(file, "clientPort={}\nclientPortAddress=127.0.0.1", own.client)?;
    for (member, ports) in all.iter().enumerate().take(MEMBERS) {
        let id = member_id(member);
        writeln!(file, "server.{id}=127.0.0.1:{}:{}", ports.peer, ports.election)?;
    }
    Ok(())
}

/// ZooKeeper counts from 1.
fn member_id(member: usize) -> String {
    (member + 1).to_string()
}

impl ZooKeeper {
    /// Connects this many times, to one server after the other, and makes the leases' parent.
    async fn connect(ports: &[Ports], connections: usize) -> Result<Self, RequestError> {
        let mut sessions = Vec::new();
        for connection in 0..connections {
            sessions.push(Session::open(ports[connection % ports.len()].client).await?);
        }
        let zookeeper = Self { sessions };
        if zookeeper.sessions[0].children(PARENT).await?.is_none() {
            zookeeper.sessions[0].create(&[PARENT.to_owned()], Lifetime::Persistent).await?;
        }
        Ok(zookeeper)
    }
}

/// The version of the servers, all of which serve and of which one leads.
async fn version(ports: &[Ports]) -> Result<String, RequestError> {
    let mut version = String::new();
    let mut leaders = 0;
    for server in ports {
        let answer = server_status(server.client).await?;
        let value = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (found, mode) = value("Zookeeper version:").zip(value("Mode:")).ok_or_else(|| {
            RequestError(answer.lines().next().unwrap_or("a server says nothing").to_owned())
        })?;
        leaders += usize::from(mode == "leader");
        version = found.split(['-', ',']).next().unwrap_or(found).to_owned();
    }
    if leaders == 1 { Ok(version) } else { Err(RequestError(format!("{leaders} servers lead"))) }
}

async fn server_status(port: u16) -> Result<String, RequestError> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.take(1 << 16).read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    ask.await.map_err(|error| RequestError(format!("no status of ZooKeeper: {error}")))
}

impl Rival for ZooKeeper {
    fn connections(&self) -> usize {
        self.sessions.len()
    }

    async fn acquire(&self, connection: usize, leases: Range<u64>) -> Result<(), RequestError> {
        let paths: Vec<String> = leases.map(|number| format!("{PARENT}/{number:010}")).collect();
        self.sessions[connection].create(&paths, Lifetime::Ephemeral).await
    }

    async fn held(&self) -> Result<u64, RequestError> {
        // A server that follows may be behind; what this session wrote is in order with what it reads.
        let counts = self.sessions[0].children(PARENT).await?;
        counts.ok_or_else(|| RequestError(format!("{PARENT} is gone")))
    }
}
