//! `fleasefs bench file` as a process: what it prints, how it ends, and that nothing of it stays behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const DOCUMENTATION: &str = include_str!("../docs/benchmarks.md");
const PATIENCE: Duration = Duration::from_secs(60);

fn file(dir: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.args(["bench", "file", "--path"]).arg(dir).args(options).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SMALL: [&str; 6] = ["--files", "50", "--size-mib", "3", "--seconds", "1"];

#[test]
fn every_key_is_documented_and_nothing_stays_behind() {
    let dir = tempfile::tempdir().unwrap();
    let output = file(dir.path(), &SMALL).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let figures: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    for (key, figure) in figures {
        assert!(figure.as_f64().unwrap() > 0.0, "{key}");
        assert!(DOCUMENTATION.contains(&format!("`{key}`")), "docs/benchmarks.md does not explain {key}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_table_has_no_colours_and_no_bar_where_nobody_sees_them() {
    let dir = tempfile::tempdir().unwrap();
    let output = file(dir.path(), &SMALL).output().unwrap();
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.contains("small files created") && table.contains("MiB/s"), "{table}");
    assert!(table.lines().skip(1).all(|line| line.matches("µs").count() == 2), "{table}");
    assert!(!table.contains('\x1b'), "{table}");
    assert_eq!(said(&output), "");
}

/// What it says on a terminal: only on standard error, or on both.
fn on_terminal(dir: &Path, redirected: &str, no_color: Option<&str>) -> String {
    let line = format!("\"$PROGRAM\" bench file --path \"$DIR\" {} {redirected}", SMALL.join(" "));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("PROGRAM", env!("CARGO_BIN_EXE_fleasefs")).env("DIR", dir).env("TERM", "xterm");
    command.env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value)));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_terminal_sees_colours_and_a_bar() {
    const GREEN: &str = "\x1b[32m";
    let dir = tempfile::tempdir().unwrap();
    let (bar, heading) = (" % writing a large file", "small files created");
    let both = on_terminal(dir.path(), "", None);
    assert!(both.contains(bar) && both.contains(heading) && both.contains(GREEN), "{both:?}");
    // An empty variable says nothing.
    assert!(on_terminal(dir.path(), "", Some("")).contains(GREEN));
    let plain = on_terminal(dir.path(), "2>/dev/null", Some("1"));
    assert!(plain.contains(heading) && !plain.contains('\x1b'), "{plain:?}");
    let table = on_terminal(dir.path(), "2>/dev/null", None);
    assert!(table.contains(GREEN) && !table.contains(bar), "{table:?}");
    let error = on_terminal(dir.path(), ">\"$DIR/table\"", None);
    let table = fs::read_to_string(dir.path().join("table")).unwrap();
    assert!(error.contains(bar) && !error.contains(heading), "{error:?}");
    assert!(table.contains(heading) && !table.contains('\x1b'), "{table:?}");
    let json = on_terminal(dir.path(), "--json 2>/dev/null", None);
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json:?}");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = file(dir.path(), &["--seconds", "600", "--files", "1000000"]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        // It has begun when something is in its folder.
        while fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .all(|entry| fs::read_dir(entry.path()).map_or(true, |mut inside| inside.next().is_none()))
        {
            assert!(Instant::now() < end && child.try_wait().unwrap().is_none(), "it has not begun");
            thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains("interrupted"), "{}", said(&output));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_cannot_be_measured_is_told() {
    let missing = file(Path::new("/nonexistent"), &[]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        said(&missing).contains("/nonexistent") && said(&missing).contains("--path"),
        "{}",
        said(&missing)
    );
    let refused = file(Path::new("/proc"), &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("could not create the folder /proc/"), "{}", said(&refused));
}
