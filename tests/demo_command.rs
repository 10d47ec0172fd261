//! `fleasefs demo`: what it says, and that nothing of it stays behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Where it keeps everything, and nothing else does.
fn demo(folder: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.args(["demo", "--seconds", "4", "--json"]).args(args).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn assert_nothing_stays(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new(), "files stay");
    let here = folder.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(here), "mounts stay: {mounts}");
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // A process may end meanwhile.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains(here), "a process stays: {line}");
    }
}

/// Loses nothing and fails nothing, whatever a busy machine makes of the stalls.
fn assert_goes_well(args: &[&str], over: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), args).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let verdict: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&verdict["errors"], &verdict["bytes_lost"]), (&Value::from(0), &Value::from(0)), "{verdict}");
    assert!(verdict["bytes_checked"].as_u64().unwrap() > 0, "{verdict}");
    assert!(verdict["files_checked"].as_u64().unwrap() > 4, "{verdict}");
    assert_eq!(verdict["over"], over, "{said}");
    let happened = verdict["happened"].as_array().unwrap();
    let mut daemons: Vec<u64> = happened.iter().map(|one| one["daemon"].as_u64().unwrap()).collect();
    daemons.sort_unstable();
    assert_eq!(daemons, [1, 2, 3], "{verdict}");
    let events: Vec<&str> = happened.iter().map(|one| one["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["crash", "freeze", "drain"]);
    for one in happened {
        assert!(one["writer_stall_ms"].as_f64().unwrap() > 0.0, "nobody wrote anything: {one}");
        assert!(one["reader_stall_ms"].as_f64().unwrap() > 0.0, "nobody read anything: {one}");
    }
    // Nobody is told before its lease has run out that a daemon is frozen.
    assert!(happened[1]["writer_stall_ms"].as_f64().unwrap() > 150.0, "nothing was frozen: {verdict}");
    assert_eq!(output.status.code(), Some(if verdict["ok"] == true { 0 } else { 1 }), "{verdict}");
    // No terminal: plain lines.
    assert!(said.contains("is killed (SIGKILL)") && !said.contains('\x1b'), "{said}");
    assert_nothing_stays(folder.path());
}

#[test]
fn the_demonstration_loses_nothing_and_leaves_nothing() {
    let over = if fs::exists("/dev/fuse").unwrap() { "mount" } else { "library" };
    assert_goes_well(&[], over);
}

#[test]
fn where_nothing_is_mounted_it_runs_over_the_client_library() {
    assert_goes_well(&["--library"], "library");
}

#[test]
fn interrupted_while_a_daemon_is_frozen_it_takes_everything_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &[]);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("is frozen") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before anything was frozen");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("interrupted"), "{rest}");
    assert_nothing_stays(folder.path());
}
