//! `fleasefs sim` as people call it.

use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fleasefs")).args(["sim", "lease"]).args(args).output().unwrap()
}

#[test]
fn a_seed_is_replayed_and_summed_up() {
    let output = sim(&["--seed", "3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for expected in ["seed 3 flease", "seed 3 paxoslease", "acquired", "faults:", "violations: 0"] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
}

#[test]
fn json_is_one_object_for_each_run() {
    let output = sim(&["--seed", "3", "--seeds", "2", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let runs: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counted = runs.iter().filter(|run| run["counts"] == true && run["acquired"].as_u64() >= Some(1_000));
    assert_eq!((runs.len(), counted.count()), (4, 4), "{text}");
}

#[test]
fn what_proves_nothing_is_refused() {
    for nothing in [["--seeds", "0"], ["--minutes-real", "0"], ["--hours", "0"], ["--nodes", "2"]] {
        assert_eq!(sim(&nothing).status.code(), Some(2), "{nothing:?}");
    }
}

#[test]
fn a_series_tells_its_seeds() {
    let output = sim(&["--seed", "18446744073709551614", "--seeds", "5", "--algorithm", "flease"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "seeds 18446744073709551614 to 18446744073709551615: 2 runs, 0 failures";
    assert!(output.status.success() && text.contains(expected), "{text}");
}

#[test]
fn a_trace_is_written_and_belongs_to_one_run() {
    let path = format!("{}/sim_command.trace", env!("CARGO_TARGET_TMPDIR"));
    assert_eq!(sim(&["--seed", "3", "--trace", &path]).status.code(), Some(2), "two algorithms, one file");
    assert!(sim(&["--seed", "3", "--algorithm", "flease", "--trace", &path]).status.success());
    let trace = std::fs::read_to_string(&path).unwrap();
    assert!(trace.contains("everything is healed") && trace.contains("Acquired"));
    std::fs::remove_file(path).unwrap();
}

fn cluster(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fleasefs")).args(["sim", "cluster"]).args(args).output().unwrap()
}

#[test]
fn a_seed_of_a_cluster_is_replayed_and_summed_up() {
    let output = cluster(&["--seed", "3", "--seconds", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for expected in ["seed 3 flease", "seed 3 paxoslease", "granted", "faults:", "violations: 0"] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
}

#[test]
fn json_of_clusters_is_one_object_for_each_run() {
    let output = cluster(&["--seed", "3", "--seeds", "2", "--seconds", "5", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let runs: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counted = runs.iter().filter(|run| run["clean"] == true && run["granted"].as_u64() >= Some(30));
    assert_eq!((runs.len(), counted.count()), (4, 4), "{text}");
}

/// What a failing run prints: the violation, what shows it, and the command that shows it again.
fn printed(text: &str) -> (String, Vec<String>, Vec<String>) {
    let violation = text.lines().find(|line| line.starts_with("    at ")).unwrap_or_default().to_owned();
    let shown = text.lines().skip_while(|line| *line != "  what shows it:").skip(1);
    let shown = shown.take_while(|line| line.starts_with("    ")).map(str::to_owned).collect();
    let replay = text.lines().find_map(|line| line.strip_prefix("  replay: ")).unwrap_or_default();
    (violation, shown, replay.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn the_command_that_a_failure_prints_fails_with_the_same() {
    let all = ["--seed", "40", "--seeds", "5", "--seconds", "30", "--break", "earlier-segment-skipped"];
    let first = cluster(&all);
    let text = String::from_utf8(first.stdout).unwrap();
    assert_eq!(first.status.code(), Some(1), "{text}");
    let (violation, shown, replay) = printed(&text);
    assert!(violation.contains("(stores)"), "{text}");
    assert!(shown.iter().any(|fact| fact.contains("over to its disk")), "{text}");
    assert!(shown.iter().any(|fact| fact.contains("is durable, and it is not")), "{text}");
    assert_eq!(replay.first().map(String::as_str), Some("fleasefs"), "{text}");
    let again = Command::new(env!("CARGO_BIN_EXE_fleasefs")).args(&replay[1..]).output().unwrap();
    let text = String::from_utf8(again.stdout).unwrap();
    assert_eq!(again.status.code(), Some(1), "{text}");
    assert_eq!(printed(&text), (violation, shown, replay));
}
