//! `fleasefs volume` on a cluster of real processes.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

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
        assert!(up.status.success(), "{up:?}");
    }

    fn down(&self) -> Output {
        fleasefs().arg("down").arg(self.dir()).output().unwrap()
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn volume(&self, args: &[&str]) -> Output {
        fleasefs().arg("volume").args(args).arg("--cluster").arg(self.dir()).output().unwrap()
    }

    fn told(&self, args: &[&str]) -> Value {
        let output = self.volume(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command that fails exits with, and says.
    fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.volume(args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn names(&self) -> Vec<Value> {
        let told = self.told(&["list"]);
        told["volumes"].as_array().unwrap().iter().map(|volume| volume["name"].clone()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.down();
    }
}

fn fleasefs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.stdin(Stdio::null()).env_remove("FLEASEFS_CLUSTER");
    command
}

#[test]
fn volumes_are_there_after_a_restart_and_gone_after_they_were_deleted() {
    let cluster = Cluster::start();
    let none = cluster.volume(&["list"]);
    assert!(String::from_utf8(none.stdout).unwrap().contains("no volumes; create one with"));
    let told = cluster.told(&["create", "home", "--owner", "1000:100"]);
    assert_eq!(told, json!({ "name": "home", "uid": 1_000, "gid": 100 }));
    cluster.told(&["create", "build-7"]);
    let (code, text) = cluster.refused(&["create", "home"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("there is a volume `home` already"), "{text}");
    for name in ["Home", "-x", ""] {
        assert_eq!(cluster.refused(&["create", "--", name]).0, Some(2), "{name:?} is no name");
    }
    assert!(cluster.down().status.success());
    cluster.up();
    assert_eq!(cluster.names(), ["build-7", "home"]);
    let listed = cluster.told(&["list"])["volumes"][1].clone();
    assert_eq!((&listed["is_whole"], &listed["inodes"]), (&json!(true), &json!(1)));
    cluster.told(&["delete", "home"]);
    cluster.told(&["delete", "build-7", "--force"]);
    assert!(cluster.names().is_empty());
    let (code, text) = cluster.refused(&["delete", "home"]);
    assert_eq!(code, Some(66), "{text}");
    assert!(text.contains("there is no volume `home`"), "{text}");
}

/// The map in every folder has this rule behind it from now on.
fn add_rule(cluster: &Cluster, rule: &str) {
    let folders = std::fs::read_dir(cluster.dir()).unwrap().map(|folder| folder.unwrap().path());
    for map in folders.chain([cluster.dir()]).map(|folder| folder.join("cluster.toml")) {
        if let Ok(text) = std::fs::read_to_string(&map) {
            std::fs::write(&map, text + rule).unwrap();
        }
    }
}

#[test]
fn where_there_are_rules_operators_create_volumes_and_clients_see_which_are_theirs() {
    let cluster = Cluster::start();
    assert!(cluster.down().status.success());
    add_rule(&cluster, "\n[[exports]]\nvolume = \"home\"\nclients = [\"*\"]\naccess = \"rw\"\n");
    cluster.up();
    let run = |who: &str, args: &[&str]| {
        let folder = cluster.dir().join(who);
        fleasefs().arg("volume").args(args).arg("--cluster").arg(folder).output().unwrap()
    };
    let refused = |args: &[&str]| {
        let output = run("client", args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused(&["create", "home"]);
    assert!(text.contains("only operators create") && text.contains("admin/NAME"), "{text}");
    for name in ["home", "other"] {
        let created = run("admin", &["create", name]);
        assert!(created.status.success(), "{created:?}");
    }
    let listed: Value = serde_json::from_slice(&run("client", &["list", "--json"]).stdout).unwrap();
    let exported = |at: usize| listed["volumes"][at]["is_exported"].clone();
    assert_eq!((exported(0), exported(1)), (json!(true), json!(false)));
    let text = String::from_utf8(run("client", &["list"]).stdout).unwrap();
    assert!(text.contains("other  not exported to this client"), "{text}");
    let text = refused(&["delete", "home"]);
    assert!(text.contains("only operators"), "{text}");
    let deleted = run("admin", &["delete", "other"]);
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(cluster.names(), ["home"]);
}
