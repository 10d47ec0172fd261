//! What an operator does with a cluster of real processes: daemons are drained and restarted while clients go on, and say who leads
//! what and why.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Object};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Generous: other tests keep the processors busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing that is planned may take longer for a client, however busy the machine is: less than the longest lease.
const STALL_MAX: Duration = Duration::from_millis(1_900);
const BLOCK: usize = 4_096;

/// A folder with a cluster of three in it, which is stopped when the test ends, however it ends.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    fn up() -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap() };
        succeeded(&fleasefs().arg("up").arg(cluster.dir()).output().unwrap());
        // Who votes takes leases, and before that nobody is drained.
        eventually(|| {
            let statuses = cluster.statuses();
            statuses.iter().all(|status| status["quarantine_ms"] == 0).then_some(())
        });
        cluster
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    /// A subcommand that finds the cluster by `--cluster`.
    fn run(&self, arguments: &[&str]) -> Output {
        fleasefs().args(arguments).arg("--cluster").arg(self.dir()).output().unwrap()
    }

    fn succeed(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        succeeded(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What the daemons say that answer, in the order of their numbers.
    fn statuses(&self) -> Vec<Value> {
        let output = self.run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let daemons = status["daemons"].as_array().unwrap();
        daemons
            .iter()
            .filter(|daemon| daemon["answers"] == true)
            .map(|daemon| daemon["status"].clone())
            .collect()
    }

    fn incarnations(&self) -> Vec<u64> {
        let statuses = self.statuses();
        statuses.iter().map(|status| status["daemon"]["process"]["incarnation"].as_u64().unwrap()).collect()
    }

    /// Who leads an object.
    fn primary(&self, name: &str) -> u64 {
        eventually(|| {
            let found = self.succeed(&["who", "--object", name]);
            found["parts"][0]["primary"]["process"]["node"].as_u64()
        })
    }

    /// The daemon itself, its supervisor's child.
    fn daemon(&self, node: u64) -> Pid {
        let note = fs::read_to_string(self.dir().join(format!("osd-{node}/pid"))).unwrap();
        let supervisor = note.split(' ').next().unwrap();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }

    /// Ends a daemon as its next start finds it after a loss of power: without its memo.
    fn lose_power(&self, node: u64) {
        let statuses = self.statuses();
        let mut daemons = statuses.iter().map(|status| &status["daemon"]);
        let daemon = daemons.find(|daemon| daemon["process"]["node"] == node).unwrap();
        let memo = format!("fleasefs-{}", daemon["store"].as_str().unwrap());
        fs::remove_file(Path::new("/dev/shm").join(memo)).unwrap();
        kill_process(self.daemon(node), Signal::KILL).unwrap();
    }

    fn supervisor(&self, node: u64) -> Pid {
        let note = fs::read_to_string(self.dir().join(format!("osd-{node}/pid"))).unwrap();
        Pid::from_raw(note.split(' ').next().unwrap().parse().unwrap()).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fleasefs().arg("down").arg(self.dir()).output();
    }
}

fn fleasefs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleasefs"))
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `look` finds, as soon as it finds something.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it did not happen");
        sleep(Duration::from_millis(20));
    }
}

/// A writer and a reader of one object, each of which asks again as soon as it is answered.
struct Load {
    going: Arc<Going>,
    thread: JoinHandle<[Waited; 2]>,
}

/// How far a load is.
#[derive(Default)]
struct Going {
    stop: AtomicBool,
    written: AtomicU64,
    read: AtomicU64,
}

/// How often somebody was answered, and how long that took at most.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    count: u64,
    longest: Duration,
}

impl Load {
    fn on(cluster: &Cluster, name: &'static str) -> Self {
        let (going, dir) = (Arc::<Going>::default(), cluster.dir());
        let worked = going.clone();
        let load = Self { going, thread: std::thread::spawn(move || work(&dir, name, &worked)) };
        load.go_on();
        load
    }

    /// Returns when both were answered a few more times.
    fn go_on(&self) {
        let answered = || [&self.going.written, &self.going.read].map(|count| count.load(Ordering::Relaxed));
        let before = answered();
        eventually(|| {
            assert!(!self.thread.is_finished(), "the load has failed");
            answered().iter().zip(before).all(|(now, before)| *now > before + 20).then_some(())
        });
    }

    /// Ends it. Neither has seen an error; all that was written is there.
    fn end(self, what: &str) {
        self.go_on();
        self.going.stop.store(true, Ordering::Relaxed);
        let waited = self.thread.join().unwrap();
        for one in waited {
            assert!(one.longest < STALL_MAX, "{what}: {waited:?}");
        }
    }
}

fn work(dir: &Path, name: &str, going: &Going) -> [Waited; 2] {
    let config = client::Config::find(Some(dir)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&config).await.unwrap();
        let object = client.object_named(name).unwrap();
        object.create().await.unwrap();
        object.write_synced(0, block(0)).await.unwrap();
        let waited = tokio::join!(write(&object, going), read(&client, name, going));
        client.close().await;
        [waited.0, waited.1]
    })
}

fn block(number: u64) -> Bytes {
    number.to_le_bytes().repeat(BLOCK / 8).into()
}

async fn write(object: &Object, going: &Going) -> Waited {
    let mut waited = Waited::default();
    while !going.stop.load(Ordering::Relaxed) {
        waited.count += 1;
        let began = Instant::now();
        object.write_synced(0, block(waited.count)).await.unwrap();
        waited.longest = waited.longest.max(began.elapsed());
        going.written.store(waited.count, Ordering::Relaxed);
    }
    assert_eq!(object.read(0, BLOCK as u64).await.unwrap(), block(waited.count));
    waited
}

async fn read(client: &Client, name: &str, going: &Going) -> Waited {
    let object = client.object_named(name).unwrap();
    let (mut waited, mut latest) = (Waited::default(), 0);
    while !going.stop.load(Ordering::Relaxed) {
        waited.count += 1;
        let began = Instant::now();
        let found = object.read(0, BLOCK as u64).await.unwrap();
        waited.longest = waited.longest.max(began.elapsed());
        let number = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert!(number >= latest && found == block(number), "{number} after {latest}");
        latest = number;
        going.read.store(waited.count, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    waited
}

#[test]
fn a_drained_daemon_leads_nothing_until_it_is_undrained() {
    let cluster = Cluster::up();
    let load = Load::on(&cluster, "busy");
    let primary = cluster.primary("busy");
    let osd = primary.to_string();
    let drained = cluster.succeed(&["drain", &osd]);
    assert_eq!((drained["is_drained"].clone(), drained["primaries"].clone()), (true.into(), 0.into()));
    load.end("drain");
    assert_ne!(cluster.primary("busy"), primary);
    let drain = |node: u64| cluster.statuses()[usize::try_from(node - 1).unwrap()]["drain"].clone();
    assert_eq!(drain(primary), "drained");

    // It is so over a restart, and nobody else may be drained meanwhile.
    let other = if primary == 1 { 2 } else { 1 };
    let refused = cluster.run(&["drain", &other.to_string()]);
    let said = text(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains(&format!("daemon {primary} takes no leases")),
        "{said}"
    );
    let before = cluster.incarnations();
    kill_process(cluster.daemon(primary), Signal::KILL).unwrap();
    let at = usize::try_from(primary - 1).unwrap();
    eventually(|| {
        let now = cluster.incarnations();
        (now.len() == 3 && now[at] > before[at]).then_some(())
    });
    eventually(|| (drain(primary) == "drained").then_some(()));

    let undrained = cluster.succeed(&["undrain", &osd]);
    assert_eq!(undrained["is_drained"], false);
    assert_eq!(drain(primary), "no");
}

#[test]
fn only_an_operator_drains() {
    let cluster = Cluster::up();
    let client = cluster.dir().join("client");
    for command in ["drain", "undrain"] {
        let refused = fleasefs().args([command, "1", "--cluster"]).arg(&client).output().unwrap();
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("only an operator may order that"), "{said}");
    }
    let unknown = cluster.run(&["drain", "9"]);
    assert!(text(&unknown.stderr).contains("has no daemon 9"), "{}", text(&unknown.stderr));
    assert!(cluster.statuses().iter().all(|status| status["drain"] == "no"));
}

#[test]
fn a_rolling_restart_has_every_daemon_start_anew_while_clients_go_on() {
    let cluster = Cluster::up();
    let load = Load::on(&cluster, "busy");
    let before = cluster.incarnations();
    let output = fleasefs().args(["restart", "--rolling", "--json"]).arg(cluster.dir()).output().unwrap();
    succeeded(&output);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    load.end("rolling restart");
    assert_eq!(told["daemons"].as_array().unwrap().len(), 3);
    let after = cluster.incarnations();
    assert!(before.iter().zip(&after).all(|(before, after)| *after == before + 1), "{before:?} {after:?}");
    assert!(cluster.statuses().iter().all(|status| status["drain"] == "no"));
}

/// Daemons and their supervisors, which go on when the test ends.
struct Frozen(Vec<Pid>);

impl Drop for Frozen {
    fn drop(&mut self) {
        for &process in &self.0 {
            let _ = kill_process(process, Signal::CONT);
        }
    }
}

#[test]
fn what_lacks_a_majority_waits_and_status_says_what_and_why() {
    let cluster = Cluster::up();
    let file = cluster.folder.path().join("file");
    fs::write(&file, "hello").unwrap();
    let put = |name| {
        let mut command = fleasefs();
        command.args(["object", "put", name]).arg(&file).arg("--cluster").arg(cluster.dir());
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    assert!(put("before").wait().unwrap().success());
    let all = [2, 3].into_iter().flat_map(|node| [cluster.supervisor(node), cluster.daemon(node)]);
    let frozen = Frozen(all.collect());
    frozen.0.iter().for_each(|&process| kill_process(process, Signal::STOP).unwrap());
    let told = eventually(|| {
        let output = cluster.run(&["status"]);
        let told = text(&output.stdout) + &text(&output.stderr);
        (!output.status.success() && told.contains("lack a majority")).then_some(told)
    });
    let expected = "that daemons 1, 2, 3 store lack a majority, because daemons 2, 3 cannot be reached";
    assert!(told.contains(expected), "{told}");
    let mut waiting = put("meanwhile");
    sleep(Duration::from_millis(500));
    assert!(waiting.try_wait().unwrap().is_none(), "it should wait");
    drop(frozen);
    assert!(waiting.wait().unwrap().success());
    eventually(|| cluster.run(&["status"]).status.success().then_some(()));
}

/// One of three remembers, one has lost its power, and one is gone: nobody can tell what that one had.
#[test]
fn what_only_a_daemon_had_that_is_gone_is_given_up_by_an_operator() {
    let cluster = Cluster::up();
    let file = cluster.folder.path().join("file");
    fs::write(&file, "kept").unwrap();
    succeeded(&cluster.run(&["object", "put", "kept", file.to_str().unwrap()]));
    assert!(cluster.run(&["accept-loss"]).status.success(), "nothing waits");
    let who = cluster.succeed(&["who", "--object", "kept"]);
    let object = who["parts"][0]["object"].as_str().unwrap();

    let before = cluster.incarnations();
    for process in [cluster.supervisor(3), cluster.daemon(3)] {
        kill_process(process, Signal::KILL).unwrap();
    }
    cluster.lose_power(2);
    eventually(|| (cluster.incarnations().get(1) > before.get(1)).then_some(()));
    let list = || {
        let output = cluster.run(&["accept-loss", "--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = told["waiting"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["object"] == object).map(|one| (one, output.status.code()))
    };
    let (told, code) = eventually(list);
    assert_eq!((told["missing"].to_string(), told["forgot"].to_string()), ("[3]".into(), "[2]".into()));
    assert_eq!((told["what"].clone(), code), ("an object".into(), Some(1)));
    let said = text(&cluster.run(&["status"]).stdout);
    let expected =
        "daemon 3 does not answer and may have changes that nobody else remembers, as daemon 2 has lost";
    assert!(said.contains(expected), "{said}");

    // Nobody does it by mistake, and nobody who may not.
    let refused = cluster.run(&["accept-loss", object]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains(expected) && said.contains("--yes"), "{said}");
    let client = cluster.dir().join("client");
    let refused =
        fleasefs().args(["accept-loss", "--yes", object, "--cluster"]).arg(client).output().unwrap();
    assert!(text(&refused.stderr).contains("only an operator may order that"), "{}", text(&refused.stderr));
    let unknown = cluster.run(&["accept-loss", "--yes", "1:2"]);
    assert!(text(&unknown.stderr).contains("has anything of 1:2"), "{}", text(&unknown.stderr));
    assert!(list().is_some(), "it waits still");

    let given_up = cluster.succeed(&["accept-loss", "--yes", object]);
    let outcome = &given_up["objects"][0];
    assert_eq!((outcome["is_loss_accepted"].clone(), outcome["waits"].clone()), (true.into(), false.into()));
    let got = cluster.run(&["object", "get", "kept"]);
    succeeded(&got);
    assert_eq!(text(&got.stdout), "kept");
    assert!(list().is_none());
    let again = cluster.succeed(&["accept-loss", "--yes", object]);
    assert_eq!(again["objects"][0]["is_loss_accepted"], false, "nothing waits any more");

    // Who was gone comes back, and has what the others have.
    succeeded(&fleasefs().arg("up").arg(cluster.dir()).output().unwrap());
    eventually(|| cluster.run(&["status"]).status.success().then_some(()));
    assert!(cluster.run(&["accept-loss", "--all", "--yes"]).status.success());
}

#[test]
fn a_daemon_that_is_told_to_stop_hands_over_first() {
    let cluster = Cluster::up();
    let load = Load::on(&cluster, "busy");
    let primary = cluster.primary("busy");
    kill_process(cluster.supervisor(primary), Signal::TERM).unwrap();
    eventually(|| (cluster.statuses().len() == 2).then_some(()));
    load.end("SIGTERM");
    let why = cluster.succeed(&["why", "--object", "busy"]);
    let tenures = why["parts"][0]["tenures"].as_array().unwrap();
    let of_primary = tenures.iter().rfind(|tenure| tenure["owner"]["node"] == primary).unwrap();
    assert_eq!(of_primary["end"]["ended"], "handed_over", "{why:#}");
}

#[test]
fn why_tells_of_a_primary_that_died_and_who_of_the_one_since() {
    let cluster = Cluster::up();
    let load = Load::on(&cluster, "busy");
    let primary = cluster.primary("busy");
    kill_process(cluster.daemon(primary), Signal::KILL).unwrap();
    let next = eventually(|| Some(cluster.primary("busy")).filter(|next| *next != primary));
    load.end("kill");
    let why = cluster.succeed(&["why", "--object", "busy"]);
    let tenures = why["parts"][0]["tenures"].as_array().unwrap();
    let owner = |tenure: &Value| tenure["owner"]["node"].as_u64().unwrap();
    let of_dead = tenures.iter().rfind(|tenure| owner(tenure) == primary).unwrap();
    assert_eq!(of_dead["end"]["ended"], "died", "{why:#}");
    let last = tenures.last().unwrap();
    assert_eq!((owner(last), last["end"].clone()), (next, Value::Null), "{why:#}");
    assert!(last["voters"].as_array().unwrap().len() >= 2, "{why:#}");
    assert_eq!(last["previous"], of_dead["lease"]);
    let said = text(&cluster.run(&["why", "--object", "busy"]).stdout);
    assert!(said.contains("its owner died") && said.contains("it goes on"), "{said}");
    let said = text(&cluster.run(&["who", "--object", "busy"]).stdout);
    assert!(said.contains(&format!("primary: daemon {next} ")), "{said}");
}

#[test]
fn who_finds_files_of_volumes_and_says_what_is_not_there() {
    let cluster = Cluster::up();
    succeeded(&cluster.run(&["volume", "create", "home"]));
    let root = cluster.succeed(&["who", "home:/"]);
    assert_eq!(
        (root["inode"]["kind"].clone(), root["parts"][0]["what"].clone()),
        ("directory".into(), "names".into())
    );
    assert!(root["parts"][0]["primary"]["process"]["node"].is_u64(), "{root:#}");
    let missing = cluster.run(&["who", "home:/nothing"]);
    let said = text(&missing.stderr);
    assert!(
        !missing.status.success() && said.contains("`nothing` cannot be looked up in volume home"),
        "{said}"
    );
    let nowhere = text(&cluster.run(&["why", "/nowhere"]).stderr);
    assert!(nowhere.contains("VOLUME:PATH"), "{nowhere}");
}

#[test]
fn top_shows_every_daemon_and_ends_at_a_key() {
    let cluster = Cluster::up();
    let load = Load::on(&cluster, "busy");
    cluster.primary("busy");
    let told = cluster.succeed(&["top", "--interval-ms", "500"]);
    let daemons = told["daemons"].as_array().unwrap();
    let rate = |daemon: &Value| daemon["rates_per_s"]["requests"].as_f64().unwrap();
    assert!(daemons.len() == 3 && daemons.iter().map(rate).sum::<f64>() > 1.0, "{told:#}");
    load.end("top");
    let plain = text(&cluster.run(&["top", "--interval-ms", "100"]).stdout);
    assert!(plain.contains("3 of 3 daemons answer") && !plain.contains('\x1b'), "{plain}");

    // On a terminal it has a screen of its own, and gives it back.
    let command = format!(
        "stty rows 24 cols 100; {} top --interval-ms 100 --cluster {}; echo code $?; stty -a",
        env!("CARGO_BIN_EXE_fleasefs"),
        cluster.dir().display()
    );
    let mut terminal = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("q ends") {
        let mut piece = [0; 4_096];
        let count = screen.read(&mut piece).unwrap();
        assert!(count > 0, "{seen}");
        seen.push_str(&text(&piece[..count]));
    }
    keys.write_all(b"xq").unwrap();
    screen.read_to_string(&mut seen).unwrap();
    terminal.wait().unwrap();
    assert!(
        seen.contains("\x1b[?1049h") && seen.contains("\x1b[?1049l") && seen.contains("q ends"),
        "{seen}"
    );
    assert!(seen.contains("code 0") && seen.contains(" icanon") && !seen.contains("-icanon"), "{seen}");
}
