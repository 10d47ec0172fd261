//! `fleasefs bench floor` as a process: what it prints, how it ends, and that nothing of it stays behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const DOCUMENTATION: &str = include_str!("../docs/benchmarks.md");

/// The command with one round, everything it creates below `dir`.
fn floor(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.args(["bench", "floor", "--json", "--rounds", "1", "--dir"]).arg(dir).env("TMPDIR", dir);
    command
}

fn figures(output: &Output) -> serde_json::Map<String, serde_json::Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn mounted_below(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!("{}/", dir.display()))
}

fn assert_nothing_stayed(dir: &Path) {
    assert!(!mounted_below(dir), "a mount stayed");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "a file or directory stayed");
}

#[test]
fn every_key_is_documented_and_nothing_stays_behind() {
    let dir = tempfile::tempdir().unwrap();
    let figures = figures(&floor(dir.path()).output().unwrap());
    for key in figures.keys() {
        assert!(DOCUMENTATION.contains(&format!("`{key}`")), "docs/benchmarks.md does not explain {key}");
    }
    assert_nothing_stayed(dir.path());
}

/// Whether a mount below `dir` was seen before the command ended.
fn wait_for_mount(command: &mut Child, dir: &Path) -> bool {
    while command.try_wait().unwrap().is_none() {
        if mounted_below(dir) {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn an_interrupted_run_leaves_no_mount() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = floor(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let seen = wait_for_mount(&mut command, dir.path());
    if seen {
        let process = Pid::from_raw(command.id().cast_signed()).unwrap();
        kill_process(process, Signal::TERM).unwrap();
    }
    let output = command.wait_with_output().unwrap();
    if seen {
        assert!(!output.status.success(), "the signal came too late to prove anything");
    } else {
        assert!(figures(&output)["fuse_unavailable"].is_string(), "mounted and gone without being seen");
    }
    assert_nothing_stayed(dir.path());
}

#[test]
fn exit_codes_tell_usage_from_failure() {
    let code = |command: &mut Command| command.output().unwrap().status.code();
    let program = || Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    assert_eq!(code(program().args(["bench", "floor", "--rounds", "0"])), Some(2));
    assert_eq!(code(program().arg("bench")), Some(2));
    assert_eq!(code(program().args(["bench", "floor", "--help"])), Some(0));

    let missing = program().args(["bench", "floor", "--dir", "/nonexistent"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(message.contains("/nonexistent") && message.contains("--dir"), "{message}");
}
