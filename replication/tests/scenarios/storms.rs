//! Random histories: whatever happens to processes, links, disks and members, what was acknowledged stays, once, and
//! everybody agrees. Where power fails, what was durable stays; the rest may go, and then it is said.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use base::{Epoch, Random, Seq};
use replication::{Body, Bug, Config, Mark, Position, Replica, Request, Standing, Ticket};

use crate::cluster::{Cells, Cluster, Put, Told, ms};

const STEPS: u64 = 1_500;

/// What may happen in a storm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes end, links are cut, disks are slow.
    Rough,
    /// Members change, too.
    Changing,
    /// Power fails, too.
    Dark,
}

/// A cluster in a storm, and what must stay true.
struct Storm {
    weather: Weather,
    cluster: Cluster,
    random: Random,
    nodes: u32,
    /// What is committed at each place in each loss generation, as far as any replica has known.
    committed: BTreeMap<(Epoch, Seq), Position>,
    requests: Vec<(Request, Put)>,
    syncs: BTreeMap<Ticket, Put>,
    /// How often anybody led.
    tenures: u64,
}

impl Storm {
    fn new(seed: u64, weather: Weather, bug: Option<Bug>) -> Self {
        let mut random = Random::new(seed);
        let members = [3, 3, 4, 5][random.index(4)];
        let spare = if weather == Weather::Rough { 0 } else { 2 };
        // Logs so short that a state has to be taken over often, in small pieces.
        let short =
            Config { kept_max: 3, kept_lending_max: 30, parts_max: 3, versions_max: 5, ..Config::default() };
        let config = if random.index(3) == 0 { Config::default() } else { short };
        let mut cluster = Cluster::of(members, members + spare, Config { bug, ..config });
        cluster.by_hand = true;
        let nodes = members + spare;
        let (committed, requests, syncs) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { weather, cluster, random, nodes, committed, requests, syncs, tenures: 0 }
    }

    fn node(&mut self) -> u32 {
        1 + u32::try_from(self.random.below(self.nodes.into())).unwrap()
    }

    fn step(&mut self) {
        let (node, other) = (self.node(), self.node());
        let is_up = self.cluster.is_up(node);
        let is_dark = self.weather == Weather::Dark;
        match self.random.below(200) {
            0..2 if is_up => {
                let led = self.cluster.try_lead(node);
                self.tenures += u64::from(led.is_ok());
            }
            2..4 if is_up => self.cluster.kill(node),
            4..6 if is_up && is_dark && self.random.index(15) == 0 => self.cluster.power_off(node),
            6 if is_dark && self.random.index(10) == 0 => {
                (1..=self.nodes).for_each(|node| self.cluster.power_off(node));
            }
            6..18 if !is_up => self.cluster.start(node),
            18..22 => self.cluster.cut(node, other),
            22..26 => self.cluster.mend(),
            26..30 => self.cluster.slow_disk(node, true),
            30..40 => self.cluster.slow_disk(node, false),
            40..43 => self.cluster.run(ms(50)),
            43..44 if self.random.index(4) == 0 => self.cluster.run(ms(2_000)),
            44..70 if is_up => self.request(node),
            70..74 if is_up => self.cluster.checkpoint(node),
            74..78 if is_up => self.sync(node),
            78..84 if is_up && self.weather != Weather::Rough => self.change(node, other),
            _ => (0..3).for_each(|_| self.cluster.deliver_one(&mut self.random)),
        }
        self.check();
    }

    /// A new request, or one that was made before, also at another node.
    fn request(&mut self, node: u32) {
        if self.requests.is_empty() || self.random.below(3) > 0 {
            let request = self.cluster.request();
            let [high, low] = u16::try_from(request.number).unwrap().to_be_bytes();
            // Each is different from all others.
            self.requests.push((request, Put(low % 4 + 4 * high, low / 4)));
        }
        let (request, put) = self.requests[self.random.index(self.requests.len())];
        // Most nodes are no primary.
        let _ = self.cluster.propose(node, request, put);
    }

    /// Wants something durable that was acknowledged.
    fn sync(&mut self, node: u32) {
        let done = done(&self.cluster);
        if done.is_empty() {
            return;
        }
        let (request, mark) = done[self.random.index(done.len())];
        let put = self.requests.iter().find(|(known, _)| *known == request).unwrap().1;
        if let Ok(ticket) = self.cluster.try_sync(node, mark) {
            self.syncs.insert(ticket, put);
        }
    }

    /// Changes the members; three stay.
    fn change(&mut self, node: u32, other: u32) {
        let members = self.cluster.members(node);
        // Most nodes are no primary.
        let _ = if !members.contains(&other) {
            self.cluster.admit(node, other)
        } else if members.len() > 3 {
            self.cluster.dismiss(node, other)
        } else {
            Ok(())
        };
    }

    /// No two replicas have ever known different entries to be committed at one place, unless something was lost in
    /// between, and that was said.
    fn check(&mut self) {
        for node in (1..=self.nodes).filter(|&node| self.cluster.is_up(node)) {
            let replica = self.cluster.replica(node);
            if !replica.is_whole() {
                continue;
            }
            let generation = generation(replica);
            for seq in (1..=replica.committed().seq.0).map(Seq) {
                let Some(entry) = replica.entry(seq) else { continue };
                let before = *self.committed.entry((generation, seq)).or_insert(entry.at);
                assert_eq!(before, entry.at, "at node {node}");
            }
        }
    }

    /// The storm is over: somebody leads, and everybody is told.
    fn heal(&mut self) -> u32 {
        self.cluster.by_hand = false;
        self.cluster.mend();
        for node in 1..=self.nodes {
            self.cluster.slow_disk(node, false);
            if !self.cluster.is_up(node) {
                self.cluster.start(node);
            }
        }
        self.cluster.settle();
        for _ in 0..10 {
            for node in 1..=self.nodes {
                if self.cluster.try_lead(node).is_err() {
                    continue;
                }
                self.cluster.renew(node);
                self.cluster.run(ms(5_000));
                if self.cluster.replica(node).standing() == Standing::Serving {
                    self.check();
                    return node;
                }
            }
        }
        panic!("nobody can lead");
    }
}

/// The loss generation of all that is here. A view may be known to be committed before the barrier behind it is.
fn generation(replica: &Replica<Cells>) -> Epoch {
    let behind = replica.committed().seq.0 + 1..=replica.tail().seq.0;
    let barriers = behind.filter_map(|seq| match replica.entry(Seq(seq))?.body {
        Body::Barrier { generation } => Some(generation),
        _ => None,
    });
    barriers.fold(replica.rest().generation, Epoch::max)
}

fn done(cluster: &Cluster) -> Vec<(Request, Mark)> {
    let done = cluster.told.iter().filter_map(|(_, told)| match told {
        Told::Done(request, _, mark) => Some((*request, *mark)),
        _ => None,
    });
    done.collect()
}

/// How many tenures there were, and how much was acknowledged.
fn pass(seed: u64, weather: Weather, bug: Option<Bug>) -> (u64, u64) {
    let mut storm = Storm::new(seed, weather, bug);
    (0..STEPS).for_each(|_| storm.step());
    let leader = storm.heal();
    let cluster = &storm.cluster;
    cluster.assert_same(&cluster.members(leader));
    let replica = cluster.replica(leader);
    let puts: Vec<Put> = replica.machine().history.values().copied().collect();
    let executed: BTreeSet<Put> = puts.iter().copied().collect();
    assert_eq!(puts.len(), executed.len(), "each takes effect once");
    let generation = replica.rest().generation;
    assert!(weather == Weather::Dark || generation == Epoch::default(), "nothing was lost");
    let done = done(cluster);
    for (request, mark) in &done {
        let put = storm.requests.iter().find(|(known, _)| known == request).unwrap().1;
        let is_owed = mark.generation == generation;
        assert!(!is_owed || executed.contains(&put), "{request:?} is gone, which was done at {mark:?}");
    }
    for (ticket, put) in &storm.syncs {
        let is_there = executed.contains(put) || !cluster.is_durable(*ticket);
        assert!(is_there, "{put:?} is gone, which was durable");
    }
    (storm.tenures, done.len() as u64)
}

fn seeds() -> u64 {
    // A longer storm by hand: the seeds of all weathers.
    std::env::var("FLEASEFS_STORMS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

fn passes(weather: Weather) {
    let (mut tenures, mut acknowledged) = (0, 0);
    for seed in 0..seeds() {
        let passed = catch_unwind(|| pass(seed, weather, None));
        let (led, told) = passed.unwrap_or_else(|_| panic!("seed {seed} of {weather:?} weather"));
        (tenures, acknowledged) = (tenures + led, acknowledged + told);
    }
    // Storms in which nothing happens prove nothing.
    assert!(
        tenures > 3 * seeds() && acknowledged > 7 * seeds(),
        "{tenures} tenures, {acknowledged} acknowledged"
    );
}

#[test]
fn what_is_acknowledged_survives_rough_weather() {
    passes(Weather::Rough);
}

#[test]
fn what_is_acknowledged_survives_changes_of_members() {
    passes(Weather::Changing);
}

#[test]
fn what_is_durable_survives_the_dark() {
    passes(Weather::Dark);
}

#[test]
fn storms_find_what_breaks_a_rule() {
    let bugs = [
        (Weather::Rough, Bug::NoEpochCheck),
        (Weather::Rough, Bug::PromiseNotKept),
        (Weather::Rough, Bug::NoPredecessorCheck),
        (Weather::Rough, Bug::AckBeforeWrite),
        (Weather::Rough, Bug::TailBySequence),
        (Weather::Rough, Bug::NoDeduplication),
        (Weather::Dark, Bug::ForgettingIgnored),
        (Weather::Dark, Bug::SyncIgnoresGeneration),
        (Weather::Rough, Bug::TransferWithoutRequests),
    ];
    let is_found =
        |weather, bug| (0..seeds()).any(|seed| catch_unwind(|| pass(seed, weather, Some(bug))).is_err());
    let missed: Vec<Bug> =
        bugs.into_iter().filter(|&(weather, bug)| !is_found(weather, bug)).map(|(_, bug)| bug).collect();
    assert_eq!(missed, []);
}
