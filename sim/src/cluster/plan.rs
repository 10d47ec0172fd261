//! The plan of a run: everything that a seed decides before anything happens.

use std::sync::Arc;

use base::{ClusterId, NodeId, Random, Span};
use client::core::Rules;
use lease::Config;
use node::{CapabilityKey, CapabilityKeys, ClusterMap, KeyEpoch, LeaseAlgorithm, Osd, Settings, ShardConfig};

use super::real::StorePlan;
use super::trees::TreeHabits;
use crate::FaultKind;
use crate::clock::ClockPlan;
use crate::faults::{FaultPlan, Injected, draw_kinds};
use crate::network::NetworkPlan;
use crate::plan::{Clocks, draw_clocks, draw_u32};

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// The seed.
    pub seed: u64,
    /// How many clients.
    pub clients: u32,
    /// How many users each client has, each with a lock of its own in mind.
    pub users: u32,
    /// How many locks there are.
    pub locks: u32,
    /// What every daemon runs with, the map of the cluster among it.
    pub shard: ShardConfig,
    /// The clocks.
    pub clocks: ClockPlan,
    /// The network.
    pub network: NetworkPlan,
    /// The faults.
    pub faults: FaultPlan,
    /// How likely the death of a daemon is noticed by its supervisor, in percent.
    pub witnessed_percent: u64,
    /// How likely a daemon dies as soon as it has given somebody a lock, in percent.
    pub treacherous_percent: u64,
    /// After this long without a sign of life at most, an end takes its connection for broken.
    pub silence_max: Span,
    /// How long a write of the mark on disk takes at most, unless the disk stalls.
    pub disk_max: Span,
    /// How long a user thinks before it wants a lock.
    pub think: Span,
    /// How long a user keeps a lock at most.
    pub hold_max: Span,
    /// How long the faults go on at least.
    pub duration: Span,
    /// What is done with files.
    pub files: FilePlan,
    /// What is done with volumes.
    pub volumes: VolumePlan,
    /// A file never has fewer members, unless the cluster has: a single one could not tell anybody.
    pub members_min: usize,
    /// How daemons use the production store. None: they have one that is simulated.
    pub store: Option<StorePlan>,
    /// Test only: a sync goes by without what is older than so many records, as if it stood in an earlier segment.
    pub skips_older: Option<u64>,
}

/// What a seed decides about files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePlan {
    /// How many there are.
    pub count: u32,
    /// How many users of files each client has.
    pub writers: u32,
    /// How long such a user thinks before it wants something.
    pub think: Span,
    /// How many of the things that it wants are syncs, in percent.
    pub sync_percent: u64,
    /// How many of the changes are to be durable at once, in percent.
    pub durable_percent: u64,
    /// How many of them it gives up if they take long, in percent.
    pub impatient_percent: u64,
    /// How many of the things that it wants are that a file be gone, in thousand.
    pub remove_permille: u64,
    /// Whether half of the files are written to in large pieces.
    pub is_bulky: bool,
    /// A daemon makes a checkpoint of some file this often.
    pub checkpoint_every: Span,
}

/// What a seed decides about volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumePlan {
    /// How many there are.
    pub count: u32,
    /// How many of the things that users of files want are about volumes, in percent.
    pub percent: u64,
    /// Of so many of their files the content is used, too.
    pub contents: usize,
    /// How they are used.
    pub habits: TreeHabits,
    /// Whether clients keep what they know of them.
    pub caches: bool,
    /// Whether files are lent to clients. They keep what they know then, and contents are used.
    pub lends: bool,
    /// Whether directories are, too, and files created there by clients themselves.
    pub ahead: bool,
    /// By which rules clients' processes go.
    pub rules: Rules,
}

/// Faults that are injected at their own times.
const INJECTED: &[Injected] = &[
    (FaultKind::Crash, 15, 120),
    (FaultKind::CrashAll, 80, 300),
    (FaultKind::Pause, 15, 100),
    (FaultKind::Partition, 30, 150),
    (FaultKind::OneWay, 30, 150),
    (FaultKind::Clog, 15, 120),
    (FaultKind::Break, 3, 40),
    (FaultKind::ClockRate, 5, 60),
    (FaultKind::ClockStray, 60, 200),
    (FaultKind::NoticeReplay, 5, 40),
    (FaultKind::Drain, 30, 150),
    (FaultKind::DiskStall, 20, 100),
    (FaultKind::ClientCrash, 5, 80),
    (FaultKind::ClientPause, 5, 80),
];

/// What disks do. Each is injected in a third of all seeds, as long as few enough nodes are lost by it.
const DISKS: &[Injected] = &[
    (FaultKind::ReadError, 40, 300),
    (FaultKind::WriteError, 40, 300),
    (FaultKind::SyncError, 30, 300),
    (FaultKind::BitRot, 20, 300),
    (FaultKind::Misdirected, 20, 300),
];

/// Parts of files are damaged this often, in half of all seeds.
const ROT: (u64, u64) = (5, 80);

/// What is done to data directories. Each is injected in a third of all seeds.
const TAMPERING: &[Injected] = &[
    (FaultKind::DirectoryEmptied, 40, 150),
    (FaultKind::DirectoryRestored, 40, 150),
    (FaultKind::CopyDies, 10, 80),
];

/// What is done to the power. Each is injected in a third of all seeds, and many seeds have none.
const POWER: &[Injected] =
    &[(FaultKind::PowerCut, 30, 150), (FaultKind::PowerCutAll, 80, 300), (FaultKind::DiskFull, 30, 150)];

/// Members of files change this often, in half of all seeds.
const CHANGES: (u64, u64) = (5, 60);

/// Clocks are wrong this often, in one seed of eight.
const WRONG_CLOCKS: (u64, u64, u64) = (8, 30, 200);

/// In hectic seeds faults are this many times as frequent.
const HECTIC: u64 = 2;
/// In a million messages so many are lost, doubled, or late.
const OFTEN: &[u64] = &[0, 0, 1_000, 20_000, 100_000];
/// So many files of volumes are written to, where any are.
const CONTENTS: usize = 12;
/// A client of a volume that is silent for so long is ended.
const CLIENT_GONE: Span = Span::from_secs(4);
/// Clocks of which no more is promised than their rate are this far apart where files are lent.
const CLOCKS_APART: Span = Span::from_secs(60);
/// And drift apart no faster.
const RATE_PPM_MAX: i32 = 10_000;
const CLOCKS_TOGETHER: Span = Span::from_millis(500);
/// No entry and no part of a state is longer, where files are small.
const ENTRY_BYTES: usize = 1_024;
/// Exchanges of times may be this far apart at most.
const CLOCK_FRESH_MAX: Span = Span::from_millis(400);

impl ClusterPlan {
    /// The plan of a seed.
    pub fn draw(seed: u64, clocks: Clocks) -> Self {
        let mut random = Random::new(seed);
        let (mut sizes, mut weather, mut trouble) = (random.fork(), random.fork(), random.fork());
        let mut tampering = random.fork();
        let daemons = [1, 3, 3, 3, 3, 4, 5, 5][sizes.index(8)];
        let replicas = if sizes.chance(1, 3) { 5 } else { 3 };
        let settings = draw_settings(&mut weather, clocks);
        let lease = settings.lease_config();
        let t_max = lease.t_max;
        let hectic = trouble.chance(1, 3);
        let scale = if hectic { t_max / HECTIC } else { t_max };
        let is_possible = |kind| match kind {
            FaultKind::ClockStray => clocks == Clocks::Synchronised && daemons > 1,
            _ => true,
        };
        let drawn = draw_kinds(INJECTED, is_possible, &mut trouble);
        let mut power = random.fork();
        let mut disks = Random::new(seed ^ 0xd15c);
        let drawn = drawn.into_iter().chain(draw_some(TAMPERING, &mut tampering));
        let mut of_files = random.fork();
        let mut of_members = random.fork();
        let changes = of_members.chance(1, 2) && daemons > 1;
        let tenths = of_members.between(CHANGES.0, CHANGES.1);
        let changes = changes.then_some((FaultKind::ViewChange, tenths));
        let on_disks = draw_some(DISKS, &mut disks);
        // A file of two members has none to lose.
        let members_min = if on_disks.is_empty() { 2 } else { 3 };
        let (rots, tenths) = (disks.chance(1, 2) && daemons > 1, disks.between(ROT.0, ROT.1));
        let rot = rots.then_some((FaultKind::ContentRot, tenths));
        let power = draw_some(POWER, &mut power);
        let faults = drawn.chain(power).chain(changes).chain(on_disks).chain(rot);
        let faults = FaultPlan::in_tenths(faults.chain(draw_wrong_clocks(seed)), scale);
        let clients = draw_u32(&mut sizes, 2, 6);
        let mut shard = draw_shard(&lease, (daemons, replicas), settings);
        draw_hosting(&mut shard, &mut of_files);
        let mut limits = Random::new(seed ^ 0x11b0);
        draw_limits(&mut shard, (clients, daemons), &mut limits);
        let mut grants = Random::new(seed ^ 0x6247);
        if grants.chance(1, 4) {
            shard.session_grants_max = grants.index(12) + 1;
        }
        let mut habits = Random::new(seed ^ 0x4ab1);
        let files = FilePlan::draw(clients, &mut of_files).with_habits(&mut habits);
        if files.is_bulky {
            draw_narrow_limits(&mut shard, &mut limits);
        }
        Arc::make_mut(&mut shard.replication).retired_every =
            Span::from_millis(of_members.between(500, 10_000));
        Self {
            seed,
            clients,
            users: draw_u32(&mut sizes, 1, 3),
            locks: draw_u32(&mut sizes, 1, 6),
            clocks: draw_cluster_clocks(&mut weather, &lease, clocks),
            network: NetworkPlan::draw(draw_way(&mut weather, &lease), t_max, OFTEN, &mut weather),
            faults,
            witnessed_percent: [0, 50, 90, 100][trouble.index(4)],
            treacherous_percent: [0, 0, 5, 20][trouble.index(4)],
            silence_max: [Span::from_millis(300), Span::from_millis(1_500), t_max * 3][weather.index(3)],
            disk_max: Span::from_micros(weather.between(50, 20_000)),
            think: t_max / 100 * sizes.between(1, 20),
            hold_max: t_max / 100 * sizes.between(1, 200),
            // A shorter run does not count.
            duration: Span::from_secs(sizes.between(60, 75)),
            files,
            volumes: VolumePlan::draw(seed),
            members_min,
            store: None,
            skips_older: None,
            shard,
        }
    }

    /// In a quarter of all seeds clients keep what they know of names, in another one contents of files are used, and in a third one they
    /// are lent, too. What clients do without asking depends on clocks, so nowhere where these are wrong.
    #[must_use]
    pub fn with_clients_that_keep(mut self) -> Self {
        let random = &mut Random::new(self.seed ^ 0xcac4e);
        if self.faults.has(FaultKind::ClockWrong) {
            return self;
        }
        match random.index(4) {
            0 => {}
            1 => self.volumes.caches = true,
            2 => self.volumes.contents = CONTENTS,
            _ => {
                self.lend(CONTENTS);
                // So that it shows if somebody forgets when a file was changed.
                self.clocks.apart = if random.chance(1, 2) { CLOCKS_TOGETHER } else { CLOCKS_APART };
            }
        }
        self
    }

    /// Daemons use the production store. What one message brings is one record of its journal, which has to fit into a segment, and these are
    /// short here.
    #[must_use]
    pub fn with_store(mut self, store: StorePlan) -> Self {
        let segment = usize::try_from(store.journal.segment_bytes).unwrap_or(usize::MAX);
        let most = segment / ENTRY_BYTES;
        let config = Arc::make_mut(&mut self.shard.replication);
        (config.batch_max, config.parts_max) = (config.batch_max.min(most), config.parts_max.min(most));
        Self { store: Some(store), ..self }
    }

    /// Files of volumes are lent to clients, and so many of them are watched. What is shown for a file that is open has a time, so clocks are
    /// roughly right whatever leases make of them.
    pub fn lend(&mut self, contents: usize) {
        (self.volumes.lends, self.volumes.contents) = (true, contents);
        self.clocks.apart = CLOCKS_APART;
        if self.clocks.window.is_none() {
            // Some runs wait for an hour, for a place among the clients of a file.
            self.clocks.rate_ppm_max = self.clocks.rate_ppm_max.min(RATE_PPM_MAX);
        }
    }

    /// Beside that directories are lent to clients that make them, which create files there by themselves.
    pub fn lend_dirs(&mut self, contents: usize) {
        self.lend(contents);
        self.volumes.ahead = true;
    }

    /// How many daemons there are.
    pub fn daemons(&self) -> usize {
        self.shard.map.osds().len()
    }
}

impl FilePlan {
    fn draw(clients: u32, random: &mut Random) -> Self {
        let writers = draw_u32(random, 1, 3);
        Self {
            count: draw_u32(random, 1, 4),
            writers,
            think: Span::from_secs(u64::from(clients * writers)) / random.between(25, 45),
            sync_percent: [2, 5, 10, 20][random.index(4)],
            durable_percent: 0,
            impatient_percent: [0, 2, 6][random.index(3)],
            checkpoint_every: Span::from_millis(random.between(200, 5_000)),
            remove_permille: 0,
            is_bulky: false,
        }
    }

    /// In half of all seeds files are removed, in one of six they are written to in large pieces, and in two of three some changes are
    /// to be durable at once.
    fn with_habits(self, random: &mut Random) -> Self {
        Self {
            remove_permille: [0, 0, 5, 20][random.index(4)],
            is_bulky: random.chance(1, 6),
            durable_percent: [0, 5, 30][random.index(3)],
            ..self
        }
    }
}

impl VolumePlan {
    /// In half of all seeds volumes are removed, too.
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7ee5);
        let habits = TreeHabits {
            names: [3, 6, 12][random.index(3)],
            changes_percent: 73,
            again_percent: 0,
            clear_permille: [0, 0, 2, 8][random.index(4)],
        };
        Self {
            count: draw_u32(&mut random, 1, 2),
            percent: [20, 40, 60][random.index(3)],
            contents: 0,
            habits,
            caches: false,
            lends: false,
            ahead: false,
            rules: Rules::default(),
        }
    }

    /// Whether clients keep what they know of names: also where files are lent to them.
    pub(super) const fn keeps(&self) -> bool {
        self.caches || self.lends
    }
}

/// How files are hosted. Logs may be so short that a state has to be taken over often, in small pieces.
fn draw_hosting(shard: &mut ShardConfig, random: &mut Random) {
    let t_max = shard.lease.t_max;
    shard.file_idle = Span::from_millis(random.between(300, 10_000));
    let mut config = replication::Config {
        all_forgot_after: t_max,
        isolated_after: Span::from_millis(random.between(300, 1_500)),
        ..replication::Config::default()
    };
    if random.chance(2, 3) {
        config.kept_max = [1, 3, 10, 50][random.index(4)];
        config.kept_lending_max = config.kept_max * 10;
        config.parts_max = 1 + random.index(3);
        config.versions_max = 1 + random.index(5);
        config.batch_max = 1 + random.index(8);
    }
    shard.replication = Arc::new(config);
}

/// How much there is room for: in half of all seeds each limit is small or is not, in the others none is.
fn draw_limits(shard: &mut ShardConfig, (clients, daemons): (u32, u32), random: &mut Random) {
    if random.chance(1, 2) {
        return;
    }
    let config = Arc::make_mut(&mut shard.replication);
    let mut small = |limit: &mut usize, sizes: [usize; 3]| {
        if random.chance(1, 2) {
            *limit = sizes[random.index(3)];
        }
    };
    small(&mut config.uncommitted_max, [1, 2, 8]);
    small(&mut config.waiting_max, [1, 2, 8]);
    // Whoever is there has room for one process, and those that were there before make room. A daemon that has deleted something
    // of a volume is a client of that.
    let present = (clients + daemons) as usize;
    small(&mut config.clients_max, [present, present + 1, present + 3]);
    let outcomes_max = config.outcomes_max;
    small(
        &mut config.outcomes_max,
        [1, 1, 2].map(|share| (2 * share * config.clients_max).min(outcomes_max)),
    );
    small(&mut config.expired_max, [1_000, 2_000, 4_000]);
    let mut small = |limit: &mut u64, sizes: [u64; 3]| {
        if random.chance(1, 2) {
            *limit = sizes[random.index(3)];
        }
    };
    small(&mut config.unsettled_max, [1, 2, 8]);
    small(&mut config.kept_bytes_max, [0, 1_000, 10_000]);
    small(&mut config.kept_lending_bytes_max, [1, 2, 10].map(|times| config.kept_bytes_max * times + 1_000));
    config.kept_lending_bytes_max = config.kept_lending_bytes_max.max(config.kept_bytes_max);
    small(&mut shard.logs_bytes_max, [1_000, 5_000, 50_000]);
    let (largest, page) = least_bytes(config);
    small(&mut config.uncommitted_bytes_max, [largest; 3]);
    small(&mut config.batch_bytes_max, [largest; 3]);
    small(&mut config.page_bytes_max, [page; 3]);
    if random.chance(2, 3) {
        shard.client_silent = Span::from_millis(random.between(500, 8_000));
    }
}

/// There is room for one large operation or part at a time.
fn draw_narrow_limits(shard: &mut ShardConfig, random: &mut Random) {
    let config = Arc::make_mut(&mut shard.replication);
    config.clients_max = config.clients_max.min(128);
    config.outcomes_max = config.outcomes_max.min(256);
    config.expired_max = config.expired_max.min(1_000);
    let (largest, page) = least_bytes(config);
    (config.uncommitted_bytes_max, config.batch_bytes_max, config.page_bytes_max) = (largest, largest, page);
    shard.client_silent = Span::from_millis(random.between(500, 8_000));
}

/// The largest operation has to fit, and the largest part and the table of requests, and nothing more.
const fn least_bytes(config: &replication::Config) -> (u64, u64) {
    let (largest, parts) = ((1 << 20) + 1_024, (1 << 16) + 320 * config.versions_max as u64);
    let clients = config.clients_max + replication::HOUSE_CLIENTS_MAX;
    let table = 1_024 + 64 * clients + 448 * config.outcomes_max + 32 * config.expired_max;
    let page = if parts > table as u64 { parts } else { table as u64 };
    (largest, page + 2_048)
}

/// Settings that the production check accepts.
fn draw_settings(random: &mut Random, clocks: Clocks) -> Settings {
    loop {
        let t_max_ms = draw_u32(random, 1_000, 4_000);
        let settings = Settings {
            algorithm: match clocks {
                Clocks::Synchronised => LeaseAlgorithm::Flease,
                Clocks::Free => LeaseAlgorithm::Paxoslease,
            },
            t_max_ms,
            epsilon_ms: draw_u32(random, 30, 150),
            session_ms: t_max_ms / 20 * draw_u32(random, 3, 10),
            rate_error_ppm: draw_u32(random, 1_000, 150_000),
        };
        if settings.lease_config().check().is_ok() {
            return settings;
        }
    }
}

fn draw_shard(lease: &Config, (daemons, replicas): (u32, u8), settings: Settings) -> ShardConfig {
    let osds = (0..daemons).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") });
    let map = ClusterMap::new(ClusterId([7; 16]), 1, replicas, settings, osds.collect());
    let mut shard = ShardConfig::new(Arc::new(map.expect("the settings were checked")));
    let hidden_after = lease.epsilon / 2 * 1_000_000 / u64::from(lease.rate_error_ppm);
    let keys = CapabilityKeys::parse(&CapabilityKey::new([7; 32]).line(KeyEpoch(1), None));
    shard.capability_keys = Some(Arc::new(keys.expect("a key is a line")));
    shard.client_gone = CLIENT_GONE;
    shard.clock_fresh = CLOCK_FRESH_MAX.min(hidden_after * 9 / 10);
    shard
}

/// Node time runs on without steps; the clocks of a cluster are disciplined to well within what its guards tolerate.
fn draw_cluster_clocks(random: &mut Random, lease: &Config, clocks: Clocks) -> ClockPlan {
    let width = lease.epsilon / random.between(8, 40);
    let plan = draw_clocks(random, lease, clocks, false);
    ClockPlan { window: plan.window.map(|_| Span::from_micros(width.as_micros() / 2 * 2)), ..plan }
}

/// What must not happen to clocks happens in a few seeds, and there the checkers ask for less.
fn draw_wrong_clocks(seed: u64) -> Option<(FaultKind, u64)> {
    let (seeds, low, high) = WRONG_CLOCKS;
    let mut random = Random::new(seed ^ 0xc10c);
    let tenths = random.between(low, high);
    random.chance(1, seeds).then_some((FaultKind::ClockWrong, tenths))
}

/// Each in a third of all seeds.
fn draw_some(kinds: &[Injected], random: &mut Random) -> Vec<(FaultKind, u64)> {
    let draw = |random: &mut Random, &(kind, low, high): &Injected| {
        let tenths = random.between(low, high);
        random.chance(1, 3).then_some((kind, tenths))
    };
    kinds.iter().filter_map(|injected| draw(random, injected)).collect()
}

/// The longest ordinary way: round trips are short against ε, or no guard could tell a good clock from a bad one.
fn draw_way(random: &mut Random, lease: &Config) -> Span {
    lease.epsilon / random.between(25, 200)
}

#[cfg(test)]
mod tests {
    use lease::{ClockGuard, GuardConfig};

    use super::*;

    #[test]
    fn every_plan_is_one_that_production_accepts() {
        for seed in 0..5_000 {
            for clocks in [Clocks::Synchronised, Clocks::Free] {
                let plan = ClusterPlan::draw(seed, clocks);
                assert!(plan.duration >= crate::cluster::SIMULATED_MIN);
                assert_eq!(plan.shard.lease.check(), Ok(()), "seed {seed}");
                let guard = GuardConfig::new(&plan.shard.lease, plan.shard.clock_fresh, plan.daemons());
                assert!(ClockGuard::new(guard).is_ok(), "seed {seed}");
                assert!(plan.faults.kinds() >= 3 && plan.clients >= 2);
                assert_eq!(plan.shard.replication.check::<node::file::File>(), Ok(()), "seed {seed}");
            }
        }
    }

    #[test]
    fn plans_differ_in_size() {
        let sizes: std::collections::BTreeSet<usize> =
            (0..200).map(|seed| ClusterPlan::draw(seed, Clocks::Free).daemons()).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [1, 3, 4, 5]);
    }
}
