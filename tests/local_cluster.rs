//! Clusters of real processes on this machine: started, found again, killed, and stopped.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Generous: other tests keep the processors busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a cluster in it, which is stopped when the test ends, however it ends.
struct Cluster {
    folder: tempfile::TempDir,
    name: OsString,
}

impl Cluster {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), name: "cluster".into() }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    fn osd(&self, node: u32) -> PathBuf {
        self.dir().join(format!("osd-{node}"))
    }

    fn log(&self, node: u32) -> String {
        fs::read_to_string(self.osd(node).join("log")).unwrap()
    }

    fn run(&self, command: &str) -> Output {
        fleasefs().arg(command).arg(self.dir()).arg("--json").output().unwrap()
    }

    /// Runs `up` or `down`, which must go well, and returns what it prints.
    fn succeed(&self, command: &str) -> Value {
        let output = self.run(command);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn supervisor(&self, node: u32) -> Pid {
        let note = fs::read_to_string(self.osd(node).join("pid")).unwrap();
        pid(note.split(' ').next().unwrap())
    }

    /// The daemon itself, its supervisor's child.
    fn daemon(&self, node: u32) -> Pid {
        let supervisor = self.supervisor(node).as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        pid(children.trim())
    }

    /// The metric `name` of a daemon, once it answers with one.
    fn metric(&self, node: u32, name: &str) -> u64 {
        let config = fs::read_to_string(self.dir().join("cluster.toml")).unwrap();
        let addresses = config.split('"').filter(|text| text.starts_with("127.0.0.1:"));
        let address = addresses.clone().nth(node as usize - 1).unwrap().to_owned();
        eventually(|| {
            let mut stream = TcpStream::connect(&address).ok()?;
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .ok()?;
            let mut page = String::new();
            stream.read_to_string(&mut page).ok()?;
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line?.parse().ok()
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.dir().exists() {
            self.run("down");
        }
    }
}

fn fleasefs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleasefs"))
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

fn is_running(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    // What has ended and was not reaped, because nobody here does that, does not run.
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

/// What `look` finds, as soon as it finds something.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it did not happen");
        sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of `child`, and returns its exit code and what it said on standard error.
fn end_of(mut child: Child) -> (Option<i32>, String) {
    let status = eventually(|| child.try_wait().unwrap());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.code(), said)
}

/// Runs a daemon in the foreground until it ends by itself.
fn run_osd(config: &Path) -> (Option<i32>, String) {
    let mut osd = fleasefs();
    osd.arg("osd").arg("--config").arg(config).stdin(Stdio::null()).stderr(Stdio::piped());
    end_of(osd.spawn().unwrap())
}

#[test]
fn a_cluster_comes_up_once_and_goes_down_once() {
    let cluster = Cluster::new();
    let first = cluster.succeed("up");
    let started = |value: &Value| {
        let daemons = value["daemons"].as_array().unwrap();
        daemons.iter().map(|daemon| daemon["started"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(started(&first), [true; 3]);
    let again = cluster.succeed("up");
    assert_eq!(started(&again), [false; 3]);
    let identity = |value: &Value| (value["cluster"].clone(), value["daemons"][1]["address"].clone());
    assert_eq!(identity(&first), identity(&again));

    let processes = [1, 2, 3].map(|node| (cluster.supervisor(node), cluster.daemon(node)));
    let outcome = |value: &Value| value["daemons"][2]["outcome"].as_str().unwrap().to_owned();
    assert_eq!(outcome(&cluster.succeed("down")), "stopped");
    assert!(processes.iter().all(|(supervisor, daemon)| !is_running(*supervisor) && !is_running(*daemon)));
    assert!(cluster.log(3).contains("the daemon has stopped"), "{}", cluster.log(3));
    assert_eq!(outcome(&cluster.succeed("down")), "not_running");

    let third = cluster.succeed("up");
    assert_eq!((started(&third), identity(&third)), (vec![true; 3], identity(&first)));
    assert_eq!(cluster.metric(2, "fleasefs_incarnation"), 2);
}

#[test]
fn a_broken_configuration_does_not_keep_daemons_running() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    let supervisors = [1, 2, 3].map(|node| cluster.supervisor(node));
    let config = cluster.osd(1).join("osd.toml");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{good}x\n")).unwrap();
    let down = cluster.succeed("down");
    let outcomes: Vec<&Value> =
        down["daemons"].as_array().unwrap().iter().map(|daemon| &daemon["outcome"]).collect();
    assert_eq!(outcomes, ["stopped"; 3]);
    assert!(!supervisors.into_iter().any(is_running));

    let output = cluster.run("up");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nothing was started") && said.contains("osd-1/osd.toml"), "{said}");
    assert_eq!(cluster.succeed("down")["daemons"][1]["outcome"], "not_running");
}

#[test]
fn a_killed_daemon_is_mourned_and_comes_back() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    kill_process(cluster.daemon(1), Signal::KILL).unwrap();
    eventually(|| (cluster.metric(1, "fleasefs_incarnation") == 2).then_some(()));
    assert_eq!(cluster.metric(1, "fleasefs_restarts_total"), 1);
    for peer in [2, 3] {
        eventually(|| cluster.log(peer).contains("reported dead").then_some(()));
    }
    eventually(|| cluster.log(1).contains("every peer knows").then_some(()));
    assert!(cluster.log(1).contains("SIGKILL"), "{}", cluster.log(1));
}

#[test]
fn a_daemon_does_not_outlive_its_supervisor() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    let daemon = cluster.daemon(1);
    kill_process(cluster.supervisor(1), Signal::KILL).unwrap();
    eventually(|| (!is_running(daemon)).then_some(()));
    assert!(cluster.log(1).contains("the supervisor is gone"), "{}", cluster.log(1));
    // Right after, while the daemon may still be stopping, is as good.
    kill_process(cluster.supervisor(2), Signal::KILL).unwrap();
    let again = cluster.succeed("up");
    assert_eq!(again["daemons"][1]["started"], true);
    assert_eq!(cluster.metric(2, "fleasefs_incarnation"), 2);
}

#[test]
fn signals_that_arrive_together_are_one_request_to_stop() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    let supervisors = [1, 2].map(|node| cluster.supervisor(node));
    // A terminal that closes, and what `timeout` does to its child and to its group.
    kill_process(supervisors[0], Signal::HUP).unwrap();
    kill_process(supervisors[1], Signal::INT).unwrap();
    kill_process(supervisors[1], Signal::TERM).unwrap();
    eventually(|| (!supervisors.into_iter().any(is_running)).then_some(()));
    for node in [1, 2] {
        let log = cluster.log(node);
        assert!(log.contains("the daemon has stopped") && !log.contains("asked twice"), "{log}");
    }
}

#[test]
fn a_stranger_with_the_noted_id_is_left_alone() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    cluster.succeed("down");
    let mut stranger = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(cluster.osd(1).join("pid"), format!("{} 1 {boot}", stranger.id())).unwrap();
    assert_eq!(cluster.succeed("down")["daemons"][0]["outcome"], "not_running");
    assert_eq!(cluster.succeed("up")["daemons"][0]["started"], true);
    cluster.succeed("down");
    assert_eq!(stranger.try_wait().unwrap(), None);
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
}

#[test]
fn an_interrupted_up_leaves_nothing_running() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    cluster.succeed("down");
    // With another map the third daemon lets nobody in, so the cluster does not become ready.
    let map = cluster.osd(3).join("cluster.toml");
    let other = fs::read_to_string(&map).unwrap().replace("version = 1", "version = 2");
    fs::write(&map, other).unwrap();
    let up =
        fleasefs().arg("up").arg(cluster.dir()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = |node| {
        let note = fs::read_to_string(cluster.osd(node).join("pid")).ok()?;
        Some(pid(note.split(' ').next()?))
    };
    let supervisors = eventually(|| Some([started(1)?, started(2)?, started(3)?]));
    kill_process(pid(&up.id().to_string()), Signal::INT).unwrap();
    let (code, said) = end_of(up);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("interrupted") && said.contains("stopped again"), "{said}");
    assert!(!supervisors.into_iter().any(is_running));
}

#[test]
fn a_daemon_that_cannot_start_says_why_and_takes_the_others_along() {
    let cluster = Cluster::new();
    let first = cluster.succeed("up");
    cluster.succeed("down");
    let address = first["daemons"][1]["address"].as_str().unwrap();
    let taken = UdpSocket::bind(address).unwrap();
    let output = cluster.run("up");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("UDP port {address} is in use")), "{said}");
    assert!(said.contains("stopped again"), "{said}");
    drop(taken);
    cluster.succeed("up");
}

#[test]
fn a_daemon_whose_page_has_no_port_serves_and_says_so() {
    let cluster = Cluster::new();
    let first = cluster.succeed("up");
    cluster.succeed("down");
    let address = first["daemons"][1]["address"].as_str().unwrap();
    let taken = TcpListener::bind(address).unwrap();
    cluster.succeed("up");
    let status = || {
        let output = fleasefs().arg("status").arg("--cluster").arg(cluster.dir()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let fault = format!("its page and its metrics are not served: cannot listen on TCP {address}");
    eventually(|| status().contains(&fault).then_some(()));
    assert!(cluster.log(2).contains(&format!("cannot listen on TCP {address}")), "{}", cluster.log(2));
    drop(taken);
    assert_eq!(cluster.metric(2, "fleasefs_incarnation"), 2, "it takes the port when that is free");
    eventually(|| status().contains("all is well").then_some(()));
}

#[test]
fn a_cluster_that_is_up_is_well() {
    let cluster = Cluster::new();
    let up = fleasefs().arg("up").arg(cluster.dir()).args(["--osds", "5"]).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let status = fleasefs().arg("status").arg("--cluster").arg(cluster.dir()).output().unwrap();
    let said = String::from_utf8_lossy(&status.stdout);
    assert!(status.status.success() && said.contains("all is well"), "{said}");
}

#[test]
fn a_daemon_that_was_about_to_stop_is_started_again() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    // It is killed by its supervisor after a while, and looks as if it ran until then.
    kill_process(cluster.daemon(2), Signal::STOP).unwrap();
    kill_process(cluster.supervisor(2), Signal::TERM).unwrap();
    let again = cluster.succeed("up");
    assert_eq!(again["daemons"][1]["started"], true);
    assert_eq!(cluster.metric(2, "fleasefs_incarnation"), 2);
}

#[test]
fn a_daemon_that_hangs_is_named_by_up() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    let hung = cluster.daemon(3);
    kill_process(hung, Signal::STOP).unwrap();
    let output = cluster.run("up");
    kill_process(hung, Signal::CONT).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing was started") && said.contains("daemon 3 at 127.0.0.1:"), "{said}");
}

#[test]
fn a_folders_name_may_be_anything() {
    let mut cluster = Cluster::new();
    cluster.name = OsStr::from_bytes(b"it's \xff").to_owned();
    let up = fleasefs().arg("up").arg(cluster.dir()).args(["--osds", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&up.stdout);
    assert!(up.status.success() && said.contains("it'\\''s"), "{said}");
    assert_eq!(cluster.succeed("up")["daemons"][0]["started"], false);
    assert_eq!(cluster.succeed("down")["daemons"][0]["outcome"], "stopped");
}

#[test]
fn strangers_do_not_fill_the_log() {
    const STRANGERS: usize = 300;
    let cluster = Cluster::new();
    let up = cluster.succeed("up");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = || cluster.log(1).matches("a caller was not let in").count();
    for number in 0..STRANGERS {
        // The start of a QUIC handshake that cannot be decrypted, each from another caller.
        let mut packet = vec![0; 1_200];
        packet[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
        packet[6..14].copy_from_slice(&number.to_be_bytes());
        packet[14] = 8;
        packet[24..26].copy_from_slice(&[0x44, 0x80]);
        socket.send_to(&packet, up["daemons"][0]["address"].as_str().unwrap()).unwrap();
    }
    eventually(|| cluster.log(1).contains("more callers were not let in").then_some(()));
    assert!(refused() <= 20, "{} lines", refused());
}

#[test]
fn two_daemons_do_not_share_a_data_directory() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    let (code, said) = run_osd(&cluster.osd(1).join("osd.toml"));
    assert_eq!(code, Some(1), "{said}");
    let holder = cluster.daemon(1).as_raw_nonzero();
    assert!(said.contains(&format!("is in use by process {holder}")), "{said}");
    assert_eq!(cluster.metric(1, "fleasefs_incarnation"), 1, "the other one was not disturbed");
}

#[test]
fn a_data_directory_that_is_not_the_daemons_is_refused_at_once() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    cluster.succeed("down");
    let data = |node| cluster.osd(node).join("data");
    let aside = cluster.folder.path().join("aside");
    fs::rename(data(1), &aside).unwrap();
    fs::rename(data(2), data(1)).unwrap();
    let (code, said) = run_osd(&cluster.osd(1).join("osd.toml"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the data directory belongs to node 2"), "{said}");
    fs::rename(data(1), data(2)).unwrap();

    fs::create_dir(data(1)).unwrap();
    fs::write(data(1).join("thesis.txt"), "years of work").unwrap();
    let (code, said) = run_osd(&cluster.osd(1).join("osd.toml"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("holds `thesis.txt` but no store"), "{said}");
}

#[test]
fn daemons_of_a_cluster_without_keys_start_and_with_bad_keys_do_not() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    assert!(!cluster.log(1).contains("capability.keys"), "{}", cluster.log(1));
    cluster.succeed("down");
    let keys = [1, 2, 3].map(|node| cluster.osd(node).join("capability.keys"));
    for file in &keys {
        fs::remove_file(file).unwrap();
    }
    cluster.succeed("up");
    assert!(cluster.log(2).contains("capability.keys, so no client can open files"), "{}", cluster.log(2));
    cluster.succeed("down");

    fs::write(&keys[0], "1 no-key\n").unwrap();
    fs::set_permissions(&keys[0], fs::Permissions::from_mode(0o600)).unwrap();
    let (code, said) = run_osd(&cluster.osd(1).join("osd.toml"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("osd-1/capability.keys: the key in line 1 is not 64 hexadecimal digits"), "{said}");
}

#[test]
fn emptied_and_restored_data_directories_are_told_so_by_their_peers() {
    let cluster = Cluster::new();
    cluster.succeed("up");
    cluster.succeed("down");
    let data = cluster.osd(1).join("data");
    let old = cluster.folder.path().join("old");
    copy(&data, &old);
    cluster.succeed("up");
    cluster.succeed("down");

    fs::remove_dir_all(&data).unwrap();
    copy(&old, &data);
    // It may answer for a moment, until the first peer has told it; it does not vote yet then.
    cluster.run("up");
    eventually(|| cluster.log(1).contains("or restored from an old copy").then_some(()));
    eventually(|| cluster.log(1).contains("exit status: 78").then_some(()));
    cluster.succeed("down");

    fs::remove_dir_all(&data).unwrap();
    let up =
        fleasefs().arg("up").arg(cluster.dir()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let refused = "directory (at incarnation 1) has no memory of: it was emptied";
    eventually(|| cluster.log(1).contains(refused).then_some(()));
    kill_process(pid(&up.id().to_string()), Signal::INT).unwrap();
    end_of(up);
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
