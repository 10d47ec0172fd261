//! What clients get out of the daemons for names: how many are created, asked for, listed and removed, one at a time and many at once.
//!
//! The daemons are processes of their own, and this one is the client. Each part runs in several rounds, and each figure
//! is the median of its rounds.

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Config, Volume, VolumeError};
use namespace::{InodeId, Make, Name, Site, Who};
use node::VolumeName;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::daemons::Daemons;
use crate::stats::{Latencies, Round, median, medians, mib_per_second, per_second};

/// How many requests are under way.
const DEPTH: u32 = 64;
/// More than any round gets done.
const FOR_EVER: u64 = u64::MAX;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds of each part.
    pub rounds: NonZeroU32,
    /// How long each part goes on in a round.
    pub small: Duration,
    /// How many entries one directory gets, if that is to be measured.
    pub entries: Option<u64>,
}

/// What came out. `docs/benchmarks.md` says what each figure means.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Rounds that each figure is the median of.
    pub rounds: u32,
    /// Files created, one at a time.
    pub create_per_s: f64,
    /// Half of them took no longer.
    pub create_p50_us: f64,
    /// 99 of 100 took no longer.
    pub create_p99_us: f64,
    /// Files created, 64 at a time.
    pub create_many_per_s: f64,
    /// Half of them took no longer.
    pub create_many_p50_us: f64,
    /// 99 of 100 took no longer.
    pub create_many_p99_us: f64,
    /// Attributes that daemons were asked for, one at a time.
    pub stat_per_s: f64,
    /// Half of them took no longer.
    pub stat_p50_us: f64,
    /// 99 of 100 took no longer.
    pub stat_p99_us: f64,
    /// Attributes that daemons were asked for, 64 at a time.
    pub stat_many_per_s: f64,
    /// Half of them took no longer.
    pub stat_many_p50_us: f64,
    /// 99 of 100 took no longer.
    pub stat_many_p99_us: f64,
    /// Attributes that the client knew, one at a time.
    pub stat_cached_per_s: f64,
    /// Half of them took no longer.
    pub stat_cached_p50_us: f64,
    /// 99 of 100 took no longer.
    pub stat_cached_p99_us: f64,
    /// One directory with many entries, if that was measured.
    #[serde(flatten)]
    pub large: Option<Large>,
}

/// One directory with many entries.
#[derive(Clone, Debug, Serialize)]
pub struct Large {
    /// How many.
    pub entries: u64,
    /// They were created, 64 at a time.
    pub entries_created_per_s: f64,
    /// They were listed, with their attributes.
    pub entries_listed_per_s: f64,
    /// The first half of them was listed like this. As fast as the whole: the time to list is linear.
    pub entries_first_half_listed_per_s: f64,
    /// Each was asked for by its name, 64 at a time.
    pub entries_found_per_s: f64,
    /// They were removed, 64 at a time.
    pub entries_removed_per_s: f64,
    /// The most memory of a daemon meanwhile.
    pub entries_daemon_memory_max_mib: f64,
}

impl Figures {
    /// All of them but the large directory: what was done, how many a second, and the percentiles.
    pub const fn rows(&self) -> [(&'static str, f64, [f64; 2]); 5] {
        [
            ("files created", self.create_per_s, [self.create_p50_us, self.create_p99_us]),
            (
                "files created, 64 at once",
                self.create_many_per_s,
                [self.create_many_p50_us, self.create_many_p99_us],
            ),
            ("attributes", self.stat_per_s, [self.stat_p50_us, self.stat_p99_us]),
            ("attributes, 64 at once", self.stat_many_per_s, [self.stat_many_p50_us, self.stat_many_p99_us]),
            (
                "attributes that were known",
                self.stat_cached_per_s,
                [self.stat_cached_p50_us, self.stat_cached_p99_us],
            ),
        ]
    }
}

impl Large {
    /// What was done, and how many a second.
    pub const fn rows(&self) -> [(&'static str, f64); 5] {
        [
            ("created", self.entries_created_per_s),
            ("listed, the first half", self.entries_first_half_listed_per_s),
            ("listed, all", self.entries_listed_per_s),
            ("found", self.entries_found_per_s),
            ("removed", self.entries_removed_per_s),
        ]
    }
}

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MetaLoadError {
    /// No client.
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    /// A request failed.
    #[error("a request failed: {0}")]
    Volume(#[from] VolumeError),
    /// Names are missing, or there are some twice.
    #[error("a directory with {expected} entries lists {listed}")]
    Listed {
        /// What was put there.
        expected: u64,
        /// What is there.
        listed: u64,
    },
    /// A task panicked: a mistake in this program.
    #[error("a measuring task panicked")]
    Panicked,
    /// Nothing is known of their memory.
    #[error("the memory of the daemons cannot be read")]
    Memory,
}

/// Runs the plan on the daemons of `config`.
pub async fn run(
    plan: &Plan,
    daemons: &Daemons,
    config: &Config,
    mut before: impl FnMut(&str),
) -> Result<Figures, MetaLoadError> {
    let client = Client::connect(config).await?;
    let asking = Client::connect(config).await?.without_cache();
    let name = VolumeName::parse("bench").expect("it is one");
    let volume = Arc::new(client.create_volume(&name, (0, 0)).await?);
    let bench = Bench { volume, plan };
    let asking_bench = Bench { volume: Arc::new(asking.volume(&name).await?), plan };
    let mut figures = Figures { rounds: plan.rounds.get(), ..Figures::default() };
    let (mut creates, mut creates_many) = (Vec::new(), Vec::new());
    let (mut stats, mut stats_many, mut stats_cached) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=plan.rounds.get() {
        before(&format!("round {round}: creating files"));
        creates.push(bench.create(&format!("one-{round}"), 1).await?);
        creates_many.push(bench.create(&format!("many-{round}"), DEPTH).await?);
        before(&format!("round {round}: asking for attributes"));
        stats.push(asking_bench.stat(&format!("asked-one-{round}"), 1).await?);
        stats_many.push(asking_bench.stat(&format!("asked-many-{round}"), DEPTH).await?);
        stats_cached.push(bench.stat(&format!("known-{round}"), 1).await?);
    }
    [figures.create_per_s, figures.create_p50_us, figures.create_p99_us] = medians(&creates);
    [figures.create_many_per_s, figures.create_many_p50_us, figures.create_many_p99_us] =
        medians(&creates_many);
    [figures.stat_per_s, figures.stat_p50_us, figures.stat_p99_us] = medians(&stats);
    [figures.stat_many_per_s, figures.stat_many_p50_us, figures.stat_many_p99_us] = medians(&stats_many);
    [figures.stat_cached_per_s, figures.stat_cached_p50_us, figures.stat_cached_p99_us] =
        medians(&stats_cached);
    if let Some(entries) = plan.entries {
        figures.large = Some(asking_bench.large(daemons, entries, &mut before).await?);
    }
    client.close().await;
    asking.close().await;
    Ok(figures)
}

struct Bench<'a> {
    volume: Arc<Volume>,
    plan: &'a Plan,
}

impl Bench<'_> {
    async fn directory(&self, text: &str) -> Result<InodeId, MetaLoadError> {
        let root = Who::root();
        let made = self.volume.make(&root, (InodeId::ROOT, name(text)), (Make::Directory, 0o755, 0));
        Ok(made.await?.inode)
    }

    /// Files in a directory of their own, so many at once.
    async fn create(&self, text: &str, depth: u32) -> Result<Round, MetaLoadError> {
        let dir = self.directory(text).await?;
        let (latencies, took) = self
            .for_a_while(depth, move |volume, number| async move {
                let file = (dir, name(&format!("f{number}")));
                volume.make(&Who::root(), file, (Make::file(), 0o644, 0)).await.map(drop)
            })
            .await?;
        Ok(Round::new(per_second(latencies.count(), took), latencies))
    }

    /// Attributes of a file by its name in a directory, so many at once.
    async fn stat(&self, text: &str, depth: u32) -> Result<Round, MetaLoadError> {
        let dir = self.directory(text).await?;
        let files = u64::from(DEPTH);
        for number in 0..files {
            let file = (dir, name(&format!("f{number}")));
            self.volume.make(&Who::root(), file, (Make::file(), 0o644, 0)).await?;
        }
        let (latencies, took) = self
            .for_a_while(depth, move |volume, number| async move {
                volume.lookup(&Who::root(), dir, name(&format!("f{}", number % files))).await.map(drop)
            })
            .await?;
        Ok(Round::new(per_second(latencies.count(), took), latencies))
    }

    /// One directory with so many entries.
    async fn large(
        &self,
        daemons: &Daemons,
        entries: u64,
        before: &mut impl FnMut(&str),
    ) -> Result<Large, MetaLoadError> {
        daemons.forget_memory_max();
        let dir = self.directory("large").await?;
        let entry = |number: u64| name(&format!("entry-{number:09}"));
        before("one directory: creating");
        let created = self
            .all(entries, move |volume, number| async move {
                volume.make(&Who::root(), (dir, entry(number)), (Make::file(), 0o644, 0)).await.map(drop)
            })
            .await?;
        before("one directory: listing");
        let first_half = self.list(dir, entries / 2).await?;
        let listed = self.list(dir, entries).await?;
        before("one directory: finding");
        let found = self
            .all(entries, move |volume, number| async move {
                volume.lookup(&Who::root(), dir, entry(number)).await.map(drop)
            })
            .await?;
        before("one directory: removing");
        let removed = self
            .all(entries, move |volume, number| async move {
                volume.unlink(&Who::root(), Site::new(dir, entry(number))).await
            })
            .await?;
        let memory = daemons.memory_max().ok_or(MetaLoadError::Memory)?;
        Ok(Large {
            entries,
            entries_created_per_s: created,
            entries_listed_per_s: listed,
            entries_first_half_listed_per_s: first_half,
            entries_found_per_s: found,
            entries_removed_per_s: removed,
            entries_daemon_memory_max_mib: median([mib_per_second(memory, Duration::from_secs(1))]),
        })
    }

    /// Lists a directory until so many entries were seen, or all. How many that is a second.
    async fn list(&self, dir: InodeId, entries: u64) -> Result<f64, MetaLoadError> {
        let (began, mut listed, mut after) = (Instant::now(), 0, None);
        loop {
            let page = self.volume.list(dir, after.take(), true).await?;
            listed += page.entries.len() as u64;
            after = page.entries.last().map(|entry| entry.name.clone());
            if listed >= entries || page.is_last {
                break;
            }
        }
        if listed < entries {
            return Err(MetaLoadError::Listed { expected: entries, listed });
        }
        Ok(per_second(listed, began.elapsed()))
    }

    /// Does something so many times, and tells how often that is a second.
    async fn all<F>(
        &self,
        count: u64,
        act: impl Fn(Arc<Volume>, u64) -> F + Copy + Send + 'static,
    ) -> Result<f64, MetaLoadError>
    where
        F: Future<Output = Result<(), VolumeError>> + Send,
    {
        let (latencies, took) = self.at_once(DEPTH, (count, None), act).await?;
        Ok(per_second(latencies.count(), took))
    }

    /// Does something over and over for the time of a part.
    async fn for_a_while<F>(
        &self,
        depth: u32,
        act: impl Fn(Arc<Volume>, u64) -> F + Copy + Send + 'static,
    ) -> Result<(Latencies, Duration), MetaLoadError>
    where
        F: Future<Output = Result<(), VolumeError>> + Send,
    {
        self.at_once(depth, (FOR_EVER, Some(self.plan.small)), act).await
    }

    /// Does something with each number in turn, so many at once, up to a number or for a time.
    async fn at_once<F>(
        &self,
        depth: u32,
        (count, until): (u64, Option<Duration>),
        act: impl Fn(Arc<Volume>, u64) -> F + Copy + Send + 'static,
    ) -> Result<(Latencies, Duration), MetaLoadError>
    where
        F: Future<Output = Result<(), VolumeError>> + Send,
    {
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for _ in 0..depth {
            let (volume, next) = (Arc::clone(&self.volume), Arc::clone(&next));
            tasks.spawn(async move {
                let mut latencies = Latencies::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || until.is_some_and(|until| began.elapsed() >= until) {
                        return Ok::<_, VolumeError>(latencies);
                    }
                    let asked = Instant::now();
                    act(Arc::clone(&volume), number).await?;
                    latencies.push(asked.elapsed());
                }
            });
        }
        let mut latencies = Latencies::default();
        while let Some(ran) = tasks.join_next().await {
            latencies.extend(ran.map_err(|_| MetaLoadError::Panicked)??);
        }
        Ok((latencies, began.elapsed()))
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("it is short and has no slash")
}
