//! What clients get out of the daemons for files: throughput, small writes, and durability, beside what the machine allows.
//!
//! The daemons are processes of their own, and this one is the client. Each part runs in several rounds, and each figure
//! is the median of its rounds.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Config, Object, ObjectError, READ_BYTES_MAX, WRITE_BYTES_MAX};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::daemons::Daemons;
use crate::stats::{Latencies, Round, median, medians, mib_per_second, per_second};

/// How many pieces of a long transfer are under way.
const PIECES_UNDER_WAY: usize = 8;
/// How many small requests are under way.
const DEPTH: u32 = 64;
/// A small write.
const SMALL_BYTES: u64 = 4 << 10;
/// Small writes go round and round in so much of an object.
const SMALL_REGION_BYTES: u64 = 16 << 20;
/// The piece that long transfers repeat.
const PIECE_BYTES: u64 = 1 << 20;
const _: () = assert!(PIECE_BYTES <= WRITE_BYTES_MAX && PIECE_BYTES <= READ_BYTES_MAX);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds of each part.
    pub rounds: NonZeroU32,
    /// How long an object is that is written and read from its beginning to its end.
    pub sequential_bytes: u64,
    /// How long small writes go on in each round.
    pub small: Duration,
    /// How much is written while the daemons' memory is watched, if it is.
    pub memory_bytes: Option<u64>,
}

/// What a small write is followed by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Synced {
    /// Nothing.
    Never,
    /// Nothing, as it is durable when it returns.
    With,
    /// A sync.
    After,
}

/// What came out. `docs/benchmarks.md` says what each figure means.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Rounds that each figure is the median of.
    pub rounds: u32,
    /// One long object, written.
    pub write_mib_s: f64,
    /// Half of its pieces took no longer.
    pub write_p50_us: f64,
    /// 99 of 100 took no longer.
    pub write_p99_us: f64,
    /// The same object, read.
    pub read_mib_s: f64,
    /// Half of its pieces took no longer.
    pub read_p50_us: f64,
    /// 99 of 100 took no longer.
    pub read_p99_us: f64,
    /// Writes of 4 KiB to 64 objects, one to each at a time.
    pub write_4k_iops: f64,
    /// Half of them took no longer.
    pub write_4k_p50_us: f64,
    /// 99 of 100 took no longer.
    pub write_4k_p99_us: f64,
    /// Writes of 4 KiB to one object, 64 at a time.
    pub write_4k_one_iops: f64,
    /// Half of them took no longer.
    pub write_4k_one_p50_us: f64,
    /// 99 of 100 took no longer.
    pub write_4k_one_p99_us: f64,
    /// Writes of 4 KiB that are durable when they return, one at a time.
    pub sync_4k_iops: f64,
    /// Half of them took no longer.
    pub sync_4k_p50_us: f64,
    /// 99 of 100 took no longer.
    pub sync_4k_p99_us: f64,
    /// The same on 64 objects, one on each at a time.
    pub sync_4k_many_iops: f64,
    /// Half of them took no longer.
    pub sync_4k_many_p50_us: f64,
    /// 99 of 100 took no longer.
    pub sync_4k_many_p99_us: f64,
    /// Writes of 4 KiB, and after each a sync, one at a time.
    pub sync_4k_after_iops: f64,
    /// Half of them took no longer.
    pub sync_4k_after_p50_us: f64,
    /// 99 of 100 took no longer.
    pub sync_4k_after_p99_us: f64,
    /// The most memory that one daemon had during a long write, if that was watched.
    pub daemon_memory_max_mib: Option<f64>,
}

impl Figures {
    /// What each line of a table says: what it is, its rate and unit, and the middle and the slowest of its times.
    pub const fn rows(&self) -> [(&'static str, f64, &'static str, [f64; 2]); 7] {
        [
            ("written, 1 MiB at a time", self.write_mib_s, "MiB/s", [self.write_p50_us, self.write_p99_us]),
            ("read, 1 MiB at a time", self.read_mib_s, "MiB/s", [self.read_p50_us, self.read_p99_us]),
            (
                "4 KiB written, 64 objects",
                self.write_4k_iops,
                "/s",
                [self.write_4k_p50_us, self.write_4k_p99_us],
            ),
            (
                "4 KiB written, 64 at once to one",
                self.write_4k_one_iops,
                "/s",
                [self.write_4k_one_p50_us, self.write_4k_one_p99_us],
            ),
            ("4 KiB written durably", self.sync_4k_iops, "/s", [self.sync_4k_p50_us, self.sync_4k_p99_us]),
            (
                "4 KiB written durably, 64 objects",
                self.sync_4k_many_iops,
                "/s",
                [self.sync_4k_many_p50_us, self.sync_4k_many_p99_us],
            ),
            (
                "4 KiB written, and then synced",
                self.sync_4k_after_iops,
                "/s",
                [self.sync_4k_after_p50_us, self.sync_4k_after_p99_us],
            ),
        ]
    }
}

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ObjectLoadError {
    /// No client.
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    /// A request failed.
    #[error("a request failed: {0}")]
    Object(#[from] ObjectError),
    /// What was read is not what was written.
    #[error("byte {0} and those behind it are not what was written")]
    Wrong(u64),
    /// A task panicked: a mistake in this program.
    #[error("a measuring task panicked")]
    Panicked,
    /// Nothing is known of their memory.
    #[error("the memory of the daemons cannot be read")]
    Memory,
}

/// What a task of a part has done.
type Ran = Result<Latencies, ObjectLoadError>;

/// Runs the plan on the daemons of `config`.
pub async fn run(
    plan: &Plan,
    daemons: &Daemons,
    config: &Config,
    mut before: impl FnMut(&str),
) -> Result<Figures, ObjectLoadError> {
    let bench = Bench { client: Client::connect(config).await?, piece: piece(), plan };
    let mut figures = Figures { rounds: plan.rounds.get(), ..Figures::default() };
    bench.warm_up().await?;
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let (mut small, mut small_one) = (Vec::new(), Vec::new());
    let (mut syncs, mut syncs_many, mut syncs_after) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=plan.rounds.get() {
        before(&format!("round {round}: one long object"));
        let object = bench.object(&format!("long-{round}")).await?;
        writes.push(bench.write_all(&object, plan.sequential_bytes).await?);
        reads.push(bench.read_all(&object, plan.sequential_bytes).await?);
        object.remove().await?;
        before(&format!("round {round}: writes of 4 KiB"));
        small.push(bench.small("many", (DEPTH, DEPTH), Synced::Never).await?);
        small_one.push(bench.small("one", (1, DEPTH), Synced::Never).await?);
        before(&format!("round {round}: durable writes of 4 KiB"));
        syncs.push(bench.small("synced", (1, 1), Synced::With).await?);
        syncs_many.push(bench.small("all-synced", (DEPTH, DEPTH), Synced::With).await?);
        syncs_after.push(bench.small("synced-after", (1, 1), Synced::After).await?);
    }
    [figures.write_mib_s, figures.write_p50_us, figures.write_p99_us] = medians(&writes);
    [figures.read_mib_s, figures.read_p50_us, figures.read_p99_us] = medians(&reads);
    [figures.write_4k_iops, figures.write_4k_p50_us, figures.write_4k_p99_us] = medians(&small);
    [figures.write_4k_one_iops, figures.write_4k_one_p50_us, figures.write_4k_one_p99_us] =
        medians(&small_one);
    [figures.sync_4k_iops, figures.sync_4k_p50_us, figures.sync_4k_p99_us] = medians(&syncs);
    [figures.sync_4k_many_iops, figures.sync_4k_many_p50_us, figures.sync_4k_many_p99_us] =
        medians(&syncs_many);
    [figures.sync_4k_after_iops, figures.sync_4k_after_p50_us, figures.sync_4k_after_p99_us] =
        medians(&syncs_after);
    if let Some(bytes) = plan.memory_bytes {
        before("a long write, for the daemons' memory");
        figures.daemon_memory_max_mib = Some(bench.memory(daemons, bytes).await?);
    }
    bench.client.close().await;
    Ok(figures)
}

struct Bench<'a> {
    client: Client,
    piece: Bytes,
    plan: &'a Plan,
}

impl Bench<'_> {
    async fn object(&self, name: &str) -> Result<Object, ObjectLoadError> {
        let object = self.client.object_named(name)?;
        object.create().await?;
        Ok(object)
    }

    /// A first lease takes its time, and is no part of any figure.
    async fn warm_up(&self) -> Result<(), ObjectLoadError> {
        let object = self.object("warm").await?;
        self.write_all(&object, 16 * PIECE_BYTES).await?;
        object.sync().await?;
        Ok(object.remove().await?)
    }

    async fn write_all(&self, object: &Object, bytes: u64) -> Result<Round, ObjectLoadError> {
        self.sequential(bytes, |offset, length| {
            let (object, data) = (object.clone(), self.piece.slice(..index(length)));
            async move { Ok(object.write(offset, data).await.map(drop)?) }
        })
        .await
    }

    async fn read_all(&self, object: &Object, bytes: u64) -> Result<Round, ObjectLoadError> {
        self.sequential(bytes, |offset, length| {
            let (object, expected) = (object.clone(), self.piece.slice(..index(length)));
            async move {
                let data = object.read(offset, length).await?;
                if data == expected { Ok(()) } else { Err(ObjectLoadError::Wrong(offset)) }
            }
        })
        .await
    }

    /// Does something to every piece of an object, in order, some of them at once.
    async fn sequential<F>(&self, bytes: u64, act: impl Fn(u64, u64) -> F) -> Result<Round, ObjectLoadError>
    where
        F: Future<Output = Result<(), ObjectLoadError>> + Send + 'static,
    {
        let (mut latencies, mut tasks) = (Latencies::default(), JoinSet::<Ran>::new());
        let began = Instant::now();
        let mut offset = 0;
        while offset < bytes || !tasks.is_empty() {
            if offset < bytes && tasks.len() < PIECES_UNDER_WAY {
                let length = PIECE_BYTES.min(bytes - offset);
                let act = act(offset, length);
                tasks.spawn(async move {
                    let (began, mut latency) = (Instant::now(), Latencies::default());
                    act.await?;
                    latency.push(began.elapsed());
                    Ok(latency)
                });
                offset += length;
                continue;
            }
            latencies.extend(joined(&mut tasks).await?);
        }
        let per_s = mib_per_second(bytes, began.elapsed());
        Ok(Round::new(per_s, latencies))
    }

    /// Small writes to some objects, so many at once.
    async fn small(
        &self,
        name: &str,
        (count, depth): (u32, u32),
        synced: Synced,
    ) -> Result<Round, ObjectLoadError> {
        let mut objects = Vec::new();
        for number in 0..count {
            let object = self.object(&format!("{name}-{number}")).await?;
            object.write(0, self.piece.slice(..index(SMALL_BYTES))).await?;
            objects.push(Arc::new(object));
        }
        let mut tasks = JoinSet::new();
        let (began, until) = (Instant::now(), self.plan.small);
        for number in 0..depth {
            let object = Arc::clone(&objects[(number % count) as usize]);
            let data = self.piece.slice(..index(SMALL_BYTES));
            let first = u64::from(number / count);
            let stride = u64::from(depth / count);
            tasks.spawn(async move {
                let mut latencies = Latencies::default();
                for turn in 0_u64.. {
                    let at = (first + turn * stride) * SMALL_BYTES % SMALL_REGION_BYTES;
                    let asked = Instant::now();
                    match synced {
                        Synced::Never => _ = object.write(at, data.clone()).await?,
                        Synced::With => _ = object.write_synced(at, data.clone()).await?,
                        Synced::After => {
                            object.write(at, data.clone()).await?;
                            object.sync().await?;
                        }
                    }
                    latencies.push(asked.elapsed());
                    if began.elapsed() >= until {
                        break;
                    }
                }
                Ok(latencies)
            });
        }
        let mut latencies = Latencies::default();
        while !tasks.is_empty() {
            latencies.extend(joined(&mut tasks).await?);
        }
        let per_s = per_second(latencies.count(), began.elapsed());
        for object in objects {
            object.remove().await?;
        }
        Ok(Round::new(per_s, latencies))
    }

    /// The most memory of any daemon while a long object is written, in MiB.
    async fn memory(&self, daemons: &Daemons, bytes: u64) -> Result<f64, ObjectLoadError> {
        daemons.forget_memory_max();
        let object = self.object("long").await?;
        self.write_all(&object, bytes).await?;
        object.sync().await?;
        let memory = daemons.memory_max().ok_or(ObjectLoadError::Memory)?;
        object.remove().await?;
        Ok(median([mib_per_second(memory, Duration::from_secs(1))]))
    }
}

async fn joined(tasks: &mut JoinSet<Ran>) -> Ran {
    match tasks.join_next().await {
        None => Ok(Latencies::default()),
        Some(ran) => ran.map_err(|_| ObjectLoadError::Panicked)?,
    }
}

/// Bytes without a pattern that anybody could make use of.
fn piece() -> Bytes {
    let mut random = base::Random::new(7);
    let words = (0..PIECE_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes());
    words.collect::<Vec<u8>>().into()
}

fn index(length: u64) -> usize {
    usize::try_from(length).expect("a piece fits into memory")
}
