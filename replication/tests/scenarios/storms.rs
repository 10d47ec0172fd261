//! Random histories: whatever happens to processes, links, disks and members, what was acknowledged stays, once, and
//! everybody agrees. Where power fails, what was durable stays; the rest may go, and then it is said. A question is answered
//! from what is committed; and where leases are exclusive, as they are outside of these tests, an answer is not older than
//! what was acknowledged or answered before it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use base::{ClientId, Epoch, Members, NodeId, Random, Seq, ViewId, WallTime};
use replication::{
    Body, Bug, Config, Event, Machine, Mark, Memory, Position, ProposeError, Replica, Request, Standing,
    Ticket,
};

use crate::cluster::{Cells, Cluster, Key, Put, Told, ms};

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
    /// Questions: about which cell, and how much had been told when they were asked.
    reads: BTreeMap<Ticket, (u8, usize)>,
    /// Who has the lease until when, if one at a time has it.
    lease: Option<(u32, WallTime)>,
    is_exclusive: bool,
    /// Up to where was committed what somebody knew who said that a client was over.
    over: Vec<(ClientId, Epoch, Position)>,
    /// Nodes that are gone for good.
    gone: BTreeSet<u32>,
    /// Views that somebody knew to be committed, and how much of what was told has been looked at for nodes that forgot.
    views: BTreeMap<ViewId, Members>,
    heard: usize,
    /// Nodes that have forgotten the object and were not made members again.
    forgot: BTreeSet<u32>,
    /// How often anybody led.
    tenures: u64,
    /// How often parts of a state were damaged.
    rotten: u64,
}

/// What a storm has seen, so that it is known that something happened.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    tenures: u64,
    rotten: u64,
    acknowledged: u64,
    answered: u64,
    over: u64,
    gone: u64,
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
        let is_exclusive = random.index(2) == 0;
        Self {
            weather,
            cluster,
            random,
            nodes,
            committed: BTreeMap::new(),
            requests: Vec::new(),
            syncs: BTreeMap::new(),
            reads: BTreeMap::new(),
            lease: None,
            is_exclusive,
            over: Vec::new(),
            gone: BTreeSet::new(),
            views: BTreeMap::from([(ViewId::default(), Members::new((1..=members).map(NodeId)).unwrap())]),
            heard: 0,
            forgot: BTreeSet::new(),
            tenures: 0,
            rotten: 0,
        }
    }

    fn node(&mut self) -> u32 {
        1 + u32::try_from(self.random.below(self.nodes.into())).unwrap()
    }

    fn step(&mut self) {
        let (node, other) = (self.node(), self.node());
        let is_up = self.cluster.is_up(node);
        let is_dark = self.weather == Weather::Dark;
        match self.random.below(220) {
            0..2 if is_up => self.lead(node),
            2..4 if is_up => self.cluster.kill(node),
            4..6 if is_up && is_dark && self.random.index(15) == 0 => self.cluster.power_off(node),
            6 if is_dark && self.random.index(10) == 0 => {
                let there = (1..=self.nodes).filter(|node| !self.gone.contains(node));
                there.for_each(|node| self.cluster.power_off(node));
            }
            6..18 if !is_up => self.start(node),
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
            84..86 if is_up && is_dark => _ = self.cluster.accept_loss(node),
            86..90 if is_up && self.weather != Weather::Rough => self.strike(node),
            90..93 if is_up => self.expire(node),
            93..105 if is_up => self.ask(node),
            105..107 if is_up => self.rot(node, other),
            _ => (0..3).for_each(|_| self.cluster.deliver_one(&mut self.random)),
        }
        self.check();
    }

    fn start(&mut self, node: u32) {
        if self.gone.contains(&node) {
            return;
        }
        self.cluster.start(node);
        self.gone.iter().for_each(|&gone| self.cluster.strike(node, gone));
    }

    /// The node gets the lease, if nobody else may still have it.
    fn lead(&mut self, node: u32) {
        let now = self.cluster.now;
        let holder = self.lease.filter(|&(holder, until)| holder != node && until > now);
        if let Some((holder, _)) =
            holder.filter(|&(holder, _)| self.is_exclusive && self.cluster.is_up(holder))
        {
            self.cluster.resign(holder);
        }
        if self.cluster.try_lead(node).is_ok() {
            self.lease = Some((node, now + ms(2_000)));
            self.tenures += 1;
        }
    }

    /// A question, which most nodes do not take.
    fn ask(&mut self, node: u32) {
        let Some((_, Put(cell, _))) = self.random.pick(&self.requests).copied() else { return };
        let told = self.cluster.told.len();
        if let Ok(ticket) = self.cluster.try_ask(node, cell) {
            self.reads.insert(ticket, (cell, told));
        }
    }

    /// A client is over.
    fn expire(&mut self, node: u32) {
        let client = ClientId { certificate: 7, program: 2 + self.random.below(3) };
        // Most nodes are no primary.
        let _ = self.cluster.try_expire(node, client);
    }

    /// A node that knows that it is no member any more has its disk destroyed, and everybody is told.
    fn strike(&mut self, node: u32) {
        let is_retired = self.cluster.replica(node).standing() == Standing::Retired;
        if !is_retired || !self.gone.is_empty() || (1..=self.nodes).any(|other| self.wants(other, node)) {
            return;
        }
        self.gone.insert(node);
        self.cluster.remove(node);
        for other in (1..=self.nodes).filter(|&other| self.cluster.is_up(other)).collect::<Vec<_>>() {
            self.cluster.strike(other, node);
        }
    }

    /// Whether somebody may know a view in which a node is a member.
    fn wants(&self, other: u32, node: u32) -> bool {
        if !self.cluster.is_up(other) {
            return true;
        }
        let replica = self.cluster.replica(other);
        let coming = (replica.committed().seq.0 + 1..=replica.tail().seq.0).any(|seq| {
            let body = replica.entry(Seq(seq)).map(|entry| &entry.body);
            matches!(body, Some(Body::View(members)) if members.contains(NodeId(node)))
        });
        coming || replica.view().members.contains(NodeId(node))
    }

    /// A new request, or one that was made before, also at another node. Some come from clients that may be over.
    fn request(&mut self, node: u32) {
        if self.requests.is_empty() || self.random.below(3) > 0 {
            let mut request = self.cluster.request();
            if self.random.below(3) == 0 {
                request.client.program += 1 + self.random.below(3);
            }
            let [high, low] = u16::try_from(request.number).unwrap().to_be_bytes();
            // Each is different from all others.
            self.requests.push((request, Put(low % 4 + 4 * high, low / 4)));
        }
        let (request, put) = self.requests[self.random.index(self.requests.len())];
        // Most nodes are no primary.
        if self.cluster.propose(node, request, put) == Err(ProposeError::Expired) {
            let replica = self.cluster.replica(node);
            self.over.push((request.client, generation(replica), replica.committed()));
        }
    }

    /// Some parts of a state cannot be read any more, of which another node has a copy that will stay.
    fn rot(&mut self, node: u32, other: u32) {
        let (here, there) = (self.cluster.replica(node), self.cluster.is_up(other));
        if node == other || !there || !self.cluster.is_written(other) || !here.is_whole() {
            return;
        }
        let copy = self.cluster.replica(other);
        let is_good = copy.is_sound()
            && copy.memory() == Memory::Clean
            && copy.committed() >= here.committed()
            && generation(copy) == generation(here)
            && copy.members_to_be().contains(NodeId(other))
            && here.members_to_be() == copy.members_to_be();
        let others = (1..=self.nodes).filter(|id| *id != node && !self.gone.contains(id));
        let is_alone = { others }.all(|id| self.cluster.is_up(id) && !self.cluster.replica(id).lacks());
        // Where members go for good, or forget, one copy has to be left to whom nothing happens.
        if !is_good || self.weather != Weather::Rough && !is_alone {
            return;
        }
        let keys: Vec<Key> = here.machine().versions(None, 1_000).into_iter().map(|(key, _)| key).collect();
        let chosen: Vec<Key> = keys.into_iter().filter(|_| self.random.index(4) == 0).collect();
        self.cluster.sync_disk(other);
        self.rotten += u64::from(!chosen.is_empty());
        if self.random.index(3) == 0 {
            self.cluster.rot_disk(node, &chosen);
        } else {
            self.cluster.rot(node, &chosen);
        }
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
        let _ = if self.gone.contains(&other) {
            Ok(())
        } else if !members.contains(&other) {
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
        let up: Vec<u32> = (1..=self.nodes).filter(|&node| self.cluster.is_up(node)).collect();
        up.iter().for_each(|&node| self.check_view(node));
        self.check_forgotten();
        for node in up {
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

    /// Who has forgotten the object is not asked about it any more: nobody who may lead takes it for a member.
    fn check_forgotten(&mut self) {
        let told = self.cluster.told[self.heard..].iter();
        let forgot = told.filter(|(_, told)| *told == Told::Event(Event::Forgotten)).map(|&(node, _)| node);
        self.forgot.extend(forgot);
        self.heard = self.cluster.told.len();
        for &node in &self.forgot {
            let others = (1..=self.nodes).filter(|&other| other != node && self.cluster.is_up(other));
            let takes_for_members = |other: &u32| {
                let members = self.cluster.members(*other);
                members.contains(&node) && members.contains(other)
            };
            let asking: Vec<u32> = others.filter(takes_for_members).collect();
            assert_eq!(asking, [], "{node} has forgotten what these may ask it for");
        }
    }

    /// Who became a member has what was there.
    fn check_view(&mut self, node: u32) {
        let view = self.cluster.replica(node).view().clone();
        // Who has nothing knows itself alone.
        if view.id == ViewId::default() || self.views.insert(view.id, view.members.clone()).is_some() {
            return;
        }
        // Of an older view a newcomer may have left again.
        let is_newest = self.views.range(view.id..).nth(1).is_none();
        let Some((_, before)) = self.views.range(..view.id).next_back().filter(|_| is_newest) else { return };
        self.forgot.retain(|&node| !view.members.contains(NodeId(node)));
        let newcomers = view.members.as_slice().iter().filter(|member| !before.contains(**member));
        for newcomer in newcomers.map(|member| member.0).filter(|&newcomer| self.cluster.is_up(newcomer)) {
            let replica = self.cluster.replica(newcomer);
            // It may have fallen behind since, and be taking a later state over.
            let is_there = replica.tail().seq > Seq(0) || matches!(replica.memory(), Memory::Mixed { .. });
            assert!(is_there, "{newcomer} became a member and has nothing");
        }
    }

    /// The storm is over: somebody leads, and everybody is told.
    fn heal(&mut self) -> u32 {
        self.cluster.by_hand = false;
        self.cluster.mend();
        for node in 1..=self.nodes {
            self.cluster.slow_disk(node, false);
            if !self.cluster.is_up(node) {
                self.start(node);
            }
        }
        self.cluster.settle();
        for _ in 0..10 {
            for node in 1..=self.nodes {
                if self.gone.contains(&node) || self.cluster.try_lead(node).is_err() {
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
    let behind = replica.rest().at.seq.0 + 1..=replica.tail().seq.0;
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

impl Storm {
    /// What was answered has been, in that order. How many answers there were.
    fn check_answers(&self, history: &[(Position, Put)]) -> u64 {
        let index = |cell: u8, value: Option<u8>| {
            let puts = history.iter().filter(|(_, put)| put.0 == cell);
            let place = value.map(|value| puts.map(|(_, put)| put.1).position(|put| put == value));
            place.map_or(Some(0), |place| place.map(|place| place + 1))
        };
        // The latest that anybody was told, of each cell, before so much was told.
        let mut told: BTreeMap<u8, Vec<(usize, usize)>> = BTreeMap::new();
        let mut answered = 0;
        for (now, (_, what)) in self.cluster.told.iter().enumerate() {
            let Put(cell, value) = match what {
                Told::Done(request, ..) => {
                    self.requests.iter().find(|(known, _)| known == request).unwrap().1
                }
                &Told::Answer(ticket, value) => {
                    let (cell, asked) = self.reads[&ticket];
                    answered += 1;
                    let seen = index(cell, value);
                    let seen = seen.unwrap_or_else(|| panic!("{value:?} has never been in {cell}"));
                    let before = told.get(&cell).into_iter().flatten().filter(|&&(at, _)| at < asked);
                    let latest = before.map(|&(_, place)| place).max().unwrap_or(0);
                    assert!(!self.is_exclusive || seen >= latest, "{ticket:?}: {value:?} in {cell} is old");
                    told.entry(cell).or_default().push((now, seen));
                    continue;
                }
                _ => continue,
            };
            // Whoever asks again is told again.
            told.entry(cell).or_default().extend(index(cell, Some(value)).map(|place| (now, place)));
        }
        answered
    }

    /// Nothing of a client took effect after it was said to be over.
    fn check_over(&self, history: &[(Position, Put)], generation: Epoch) {
        for (client, before, committed) in &self.over {
            let puts = self.requests.iter().filter(|(request, _)| request.client == *client);
            let puts: BTreeSet<Put> = puts.map(|&(_, put)| put).collect();
            let last = history.iter().rev().find(|(_, put)| puts.contains(put));
            let is_owed = *before == generation;
            assert!(
                !is_owed || last.is_none_or(|(at, _)| at <= committed),
                "{client:?} was over at {committed:?}"
            );
        }
    }
}

fn pass(seed: u64, weather: Weather, bug: Option<Bug>) -> Seen {
    let mut storm = Storm::new(seed, weather, bug);
    (0..STEPS).for_each(|_| storm.step());
    let leader = storm.heal();
    let cluster = &storm.cluster;
    // Somebody may have been made a member by what was under way when its disk was destroyed.
    let members: Vec<u32> =
        cluster.members(leader).into_iter().filter(|id| !storm.gone.contains(id)).collect();
    cluster.assert_same(&members);
    assert!(members.iter().all(|&node| !cluster.replica(node).lacks()));
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
    let history: Vec<(Position, Put)> =
        replica.machine().history.iter().map(|(&at, &put)| (at, put)).collect();
    storm.check_over(&history, generation);
    // Where something was lost, what was read may be lost with it.
    let answered = if weather == Weather::Dark { 0 } else { storm.check_answers(&history) };
    Seen {
        tenures: storm.tenures,
        rotten: storm.rotten,
        acknowledged: done.len() as u64,
        answered,
        over: storm.over.len() as u64,
        gone: storm.gone.len() as u64,
    }
}

fn seeds() -> u64 {
    // A longer storm by hand: the seeds of all weathers.
    std::env::var("FLEASEFS_STORMS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

fn passes(weather: Weather) {
    let mut all = Seen::default();
    for seed in 0..seeds() {
        let passed = catch_unwind(|| pass(seed, weather, None));
        let seen = passed.unwrap_or_else(|_| panic!("seed {seed} of {weather:?} weather"));
        all.tenures += seen.tenures;
        all.rotten += seen.rotten;
        all.acknowledged += seen.acknowledged;
        all.answered += seen.answered;
        all.over += seen.over;
        all.gone += seen.gone;
    }
    println!("{weather:?}, {} seeds: {all:?}", seeds());
    // Storms in which nothing happens prove nothing.
    assert!(all.tenures > 3 * seeds() && all.acknowledged > 5 * seeds() && all.over > seeds() / 2, "{all:?}");
    assert!(weather == Weather::Dark || all.answered > seeds(), "{all:?}");
    assert!(all.rotten > seeds() / 2, "{all:?}");
    assert!(weather == Weather::Rough || all.gone > seeds() / 20, "{all:?}");
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
        (Weather::Rough, Bug::ExpiredForgotten),
        (Weather::Rough, Bug::ReadsUncommitted),
        (Weather::Rough, Bug::DamagedServes),
        (Weather::Rough, Bug::DamagedIsSource),
        (Weather::Rough, Bug::DamageNotKept),
        (Weather::Changing, Bug::NewcomerNotCaughtUp),
        (Weather::Changing, Bug::TombstoneDroppedEarly),
    ];
    // The rarest takes some hundreds; most are found in a few.
    let is_found =
        |weather, bug| (0..2_000).any(|seed| catch_unwind(|| pass(seed, weather, Some(bug))).is_err());
    let missed: Vec<Bug> =
        bugs.into_iter().filter(|&(weather, bug)| !is_found(weather, bug)).map(|(_, bug)| bug).collect();
    assert_eq!(missed, []);
}
