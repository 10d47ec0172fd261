//! `fleasefs lock` and `fleasefs status` on clusters of real processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running cluster of three, stopped when the test ends, however it ends.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap() };
        let up = fleasefs().arg("up").arg(cluster.dir()).output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        cluster
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    /// `fleasefs lock`, to be run by `sh`.
    fn lock(&self, name: &str, options: &[&str], script: &str) -> Command {
        let mut command = fleasefs();
        command.arg("lock").arg(name).arg("--cluster").arg(self.dir()).args(options);
        command.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A command that has the lock until its input ends, which `wait_with_output` would bring about.
    fn holder(&self, name: &str) -> Child {
        // Starts nothing: a shell's child takes SIGINT for its parent's until it has become another program.
        let mut command = self.lock(name, &[], "echo $FLEASEFS_TOKEN; read _ || :");
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut token = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut token).unwrap();
        assert!(token.trim().parse::<u64>().unwrap() > 0);
        child
    }

    fn status(&self) -> (Option<i32>, Value) {
        let output = fleasefs().args(["status", "--json", "--cluster"]).arg(self.dir()).output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }

    /// The first status that is as `wanted`.
    fn status_when(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let (_, status) = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < end, "{status}");
            std::thread::sleep(Duration::from_millis(50));
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

#[test]
fn exit_codes_are_the_commands_own() {
    let cluster = Cluster::start();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9)] {
        let output = cluster.lock("a", &[], script).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{script}: {}", said(&output));
    }
    for (program, code) in
        [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126), ("/", 126)]
    {
        let mut lock = fleasefs();
        lock.arg("lock").arg("a").arg("--cluster").arg(cluster.dir()).args(["--", program]);
        let output = lock.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(&format!("could not start `{program}`: ")), "{}", said(&output));
    }
}

#[test]
fn a_lock_that_somebody_has_is_not_obtained_and_tokens_rise() {
    let cluster = Cluster::start();
    let mut holder = cluster.holder("a");
    for wait in ["0", "0.3"] {
        let output = cluster.lock("a", &["--wait", wait], "exit 0").output().unwrap();
        assert_eq!(output.status.code(), Some(75), "{}", said(&output));
        assert!(said(&output).contains("somebody else has the lock `a`"));
    }
    let waiting = cluster.lock("a", &["--wait", "30"], "echo $FLEASEFS_TOKEN").spawn().unwrap();
    drop(holder.stdin.take());
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let first: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let next = cluster.lock("a", &[], "echo $FLEASEFS_TOKEN").output().unwrap();
    assert!(String::from_utf8_lossy(&next.stdout).trim().parse::<u64>().unwrap() > first);
}

#[test]
fn a_command_whose_lock_is_lost_is_ended() {
    let cluster = Cluster::start();
    let mut holder = cluster.holder("a");
    let _input = holder.stdin.take();
    assert!(fleasefs().arg("down").arg(cluster.dir()).output().unwrap().status.success());
    let output = holder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "SIGTERM reached the command first: {}", said(&output));
    assert!(said(&output).contains("no daemon confirms the lock `a`"), "{}", said(&output));
}

#[test]
fn what_a_script_has_started_ends_with_it_when_its_lock_is_lost() {
    let cluster = Cluster::start();
    // Goes on until the folder is gone, whatever SIGTERM says.
    let inner =
        format!("trap '' TERM; echo $$; while [ -e '{}' ]; do sleep 0.05; done", cluster.dir().display());
    let mut lock = cluster.lock("a", &[], "sh -c \"$INNER\"; exit 0").env("INNER", inner).spawn().unwrap();
    let mut pid = String::new();
    BufReader::with_capacity(1, lock.stdout.as_mut().unwrap()).read_line(&mut pid).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    assert!(fleasefs().arg("down").arg(cluster.dir()).output().unwrap().status.success());
    assert_eq!(lock.wait().unwrap().code(), Some(143));
    assert_ends(pid);
}

#[test]
fn what_has_left_its_script_ends_with_it_and_does_not_stay_as_a_zombie() {
    let cluster = Cluster::start();
    // The inner shells end at once, and leave what they started to whoever takes it in.
    let script = "sh -c 'sleep 0 &'; sh -c 'sleep 100000 >&2 & echo $!'; cat >/dev/null";
    let mut lock = cluster.lock("a", &[], script).stdin(Stdio::piped()).spawn().unwrap();
    let _input = lock.stdin.take();
    let mut pid = String::new();
    BufReader::with_capacity(1, lock.stdout.as_mut().unwrap()).read_line(&mut pid).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while has_zombie(&lock) {
        assert!(Instant::now() < end, "nobody takes note of an end");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&lock), Signal::TERM).unwrap();
    assert_eq!(lock.wait().unwrap().code(), Some(143));
    assert_ends(pid);
}

fn assert_ends(pid: Pid) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        // Whoever took it in may not have reaped it yet.
        if stat.is_empty() || stat.contains(") Z ") {
            break;
        }
        assert!(Instant::now() < end, "it goes on without the lock: {stat}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process that was taken in has ended and nobody has taken note of it.
fn has_zombie(parent: &Child) -> bool {
    let ours = format!(") Z {} ", parent.id());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read_to_string(process.path().join("stat")).ok())
        .any(|stat| stat.contains(&ours))
}

#[test]
fn a_signal_ends_the_command_and_gives_the_lock_back() {
    let cluster = Cluster::start();
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut holder = cluster.holder("a");
        let _input = holder.stdin.take();
        kill_process(Pid::from_child(&holder), signal).unwrap();
        let output = holder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        let next = cluster.lock("a", &["--wait", "0"], "exit 0").output().unwrap();
        assert_eq!(next.status.code(), Some(0), "{}", said(&next));
    }
}

#[test]
fn a_lock_that_nobody_can_grant_is_not_said_to_be_somebody_elses() {
    let cluster = Cluster::start();
    for node in 1..=2 {
        let pid = fs::read_to_string(cluster.dir().join(format!("osd-{node}/pid"))).unwrap();
        let pid = Pid::from_raw(pid.split(' ').next().unwrap().parse().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        while rustix::process::test_kill_process(pid).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    for wait in ["0", "1"] {
        let output = cluster.lock("a", &["--wait", wait], "exit 0").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("no daemon can answer for this lock: "), "{}", said(&output));
    }
}

#[test]
fn status_says_plainly_what_is_wrong() {
    let cluster = Cluster::start();
    let _holder = Killed(cluster.holder("a"));
    let (code, status) = cluster.status();
    assert_eq!((code, &status["healthy"]), (Some(0), &Value::Bool(true)), "{status}");
    let held: u64 = status["daemons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["status"]["locks"]["held"].as_u64().unwrap())
        .sum();
    assert_eq!(held, 1);

    let pid = fs::read_to_string(cluster.dir().join("osd-2/pid")).unwrap();
    let pid = Pid::from_raw(pid.split(' ').next().unwrap().parse().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    while rustix::process::test_kill_process(pid).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, status) = cluster.status();
    assert_eq!((code, &status["healthy"]), (Some(1), &Value::Bool(false)));
    let problems = status["problems"].to_string();
    assert!(problems.contains("daemon 2 at 127.0.0.1:"), "{problems}");
    assert!(problems.contains("has no connection to daemon 2"), "{problems}");
}

#[test]
fn status_follows_what_the_daemons_find() {
    let cluster = Cluster::start();
    let status = cluster.status_when(|status| !status.to_string().contains("\"last_heard_ms\":null"));
    for peer in status["daemons"][0]["status"]["peers"].as_array().unwrap() {
        assert!(peer["last_heard_ms"].as_u64().unwrap() < 60_000, "{peer}");
    }
    let list = cluster.dir().join("osd-3/denied.txt");
    let good = fs::read_to_string(&list).unwrap();
    fs::write(&list, format!("{good}mallory\n")).unwrap();
    let problem = |status: &Value| status["problems"].to_string().contains("its deny list cannot be read");
    let status = cluster.status_when(problem);
    assert!(status["problems"].to_string().contains("daemon 3 at 127.0.0.1:"), "{status}");
    fs::write(&list, good).unwrap();
    cluster.status_when(|status| !problem(status));
}

#[test]
fn a_lock_that_is_taken_over_is_logged_plainly() {
    let cluster = Cluster::start();
    let _holder = Killed(cluster.holder("a"));
    let (_, status) = cluster.status();
    let owner = (0..3).find(|index| status["daemons"][index]["status"]["locks"]["held"] == 1).unwrap();
    let supervisor = fs::read_to_string(cluster.dir().join(format!("osd-{}/pid", owner + 1))).unwrap();
    let supervisor = supervisor.split(' ').next().unwrap();
    let daemon = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    kill_process(Pid::from_raw(daemon.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let log = |node| fs::read_to_string(cluster.dir().join(format!("osd-{node}/log"))).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let line = loop {
        let logs = [1, 2, 3].map(log).concat();
        if let Some(line) = logs.lines().find(|line| line.contains("took a lock over")) {
            break line.to_owned();
        }
        assert!(Instant::now() < end, "{logs}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(line.contains(" holder=c") && line.contains(" token=") && !line.contains("Some("), "{line}");
}

#[test]
fn a_cluster_that_is_not_there_is_named() {
    let nowhere = fleasefs().args(["status"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(said(&nowhere).contains("set FLEASEFS_CLUSTER to it"), "{}", said(&nowhere));
}

/// Safety only: times are for `fleasefs bench lock --check`, run alone.
#[test]
fn locks_survive_what_fails_around_them() {
    let output =
        fleasefs().args(["bench", "lock", "--rounds", "1", "--freeze-s", "2", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = figures.as_array().unwrap();
    assert_eq!(all.len(), 4);
    for one in all {
        assert_eq!((&one["lost"], &one["violations"]), (&Value::from(0), &Value::from(0)), "{one}");
    }
}

#[test]
fn a_killed_benchmark_leaves_no_daemons_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = fleasefs();
    bench.args(["bench", "lock"]).env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = Killed(bench.spawn().unwrap());
    // One that nobody has buried yet has ended, too.
    let runs = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    let started = bench.0.id();
    let children = || {
        let text = fs::read_to_string(format!("/proc/{started}/task/{started}/children")).unwrap();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>()
    };
    while children().len() < 3 {
        assert_eq!(bench.0.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(10));
    }
    let supervisors = children();
    bench.0.kill().unwrap();
    bench.0.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while supervisors.iter().any(|&pid| runs(pid)) {
        assert!(Instant::now() < end, "they still run");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
