//! Three servers as processes of their own, on loopback ports nobody uses, with data that go when they go.
//!
//! Dropping a [`Cluster`] kills its servers and removes their data, whatever happened. Should this process be killed
//! itself, the kernel kills the servers (`setpriv --pdeathsig`), and only their data stay behind.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// How many servers a rival has.
pub(crate) const MEMBERS: usize = 3;

/// Lines of a server's output that an error shows.
const TAIL_LINES: usize = 8;

/// Why a cluster does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// The place for its data cannot be used.
    #[error("cannot make the servers' directories in {dir}: {source}; name another with --dir")]
    Directory {
        /// Where they were to be.
        dir: PathBuf,
        source: io::Error,
    },
    /// Loopback has no port left.
    #[error("cannot find free ports on 127.0.0.1: {0}")]
    Ports(io::Error),
    /// Nothing can be started. A program that is missing is found by `setpriv`, which ends and says so.
    #[error("cannot start {program} with setpriv, which is part of util-linux: {source}")]
    Start {
        /// What was to be started.
        program: String,
        source: io::Error,
    },
    /// A server ended by itself.
    #[error("server {member} ended with {status}; the last it said:\n{tail}")]
    Ended {
        /// Which one, from 0.
        member: usize,
        status: String,
        tail: String,
    },
    /// The servers run but do not answer.
    #[error("the servers are not ready after {seconds} s: {reason}; the first one last said:\n{tail}")]
    NotReady { seconds: u64, reason: String, tail: String },
}

/// The ports of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) client: u16,
    pub(crate) peer: u16,
    pub(crate) election: u16,
}

/// Running servers.
pub(crate) struct Cluster {
    servers: Vec<Child>,
    ports: Vec<Ports>,
    // After the servers, so that it is removed when they are gone.
    dir: TempDir,
}

impl Cluster {
    /// Makes a directory in `dir` for the servers' data and starts what `command` says for each member, which finds
    /// its own directory made.
    pub(crate) fn start(
        dir: &Path,
        command: impl Fn(usize, &[Ports], &Path) -> io::Result<Command>,
    ) -> Result<Self, ClusterError> {
        let failed = |source| ClusterError::Directory { dir: dir.to_owned(), source };
        let data = tempfile::Builder::new().prefix("rivals-").tempdir_in(dir).map_err(failed)?;
        let ports = free_ports().map_err(ClusterError::Ports)?;
        let mut cluster = Self { servers: Vec::new(), ports, dir: data };
        for member in 0..MEMBERS {
            let home = cluster.home(member);
            fs::create_dir(&home).map_err(failed)?;
            let wanted = command(member, &cluster.ports, &home).map_err(failed)?;
            let output = File::create(home.join("output")).map_err(failed)?;
            let errors = output.try_clone().map_err(failed)?;
            let server = leashed(&wanted).stdout(output).stderr(errors).stdin(Stdio::null()).spawn();
            let program = wanted.get_program().to_string_lossy().into_owned();
            cluster.servers.push(server.map_err(|source| ClusterError::Start { program, source })?);
        }
        Ok(cluster)
    }

    pub(crate) fn ports(&self) -> &[Ports] {
        &self.ports
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Child::id).collect()
    }

    /// Fails if a server has ended.
    pub(crate) fn check(&mut self) -> Result<(), ClusterError> {
        for member in 0..self.servers.len() {
            if let Ok(Some(status)) = self.servers[member].try_wait() {
                return Err(ClusterError::Ended {
                    member,
                    status: status.to_string(),
                    tail: self.tail(member),
                });
            }
        }
        Ok(())
    }

    /// The last lines that a server said.
    pub(crate) fn tail(&self, member: usize) -> String {
        let output = fs::read(self.home(member).join("output")).unwrap_or_default();
        let output = String::from_utf8_lossy(&output).into_owned();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn home(&self, member: usize) -> PathBuf {
        self.dir.path().join(format!("member-{member}"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // It may have ended already, which is what is wanted.
            let _ = server.kill();
        }
        for server in &mut self.servers {
            let _ = server.wait();
        }
    }
}

/// The same command, to be killed by the kernel when this thread ends, and out of reach of a terminal's Ctrl-C.
pub(crate) fn leashed(command: &Command) -> Command {
    use std::os::unix::process::CommandExt;
    let mut leashed = Command::new("setpriv");
    leashed.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    leashed.process_group(0);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => leashed.env(name, value),
            None => leashed.env_remove(name),
        };
    }
    leashed
}

/// Ports for all members. Somebody may take one before its server does; then the server ends and says so.
fn free_ports() -> io::Result<Vec<Ports>> {
    let mut open = Vec::new();
    let mut port = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        // Kept until all are chosen, so that they differ.
        open.push(listener);
        io::Result::Ok(port)
    };
    (0..MEMBERS).map(|_| Ok(Ports { client: port()?, peer: port()?, election: port()? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleepers(script: &'static str) -> Cluster {
        let place = std::env::temp_dir();
        Cluster::start(&place, |_, ports, home| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).arg(ports[0].client.to_string()).arg(home);
            Ok(command)
        })
        .unwrap()
    }

    #[test]
    fn a_dropped_cluster_leaves_neither_processes_nor_data() {
        let cluster = sleepers("exec sleep 600");
        let (pids, dir) = (cluster.pids(), cluster.dir.path().to_owned());
        assert!(dir.join("member-2").is_dir());
        drop(cluster);
        assert!(!dir.exists());
        for pid in pids {
            assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
        }
    }

    #[test]
    fn a_server_that_ends_is_reported_with_its_last_words() {
        let mut cluster = sleepers("echo port $0 is taken; exit 3");
        let error = loop {
            if let Err(error) = cluster.check() {
                break error.to_string();
            }
            std::thread::yield_now();
        };
        assert!(error.contains("exit status: 3") && error.contains("is taken"), "{error}");
    }

    #[test]
    fn a_program_or_a_place_that_is_missing_is_named() {
        let missing = Cluster::start(Path::new("no/such/place"), |_, _, _| Ok(Command::new("true")));
        assert!(missing.err().unwrap().to_string().contains("no/such/place"));
    }

    #[test]
    fn all_ports_differ() {
        let mut ports: Vec<u16> = Vec::new();
        for member in free_ports().unwrap() {
            ports.extend([member.client, member.peer, member.election]);
        }
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), MEMBERS * 3);
    }
}
