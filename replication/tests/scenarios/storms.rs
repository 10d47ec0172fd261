//! Random histories: whatever happens to processes, links and disks, what was acknowledged stays, once, and everybody
//! agrees.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use base::{Random, Seq};
use replication::{Body, Bug, Position, Request, Standing};

use crate::cluster::{Cluster, Put, Told, ms};

const SEEDS: u64 = 400;
const STEPS: u64 = 1_500;

/// A cluster in a storm, and what must stay true.
struct Storm {
    cluster: Cluster,
    random: Random,
    nodes: u32,
    /// What is committed at each place, as far as any replica has known.
    committed: BTreeMap<Seq, Position>,
    requests: Vec<(Request, Put)>,
    /// How often anybody led, and anything was done.
    tenures: u64,
}

impl Storm {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut random = Random::new(seed);
        let nodes = *[3, 3, 4, 5].get(random.index(4)).unwrap();
        let mut cluster = Cluster::new(nodes, bug);
        cluster.by_hand = true;
        Self { cluster, random, nodes, committed: BTreeMap::new(), requests: Vec::new(), tenures: 0 }
    }

    fn node(&mut self) -> u32 {
        1 + u32::try_from(self.random.below(self.nodes.into())).unwrap()
    }

    fn step(&mut self) {
        let (node, other) = (self.node(), self.node());
        let is_up = self.cluster.is_up(node);
        match self.random.below(100) {
            0 if is_up => {
                self.cluster.lead(node);
                self.tenures += 1;
            }
            1..3 if is_up => self.cluster.kill(node),
            3..9 if !is_up => self.cluster.start(node),
            9..11 => self.cluster.cut(node, other),
            11..13 => self.cluster.mend(),
            13..15 => self.cluster.slow_disk(node, true),
            15..20 => self.cluster.slow_disk(node, false),
            20..22 => self.cluster.run(ms(50)),
            22..35 if is_up => self.request(node),
            _ => (0..3).for_each(|_| self.cluster.deliver_one(&mut self.random)),
        }
        self.check();
    }

    /// A new request, or one that was made before, also at another node.
    fn request(&mut self, node: u32) {
        if self.requests.is_empty() || self.random.below(3) > 0 {
            let (cell, value) = (self.random.index(4), self.random.index(256));
            self.requests.push((
                self.cluster.request(),
                Put(u8::try_from(cell).unwrap(), u8::try_from(value).unwrap()),
            ));
        }
        let (request, put) = self.requests[self.random.index(self.requests.len())];
        // Most nodes are no primary.
        let _ = self.cluster.propose(node, request, put);
    }

    /// No two replicas have ever known different entries to be committed at one place.
    fn check(&mut self) {
        for node in (1..=self.nodes).filter(|&node| self.cluster.is_up(node)) {
            let replica = self.cluster.replica(node);
            for seq in (1..=replica.committed().seq.0).map(Seq) {
                let at = replica.entry(seq).unwrap().at;
                assert_eq!(*self.committed.entry(seq).or_insert(at), at, "at node {node}");
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
        let leader = self.node();
        self.cluster.lead(leader);
        self.cluster.run(ms(3_000));
        assert_eq!(self.cluster.replica(leader).standing(), Standing::Serving);
        self.check();
        leader
    }
}

/// How many tenures there were, and how much was acknowledged.
fn weather(seed: u64, bug: Option<Bug>) -> (u64, u64) {
    let mut storm = Storm::new(seed, bug);
    (0..STEPS).for_each(|_| storm.step());
    let leader = storm.heal();
    storm.cluster.assert_same();
    let replica = storm.cluster.replica(leader);
    let mut executed = BTreeSet::new();
    for seq in (1..=replica.committed().seq.0).map(Seq) {
        if let Body::Op { request, .. } = &replica.entry(seq).unwrap().body {
            executed.insert(request.number);
        }
    }
    assert_eq!(replica.machine().executed.1, executed.len() as u64, "each takes effect once");
    let mut acknowledged = 0;
    for (_, told) in &storm.cluster.told {
        if let Told::Done(request, _, at) = told {
            assert!(executed.contains(&request.number), "{request:?} is gone");
            assert!(at.seq <= replica.committed().seq);
            acknowledged += 1;
        }
    }
    (storm.tenures, acknowledged)
}

#[test]
fn what_is_acknowledged_survives_storms() {
    let (mut tenures, mut acknowledged) = (0, 0);
    for seed in 0..SEEDS {
        let (led, told) = weather(seed, None);
        (tenures, acknowledged) = (tenures + led, acknowledged + told);
    }
    // Storms in which nothing happens prove nothing.
    assert!(
        tenures > 4 * SEEDS && acknowledged > 10 * SEEDS,
        "{tenures} tenures, {acknowledged} acknowledged"
    );
}

#[test]
fn storms_find_what_breaks_a_rule() {
    let bugs = [
        Bug::NoEpochCheck,
        Bug::PromiseNotKept,
        Bug::NoPredecessorCheck,
        Bug::AckBeforeWrite,
        Bug::TailBySequence,
        Bug::NoDeduplication,
    ];
    let is_found = |bug: Bug| (0..SEEDS).any(|seed| catch_unwind(|| weather(seed, Some(bug))).is_err());
    let missed: Vec<Bug> = bugs.into_iter().filter(|&bug| !is_found(bug)).collect();
    assert_eq!(missed, []);
}
