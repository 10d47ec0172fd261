//! Daemons that are killed again and again while objects are written, synced and read: one, two, all three at once. Every
//! acknowledged byte is there afterwards, and every store is sound.
//!
//! A few rounds run with the other tests. `FLEASEFS_ROUNDS` is how many, and `FLEASEFS_SEED` what they are drawn from:
//!
//! ```sh
//! FLEASEFS_ROUNDS=100 cargo test --test kill_loops -- --nocapture
//! ```
#![expect(clippy::print_stdout, reason = "how long it took to serve again is a result")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Random;
use bytes::Bytes;
use client::{Client, Config, Object, ObjectError};
use osd::supervisor::GOOD_RUN;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio::time::sleep;

const DAEMONS: u32 = 3;
const OBJECTS: u64 = 12;
const BLOCKS: u64 = 24;
/// Chunks and content are cut at 64 KiB, so blocks lie across that.
const BLOCK_BYTES: usize = 20_000;
const ROUNDS: u64 = 5;
/// Far above the bar of 4 s, because other tests keep the processors busy.
const SERVING_AFTER_MAX: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster of three, stopped when the test ends, however it ends.
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

    /// The process of a daemon, if it runs at the moment.
    fn daemon(&self, node: u32) -> Option<Pid> {
        let told = fs::read_to_string(self.dir().join(format!("osd-{node}/pid"))).unwrap();
        let supervisor = told.split_whitespace().next().unwrap();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        Pid::from_raw(children.split_whitespace().next()?.parse().unwrap())
    }

    /// Kills daemons at once. Their supervisors start them again.
    async fn kill(&self, nodes: &[u32]) {
        let mut pids = Vec::new();
        for node in nodes {
            pids.push(loop {
                match self.daemon(*node) {
                    Some(pid) => break pid,
                    // Its supervisor waits before it starts it once more.
                    None => sleep(Duration::from_millis(10)).await,
                }
            });
        }
        // Frozen first, so that none sees another one die.
        pids.iter().for_each(|pid| _ = kill_process(*pid, Signal::STOP));
        pids.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
    }

    async fn connect(&self) -> Client {
        Client::connect(&Config::find(Some(&self.dir())).unwrap()).await.unwrap()
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

/// What is known of a block.
#[derive(Clone, Copy, Default)]
struct Block {
    /// The version that was acknowledged last; 0 if none was.
    acknowledged: u64,
    /// The last one of which nobody has said what came of it.
    unknown: Option<u64>,
}

/// What is known of an object.
struct Written {
    object: Object,
    number: u64,
    blocks: Vec<Block>,
    syncs: u64,
}

/// What stands in a block, which no other block and no other version has.
fn content(object: u64, block: u64, version: u64) -> Bytes {
    let mut random = Random::new(object << 40 ^ block << 32 ^ version);
    std::iter::repeat_with(|| random.next_u64().to_le_bytes()).flatten().take(BLOCK_BYTES).collect()
}

impl Written {
    async fn new(client: &Client, number: u64) -> Self {
        let object = client.object_named(&format!("object {number}")).unwrap().with_patience(PATIENCE);
        object.create().await.unwrap();
        Self { object, number, blocks: vec![Block::default(); usize::try_from(BLOCKS).unwrap()], syncs: 0 }
    }

    /// Writes, reads and syncs until it is told to end.
    async fn work(mut self, mut random: Random, ends: Arc<AtomicBool>, acknowledged: Arc<AtomicU64>) -> Self {
        while !ends.load(Ordering::Relaxed) {
            let at = random.below(BLOCKS);
            let block = self.blocks[usize::try_from(at).unwrap()];
            let version = block.unknown.unwrap_or(0).max(block.acknowledged) + 1;
            let data = content(self.number, at, version);
            let block = match self.object.write(at * BLOCK_BYTES as u64, data).await {
                Ok(_) => Block { acknowledged: version, unknown: None },
                Err(ObjectError::Unanswered { .. }) => Block { unknown: Some(version), ..block },
                Err(error) => panic!("object {}: {error}", self.number),
            };
            self.blocks[usize::try_from(at).unwrap()] = block;
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if random.chance(1, 5) {
                self.check(random.below(BLOCKS)).await;
            }
            if random.chance(1, 10) {
                // Of what was only written a process that dies loses nothing.
                self.object.sync().await.unwrap();
                self.syncs += 1;
            }
        }
        self
    }

    async fn check(&self, at: u64) {
        let Block { acknowledged, unknown } = self.blocks[usize::try_from(at).unwrap()];
        let read = self.object.read(at * BLOCK_BYTES as u64, BLOCK_BYTES as u64).await;
        let read = read.unwrap_or_else(|error| panic!("object {} at {at}: {error}", self.number));
        let mut read = read.to_vec();
        read.resize(BLOCK_BYTES, 0);
        let never = vec![0; BLOCK_BYTES];
        let is_first = acknowledged == 0 && read == never;
        let is_known = is_first || read == content(self.number, at, acknowledged);
        let is_unknown = unknown.is_some_and(|version| read == content(self.number, at, version));
        assert!(is_known || is_unknown, "object {} lost version {acknowledged} of block {at}", self.number);
    }
}

/// Which daemons are killed in a round.
fn victims(round: u64, random: &mut Random) -> Vec<u32> {
    let first = u32::try_from(random.below(u64::from(DAEMONS))).unwrap();
    let count = [DAEMONS, 1, 2][usize::try_from(round % 3).unwrap()];
    (0..count).map(|next| 1 + (first + next) % DAEMONS).collect()
}

/// How long it takes until something is written and read again.
async fn serving_after(object: &Object, began: Instant, round: u64) -> Duration {
    let data = Bytes::copy_from_slice(&round.to_le_bytes());
    object.write(0, data.clone()).await.unwrap();
    assert_eq!(object.read(0, 8).await.unwrap(), data);
    began.elapsed()
}

async fn run(cluster: &Cluster, rounds: u64, seed: u64) {
    let mut random = Random::new(seed);
    let client = cluster.connect().await;
    let probe = client.object_named("probe").unwrap().with_patience(PATIENCE);
    probe.create().await.unwrap();
    let (ends, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut working = JoinSet::new();
    for number in 0..OBJECTS {
        let written = Written::new(&client, number).await;
        let random = Random::new(random.next_u64());
        working.spawn(written.work(random, Arc::clone(&ends), Arc::clone(&acknowledged)));
    }
    for round in 0..rounds {
        sleep(Duration::from_millis(random.below(700))).await;
        let is_rested = rounds > ROUNDS && round % 6 == 0;
        if is_rested {
            // Who dies all the time is started again later and later, and not any more in the end.
            sleep(Duration::from_micros(GOOD_RUN.as_micros())).await;
        }
        let (nodes, before) = (victims(round, &mut random), acknowledged.load(Ordering::Relaxed));
        cluster.kill(&nodes).await;
        let took = serving_after(&probe, Instant::now(), round).await;
        println!(
            "round {round}: {} killed at once{}, serving again after {} ms",
            nodes.len(),
            if is_rested { " after a rest" } else { "" },
            took.as_millis()
        );
        assert!(took < SERVING_AFTER_MAX, "{took:?}");
        while acknowledged.load(Ordering::Relaxed) == before {
            assert!(working.try_join_next().is_none(), "nobody was told to end");
            sleep(Duration::from_millis(5)).await;
        }
    }
    ends.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    while let Some(done) = working.join_next().await {
        written.push(done.unwrap());
    }
    // The last word of all of them: a start from what is on their disks.
    cluster.kill(&[1, 2, 3]).await;
    let took = serving_after(&probe, Instant::now(), rounds).await;
    println!("all killed at rest: serving again after {} ms", took.as_millis());
    for object in &written {
        for at in 0..BLOCKS {
            object.check(at).await;
        }
    }
    let unknown = written.iter().flat_map(|object| &object.blocks).filter(|block| block.unknown.is_some());
    println!(
        "{} writes acknowledged, {} syncs, {} of which nobody knows",
        acknowledged.load(Ordering::Relaxed),
        written.iter().map(|object| object.syncs).sum::<u64>(),
        unknown.count()
    );
    client.close().await;
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn nothing_acknowledged_is_lost_however_many_daemons_are_killed() {
    let cluster = Cluster::start();
    let seed = number_from("FLEASEFS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("FLEASEFS_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(run(&cluster, number_from("FLEASEFS_ROUNDS").unwrap_or(ROUNDS), seed));
    let down = fleasefs().arg("down").arg(cluster.dir()).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    for node in 1..=DAEMONS {
        let checked = fleasefs()
            .args(["store", "check"])
            .arg(cluster.dir().join(format!("osd-{node}")))
            .output()
            .unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}
