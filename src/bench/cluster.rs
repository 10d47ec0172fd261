//! A cluster of daemons for one measurement: made, started, and taken away again.

use std::io;
use std::net::UdpSocket;
use std::path::Path;

use ::bench::daemons::Daemons;
use anyhow::Context;
use node::Settings;
use tempfile::TempDir;

use crate::cluster_dir;

/// Running daemons and the way to them. The order of the fields is the order in which they go.
pub(super) struct Cluster {
    pub(super) daemons: Daemons,
    pub(super) config: client::Config,
    _folder: TempDir,
}

impl Cluster {
    /// Starts `members` daemons, all of them members of every cell, with their data in a fresh folder below `dir`.
    pub(super) fn start(members: u8, settings: Settings, dir: Option<&Path>) -> anyhow::Result<Self> {
        let parent = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = tempfile::Builder::new().prefix("fleasefs-bench-").tempdir_in(&parent);
        let folder = folder.with_context(|| format!("could not make a folder in {}", parent.display()))?;
        let home = folder.path().join("cluster");
        let plan = cluster_dir::Plan {
            addresses: free_addresses(members.into())?,
            replicas: Some(members),
            settings,
            clients: Vec::new(),
            days: cluster_dir::DAYS_DEFAULT,
        };
        cluster_dir::create(&home, &plan, crate::init::now_s()?)?;
        let program = std::env::current_exe().context("could not find this program")?;
        let daemons =
            Daemons::start(&program, &home, members.into()).context("could not start the daemons")?;
        let config = client::Config::find(Some(&home))?;
        Ok(Self { daemons, config, _folder: folder })
    }
}

/// Loopback addresses that were free just now.
fn free_addresses(count: usize) -> anyhow::Result<Vec<String>> {
    let sockets: io::Result<Vec<UdpSocket>> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let sockets = sockets.context("no free UDP port on 127.0.0.1")?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.to_string())).collect()
}
