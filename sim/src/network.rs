//! The network between the nodes: when, and whether, and how often a message arrives.
//!
//! Nothing is promised: messages are lost, doubled, overtaken, and some arrive so late that their receiver has been
//! restarted meanwhile. A partition drops what is sent; a clogged link keeps it until the clog ends.

use base::{Random, Span};

use crate::TrueTime;
use crate::summary::{FaultKind, Faults};

const MILLION: u64 = 1_000_000;
/// What is lost on a stream is sent again after this many of the longest ways.
const RESEND_AFTER: u64 = 4;

/// How the network of one run behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkPlan {
    /// The shortest way between two nodes.
    pub latency_min: Span,
    /// The longest ordinary way; the spread is what reorders.
    pub latency_max: Span,
    /// How many in a million are lost.
    pub loss_ppm: u64,
    /// How many in a million arrive twice.
    pub duplicate_ppm: u64,
    /// How many in a million arrive late, perhaps far later than any lease lasts.
    pub late_ppm: u64,
    /// How late at most.
    pub late_max: Span,
}

impl NetworkPlan {
    /// What goes wrong with messages goes wrong as often as one of `often` says, in a million.
    pub(crate) fn draw(latency_max: Span, t_max: Span, often: &[u64], random: &mut Random) -> Self {
        let draw_ppm = |random: &mut Random| often[random.index(often.len())];
        Self {
            latency_min: latency_max / random.between(1, 20),
            latency_max,
            loss_ppm: draw_ppm(random),
            duplicate_ppm: draw_ppm(random),
            late_ppm: draw_ppm(random),
            late_max: t_max * random.between(1, 30) / 10,
        }
    }
}

/// The links and what is wrong with them.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    nodes: usize,
    random: Random,
    /// How many partitions cut the link, by `from * nodes + to`.
    cuts: Vec<u32>,
    clogged_until: Vec<TrueTime>,
    healed: bool,
}

impl Network {
    /// A network without partitions among `nodes` nodes.
    pub fn new(plan: NetworkPlan, nodes: usize, random: Random) -> Self {
        let links = nodes * nodes;
        Self {
            plan,
            nodes,
            random,
            cuts: vec![0; links],
            clogged_until: vec![TrueTime::ZERO; links],
            healed: false,
        }
    }

    /// When a message sent now arrives: never, once or twice.
    pub fn route(
        &mut self,
        now: TrueTime,
        (from, to): (usize, usize),
        faults: &mut Faults,
    ) -> [Option<TrueTime>; 2] {
        let link = from * self.nodes + to;
        if self.healed {
            return [Some(self.arrival(now)), None];
        }
        if self.cuts[link] > 0 {
            faults.count(FaultKind::Cut);
            return [None, None];
        }
        if self.random.chance(self.plan.loss_ppm, MILLION) {
            faults.count(FaultKind::Loss);
            return [None, None];
        }
        let first = self.late_or_not(now, link, faults);
        if !self.random.chance(self.plan.duplicate_ppm, MILLION) {
            return [Some(first), None];
        }
        faults.count(FaultKind::Duplicate);
        [Some(first), Some(self.late_or_not(now, link, faults))]
    }

    /// When data of a stream arrives that is sent now: lost packets are sent again, and a cut link keeps them back
    /// for as long as the connection lasts.
    pub fn route_stream(&mut self, now: TrueTime, (from, to): (usize, usize)) -> Option<TrueTime> {
        if self.is_cut(from, to) {
            return None;
        }
        let clogged_until = self.clogged_until[from * self.nodes + to];
        let start = if self.healed { now } else { clogged_until.max(now) };
        let mut arrival = self.arrival(start);
        while !self.healed && self.random.chance(self.plan.loss_ppm, MILLION) {
            arrival = arrival + self.plan.latency_max * RESEND_AFTER;
        }
        Some(arrival)
    }

    /// Whether nothing gets from `from` to `to`.
    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        !self.healed && self.cuts[from * self.nodes + to] > 0
    }

    /// Cuts the links from `from` to `to`.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cuts[from * self.nodes + to] += 1;
    }

    /// Undoes one [`cut`](Self::cut).
    pub fn mend(&mut self, from: usize, to: usize) {
        let cuts = &mut self.cuts[from * self.nodes + to];
        *cuts = cuts.checked_sub(1).expect("only what was cut is mended");
    }

    /// Draws two groups of nodes: a bit for each node, and the links between the groups.
    pub(crate) fn draw_partition(&self, random: &mut Random) -> (u64, Vec<(usize, usize)>) {
        let sides = random.between(1, (1 << self.nodes) - 2);
        let side = |node: usize| sides >> node & 1;
        (sides, self.links().filter(|&(from, to)| side(from) != side(to)).collect())
    }

    /// Draws a direction, and gives the links of a node in that direction.
    pub(crate) fn draw_one_way(&self, node: usize, random: &mut Random) -> (bool, Vec<(usize, usize)>) {
        let outgoing = random.chance(1, 2);
        let end = |(from, to)| if outgoing { from } else { to };
        (outgoing, self.links().filter(|&link| end(link) == node).collect())
    }

    /// All links between different nodes.
    fn links(&self) -> impl Iterator<Item = (usize, usize)> {
        let nodes = self.nodes;
        (0..nodes).flat_map(move |from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to)
    }

    /// Clogs about half of the links to a node.
    pub(crate) fn clog_some(&mut self, to: usize, until: TrueTime, random: &mut Random) {
        for from in 0..self.nodes {
            if random.chance(1, 2) {
                self.clog(from, to, until);
            }
        }
    }

    /// Keeps what is sent from `from` to `to` until `until`.
    pub fn clog(&mut self, from: usize, to: usize, until: TrueTime) {
        let clogged = &mut self.clogged_until[from * self.nodes + to];
        *clogged = (*clogged).max(until);
    }

    /// From now on every message arrives once and in time.
    pub const fn heal(&mut self) {
        self.healed = true;
    }

    fn late_or_not(&mut self, now: TrueTime, link: usize, faults: &mut Faults) -> TrueTime {
        let clogged_until = self.clogged_until[link];
        let start = if clogged_until > now {
            faults.count(FaultKind::Clogged);
            clogged_until
        } else {
            now
        };
        if self.random.chance(self.plan.late_ppm, MILLION) {
            faults.count(FaultKind::Late);
            return start + Span::from_micros(self.random.below(self.plan.late_max.as_micros()));
        }
        self.arrival(start)
    }

    fn arrival(&mut self, start: TrueTime) -> TrueTime {
        let (min, max) = (self.plan.latency_min.as_micros(), self.plan.latency_max.as_micros());
        start + Span::from_micros(self.random.between(min, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(change: impl FnOnce(&mut NetworkPlan)) -> Network {
        let mut plan = NetworkPlan {
            latency_min: Span::from_millis(1),
            latency_max: Span::from_millis(5),
            loss_ppm: 0,
            duplicate_ppm: 0,
            late_ppm: 0,
            late_max: Span::from_secs(10),
        };
        change(&mut plan);
        Network::new(plan, 3, Random::new(1))
    }

    fn arrivals(network: &mut Network, link: (usize, usize)) -> Vec<TrueTime> {
        let mut faults = Faults::default();
        (0..1000).flat_map(|_| network.route(TrueTime::ZERO, link, &mut faults)).flatten().collect()
    }

    #[test]
    fn a_sound_network_delivers_everything_in_time() {
        let arrived = arrivals(&mut network(|_| {}), (0, 1));
        assert_eq!(arrived.len(), 1000);
        assert!(arrived.iter().all(|at| (1000..=5000).contains(&at.as_micros())));
        assert!(!arrived.is_sorted(), "later messages overtake earlier ones");
    }

    #[test]
    fn faults_happen_at_about_their_rate() {
        let lossy = arrivals(&mut network(|plan| plan.loss_ppm = 100_000), (0, 1)).len();
        assert!((850..950).contains(&lossy), "{lossy}");
        let doubled = arrivals(&mut network(|plan| plan.duplicate_ppm = 100_000), (0, 1)).len();
        assert!((1050..1150).contains(&doubled), "{doubled}");
        let late = arrivals(&mut network(|plan| plan.late_ppm = 100_000), (0, 1));
        assert!(late.iter().any(|at| at.as_micros() > 8_000_000));
    }

    #[test]
    fn a_cut_has_a_direction_and_ends_when_all_cuts_are_mended() {
        let mut network = network(|_| {});
        network.cut(0, 1);
        network.cut(0, 1);
        assert_eq!(arrivals(&mut network, (0, 1)).len(), 0);
        assert_eq!(arrivals(&mut network, (1, 0)).len(), 1000);
        network.mend(0, 1);
        assert_eq!(arrivals(&mut network, (0, 1)).len(), 0);
        network.mend(0, 1);
        assert_eq!(arrivals(&mut network, (0, 1)).len(), 1000);
    }

    #[test]
    fn a_stream_loses_nothing_but_time() {
        let mut network = network(|plan| plan.loss_ppm = 300_000);
        let arrivals: Vec<_> =
            (0..1000).filter_map(|_| network.route_stream(TrueTime::ZERO, (0, 1))).collect();
        assert_eq!(arrivals.len(), 1000);
        assert!(arrivals.iter().any(|at| at.as_micros() > 20_000));
        network.cut(0, 1);
        assert_eq!(network.route_stream(TrueTime::ZERO, (0, 1)), None);
        network.heal();
        assert!(network.route_stream(TrueTime::ZERO, (0, 1)).is_some());
    }

    #[test]
    fn a_clog_delays_and_healing_ends_everything() {
        let mut network = network(|plan| plan.loss_ppm = 1_000_000);
        assert_eq!(arrivals(&mut network, (0, 1)).len(), 0);
        network.plan.loss_ppm = 0;
        network.clog(0, 1, TrueTime::from_micros(9_000_000));
        assert!(arrivals(&mut network, (0, 1)).iter().all(|at| at.as_micros() >= 9_000_000));
        network.heal();
        assert!(arrivals(&mut network, (0, 1)).iter().all(|at| at.as_micros() <= 5000));
    }
}
