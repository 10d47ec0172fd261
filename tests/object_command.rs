//! `fleasefs object` on clusters of real processes: what was put is there, byte for byte, whoever has died meanwhile.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nothing, one byte, and some pieces with a rest.
const SIZES: [usize; 3] = [0, 1, (3 << 20) + 5];

/// A running cluster of three, stopped when the test ends, however it ends.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap() };
        cluster.up();
        cluster
    }

    fn up(&self) {
        let up = fleasefs().arg("up").arg(self.dir()).output().unwrap();
        assert!(up.status.success(), "{}", said(&up));
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn object(&self, args: &[&str]) -> Output {
        let mut command = fleasefs();
        command.arg("object").args(args).arg("--cluster").arg(self.dir());
        command.output().unwrap()
    }

    fn put(&self, name: &str, content: &[u8]) {
        let file = self.folder.path().join(format!("{name}.in"));
        fs::write(&file, content).unwrap();
        let put = self.object(&["put", name, file.to_str().unwrap()]);
        assert!(put.status.success(), "{}", said(&put));
    }

    fn check(&self, name: &str, content: &[u8]) {
        let get = self.object(&["get", name]);
        assert!(get.status.success(), "{name}: {}", said(&get));
        assert!(get.stdout == content, "{name} has {} bytes, not its {}", get.stdout.len(), content.len());
        let stat = self.object(&["stat", name, "--json"]);
        let told: Value = serde_json::from_slice(&stat.stdout).unwrap();
        assert_eq!(told["size_bytes"], content.len(), "{told}");
    }

    fn check_all(&self) {
        for size in SIZES {
            self.check(&size.to_string(), &content(size));
        }
    }

    /// The processes of a daemon and its supervisor.
    fn pids(&self, node: u32) -> Vec<Pid> {
        let file = self.dir().join(format!("osd-{node}")).join("pid");
        let told = fs::read_to_string(&file).unwrap();
        let supervisor: i32 = told.split_whitespace().next().unwrap().parse().unwrap();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        std::iter::once(supervisor).chain(children).map(|pid| Pid::from_raw(pid).unwrap()).collect()
    }

    /// Kills a daemon; its supervisor starts it again.
    fn kill(&self, node: u32) {
        let daemon = *self.pids(node).last().unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
    }

    /// Kills all daemons and their supervisors.
    fn kill_all(&self) {
        let all: Vec<Pid> = (1..=3).flat_map(|node| self.pids(node)).collect();
        // Frozen first, so that none sees another one die.
        all.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        all.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        let is_gone = |pid: &Pid| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !all.iter().all(is_gone) {
            assert!(Instant::now() < end, "they live on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing is left to be done if this fails.
        let _ = fleasefs().arg("down").arg(self.dir()).output();
    }
}

fn fleasefs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.stdin(Stdio::null()).env_remove("FLEASEFS_CLUSTER");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Bytes in which no piece is like another.
fn content(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut content: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| next()).collect();
    content.truncate(size);
    content
}

#[test]
fn what_was_put_outlives_one_daemon_and_all_of_them() {
    let cluster = Cluster::start();
    for size in SIZES {
        cluster.put(&size.to_string(), &content(size));
    }
    cluster.check_all();
    for node in 1..=3 {
        cluster.kill(node);
        cluster.check_all();
    }
    cluster.kill_all();
    cluster.up();
    cluster.check_all();
}

#[test]
fn what_is_put_takes_the_place_of_what_was_there() {
    let cluster = Cluster::start();
    cluster.put("a", &content(200_000));
    cluster.put("a", &content(77));
    cluster.check("a", &content(77));
}

#[test]
fn what_was_removed_is_gone_until_it_is_put_again() {
    let cluster = Cluster::start();
    for args in [&["get", "a"][..], &["stat", "a"], &["rm", "a"]] {
        let output = cluster.object(args);
        assert_eq!(output.status.code(), Some(66), "{args:?}: {}", said(&output));
    }
    cluster.put("a", &content(200_000));
    assert_eq!(cluster.object(&["rm", "a"]).status.code(), Some(0));
    for args in [&["get", "a"][..], &["stat", "a"], &["rm", "a"]] {
        let output = cluster.object(args);
        assert_eq!(output.status.code(), Some(66), "{args:?}: {}", said(&output));
        assert!(said(&output).contains("there is no such object"), "{}", said(&output));
    }
    cluster.kill_all();
    cluster.up();
    assert_eq!(cluster.object(&["stat", "a"]).status.code(), Some(66), "it came back");
    cluster.put("a", &content(5));
    cluster.check("a", &content(5));
}

#[test]
fn files_are_written_as_a_whole_and_only_when_asked() {
    let cluster = Cluster::start();
    cluster.put("a", &content(100_000));
    let file = cluster.folder.path().join("out");
    let get = cluster.object(&["get", "a", file.to_str().unwrap(), "--json"]);
    assert!(get.status.success(), "{}", said(&get));
    assert_eq!(serde_json::from_slice::<Value>(&get.stdout).unwrap()["size_bytes"], 100_000);
    assert!(fs::read(&file).unwrap() == content(100_000));
    assert_eq!(cluster.object(&["get", "b", file.to_str().unwrap()]).status.code(), Some(66));
    assert!(fs::read(&file).unwrap() == content(100_000), "what is not there replaces nothing");
    let get = cluster.object(&["get", "a", "-", "--json"]);
    assert_eq!(get.status.code(), Some(1), "content and figures do not share an output");
}
