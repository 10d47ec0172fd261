//! `fleasefs store check` on the data directories of real daemons, and which engine keeps their index.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Something is damaged.
const DAMAGED: i32 = 65;

/// A cluster of three, stopped when the test ends, however it ends.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    fn up(args: &[&str]) -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap() };
        let up = cluster.run("up", args);
        assert!(up.status.success(), "{}", said(&up));
        cluster
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn osd(&self, node: u32) -> PathBuf {
        self.dir().join(format!("osd-{node}"))
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        fleasefs().arg(command).arg(self.dir()).args(args).output().unwrap()
    }

    fn put(&self, name: &str, bytes: usize) {
        let file = self.folder.path().join("file");
        fs::write(&file, content(bytes)).unwrap();
        let put =
            fleasefs().args(["object", "put", name]).arg(file).arg("--cluster").arg(self.dir()).output();
        let put = put.unwrap();
        assert!(put.status.success(), "{}", said(&put));
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let get = fleasefs().args(["object", "get", name, "--cluster"]).arg(self.dir()).output().unwrap();
        assert!(get.status.success(), "{}", said(&get));
        get.stdout
    }

    /// Kills all daemons and their supervisors.
    fn kill_all(&self) {
        let mut all = Vec::new();
        for node in 1..=3 {
            let told = fs::read_to_string(self.osd(node).join("pid")).unwrap();
            let supervisor = told.split_whitespace().next().unwrap();
            let children =
                fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
            all.extend([supervisor].into_iter().chain(children.split_whitespace()).map(pid));
        }
        all.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        all.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
    }

    /// Checks a daemon's directory, in which that changes nothing. The code, and what it prints.
    fn check(&self, node: u32) -> (i32, Value) {
        let before = look(&self.osd(node).join("data"));
        let check = || fleasefs().args(["store", "check", "--json"]).arg(self.osd(node)).output().unwrap();
        let mut checked = check();
        // A process that was killed may take a moment to go.
        while said(&checked).contains("is in use") {
            std::thread::sleep(std::time::Duration::from_millis(20));
            checked = check();
        }
        assert!(look(&self.osd(node).join("data")) == before, "the check has changed something");
        let told = serde_json::from_slice(&checked.stdout);
        (checked.status.code().unwrap(), told.unwrap_or_else(|_| panic!("{}", said(&checked))))
    }

    fn edit(&self, node: u32, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.osd(node).join("data").join(name);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing is left to be done if this fails.
        let _ = self.run("down", &[]);
    }
}

fn fleasefs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.stdin(Stdio::null()).env_remove("FLEASEFS_CLUSTER");
    command
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Bytes in which no piece is like another.
fn content(bytes: usize) -> Vec<u8> {
    let words = (1..).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}

/// What a file holds, and when it was changed.
type Seen = (Vec<u8>, i64, i64, u64);

/// Every file of a directory.
fn look(dir: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::metadata(&path).unwrap();
        if meta.is_dir() {
            seen.extend(look(&path));
        }
        let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        seen.insert(path, (bytes, meta.mtime(), meta.mtime_nsec(), meta.ino()));
    }
    seen
}

#[test]
fn a_store_is_sound_when_its_daemon_was_stopped_and_when_it_was_killed() {
    let cluster = Cluster::up(&[]);
    let refused = fleasefs().args(["store", "check"]).arg(cluster.osd(1)).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("is in use by process"), "{}", said(&refused));
    cluster.put("a", 3_000_000);
    cluster.kill_all();
    for node in 1..=3 {
        let (code, told) = cluster.check(node);
        assert_eq!(
            (code, &told["is_sound"], &told["stopped_cleanly"]),
            (0, &true.into(), &false.into()),
            "{told}"
        );
    }
    assert!(cluster.run("up", &[]).status.success());
    assert!(cluster.get("a") == content(3_000_000));
    let down = cluster.run("down", &[]);
    assert!(down.status.success());
    let (code, told) = cluster.check(1);
    let down = String::from_utf8_lossy(&down.stdout);
    assert_eq!(
        (code, &told["stopped_cleanly"], &told["index"]),
        (0, &true.into(), &"redb".into()),
        "{down}{told}"
    );
}

#[test]
fn damage_is_told_by_the_exit_code_with_its_place_and_its_remedy() {
    let cluster = Cluster::up(&[]);
    cluster.put("a", 300_000);
    assert!(cluster.run("down", &[]).status.success());
    cluster.edit(1, "files/content", |bytes| bytes[100_000] ^= 1);
    let (code, told) = cluster.check(1);
    assert_eq!(code, DAMAGED, "{told}");
    let finding = &told["findings"][0];
    assert_eq!((&finding["code"], &finding["file"]), (&"content".into(), &"files/content".into()), "{told}");
    assert!(finding["object"].is_string() && finding["advice"].is_string(), "{told}");
    let text = fleasefs().args(["store", "check"]).arg(cluster.osd(1).join("data")).output().unwrap();
    assert_eq!(text.status.code(), Some(DAMAGED));
    assert!(String::from_utf8_lossy(&text.stdout).contains("to do: "));
    assert_eq!(cluster.check(2).0, 0);

    cluster.edit(2, "time", |bytes| bytes[40] ^= 1);
    let (code, told) = cluster.check(2);
    assert_eq!((code, &told["findings"][0]["severity"]), (0, &"note".into()), "{told}");
    cluster.edit(2, "starts", |bytes| bytes[40] ^= 1);
    let (code, told) = cluster.check(2);
    assert_eq!((code, &told["findings"][0]["severity"]), (DAMAGED, &"fatal".into()), "{told}");

    for (dir, wanted) in [("nowhere", "nothing is there"), ("cluster", "no store")] {
        let refused =
            fleasefs().args(["store", "check"]).arg(cluster.folder.path().join(dir)).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains(wanted), "{}", said(&refused));
    }
}

/// Supervisors in the foreground, stopped when the test ends.
struct Foreground(Vec<Child>);

impl Drop for Foreground {
    fn drop(&mut self) {
        for osd in &mut self.0 {
            // Nothing is left to be done if this fails.
            let _ = kill_process(Pid::from_child(osd), Signal::TERM);
            let _ = osd.wait();
        }
    }
}

/// Whatever is wrong with a store, its daemon ends and says what to do, and the others have everything.
#[test]
fn a_daemon_with_a_damaged_store_says_what_to_do_and_nothing_is_lost() {
    let cluster = Cluster::up(&[]);
    // One stands as content, and the other in the journal itself.
    cluster.put("long", 300_000);
    cluster.put("short", 900);
    cluster.kill_all();
    assert_eq!(cluster.check(1).0, 0);
    let osd = |node: u32| {
        let mut osd = fleasefs();
        osd.arg("osd").arg("--config").arg(cluster.osd(node).join("osd.toml")).stderr(Stdio::piped());
        osd
    };
    let _others = Foreground([2, 3].map(|node| osd(node).stderr(Stdio::null()).spawn().unwrap()).into());
    let flip = |what: Vec<u8>| {
        move |bytes: &mut Vec<u8>| {
            let at = bytes.windows(what.len()).position(|window| window == what).expect("it is there");
            bytes[at] ^= 1;
        }
    };
    let newer = |bytes: &mut Vec<u8>| {
        bytes.truncate(bytes.len() - 4);
        bytes[8] += 1;
        let sum = crc32c::crc32c(bytes);
        bytes.extend(sum.to_le_bytes());
    };
    type Harm<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
    let harms: [(&str, Harm<'_>, &str); 5] = [
        (
            "files/journal-0",
            Box::new(flip(content(900))),
            "of the journal is damaged or missing; add the node under a new id",
        ),
        (
            "files/content",
            Box::new(flip(content(100))),
            "of the journal is damaged or missing; add the node under a new id",
        ),
        ("files/index.redb", Box::new(|bytes| bytes[4_096..].fill(7)), "the index is damaged"),
        (
            "peers",
            Box::new(|bytes| bytes[33] ^= 1),
            "has a wrong checksum, so this node no longer knows what it promised",
        ),
        ("starts", Box::new(newer), "install the program again that wrote it"),
    ];
    for (name, harm, wanted) in harms {
        let path = cluster.osd(1).join("data").join(name);
        let sound = fs::read(&path).unwrap();
        cluster.edit(1, name, harm);
        let ended = osd(1).output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", said(&ended));
        assert!(said(&ended).contains(wanted), "{name}: {}", said(&ended));
        fs::write(&path, sound).unwrap();
    }
    let (index, aside) =
        (cluster.osd(1).join("data/files/index.redb"), cluster.folder.path().join("index.redb"));
    fs::rename(&index, &aside).unwrap();
    let ended = osd(1).output().unwrap();
    assert!(said(&ended).contains("the index is missing"), "{}", said(&ended));
    fs::rename(&aside, &index).unwrap();
    assert!(cluster.get("long") == content(300_000) && cluster.get("short") == content(900));
    // As it was, it takes part again.
    let _first = Foreground(vec![osd(1).stderr(Stdio::null()).spawn().unwrap()]);
    assert!(cluster.get("long") == content(300_000));
}

/// The engine is chosen when a cluster is made, and does all that the other does.
#[test]
fn the_index_may_be_kept_by_sled() {
    let cluster = Cluster::up(&["--index", "sled"]);
    for name in ["a", "b"] {
        cluster.put(name, 500_000);
    }
    let removed = fleasefs().args(["object", "rm", "b", "--cluster"]).arg(cluster.dir()).output().unwrap();
    assert!(removed.status.success(), "{}", said(&removed));
    cluster.kill_all();
    let (code, told) = cluster.check(1);
    assert_eq!((code, &told["index"]), (0, &"sled".into()), "{told}");
    assert!(cluster.run("up", &[]).status.success());
    assert!(cluster.get("a") == content(500_000));
    assert!(cluster.run("down", &[]).status.success());

    // Now all of it is in the index.
    let (code, told) = cluster.check(2);
    assert_eq!((code, &told["is_sound"]), (0, &true.into()), "{told}");
    assert!(cluster.run("up", &["--index", "sled"]).status.success());
    assert!(cluster.get("a") == content(500_000));
    let get = fleasefs().args(["object", "get", "b", "--cluster"]).arg(cluster.dir()).output().unwrap();
    assert_eq!(get.status.code(), Some(66), "what was removed came back");
    assert!(cluster.run("down", &[]).status.success());
    // Somewhere in between is what was removed.
    cluster.edit(3, "files/content", |bytes| bytes.iter_mut().step_by(4_096).for_each(|byte| *byte ^= 1));
    assert_eq!(cluster.check(3).0, DAMAGED);
}

#[test]
fn an_index_of_the_other_engine_is_not_opened() {
    let cluster = Cluster::up(&[]);
    let other = cluster.run("up", &["--index", "sled"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(said(&other).contains("was made with --index redb"), "{}", said(&other));
    assert!(cluster.run("down", &[]).status.success());
    let config = cluster.osd(1).join("osd.toml");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("#index = \"redb\""), "{text}");
    fs::write(&config, text.replace("#index = \"redb\"", "index = \"sled\"")).unwrap();
    let up = cluster.run("up", &[]);
    assert_eq!(up.status.code(), Some(1));
    let told = "was made with the index by redb, and the configuration says sled";
    assert!(said(&up).contains(told), "{}", said(&up));
    assert!(!cluster.osd(1).join("data/files/index.sled").exists());
}
