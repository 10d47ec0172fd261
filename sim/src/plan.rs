//! The plan of a run: everything that a seed decides before anything happens.
//!
//! Each seed draws its own mix of faults, some of them not at all, and its own weather: what one mix hides another
//! brings out. Every drawn configuration is one that the production check accepts.

use base::{Random, Span, WallTime};
use lease::Config;

use crate::clock::ClockPlan;
use crate::faults::{FaultPlan, Injected, draw_kinds};
use crate::network::NetworkPlan;
use crate::summary::FaultKind;

/// Which algorithm a run is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clocks {
    /// All within ε of each other (Flease).
    Synchronised,
    /// Anything, at nearly the same rate (PaxosLease).
    Free,
}

/// Everything that a seed decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// How many nodes, 3 to 7.
    pub nodes: u32,
    /// How many cells.
    pub cells: u32,
    /// How many members a cell's first view has.
    pub replicas: u32,
    /// About how many cells somebody wants at a time.
    pub active: u32,
    /// How long the users of a cell think between two steps.
    pub think: Span,
    /// What every node runs with.
    pub config: Config,
    /// The clocks.
    pub clocks: ClockPlan,
    /// The network.
    pub network: NetworkPlan,
    /// The faults.
    pub faults: FaultPlan,
    /// How likely a crash is noticed by a witness, in percent.
    pub witnessed_percent: u64,
    /// How long the faults go on at least.
    pub duration: Span,
}

/// Faults that are injected at their own times.
const INJECTED: &[Injected] = &[
    (FaultKind::Crash, 10, 80),
    (FaultKind::Pause, 8, 60),
    (FaultKind::Partition, 20, 100),
    (FaultKind::OneWay, 20, 100),
    (FaultKind::Clog, 10, 80),
    (FaultKind::ClockStep, 2, 40),
    (FaultKind::ClockRate, 5, 60),
    (FaultKind::StandDown, 20, 120),
    (FaultKind::NoticeReplay, 5, 40),
    (FaultKind::ViewChange, 1, 20),
    (FaultKind::Impossible, 1, 20),
];

/// In hectic seeds faults are this many times as frequent.
const HECTIC: u64 = 3;
/// In a million messages so many are lost, doubled, or late.
const OFTEN: &[u64] = &[0, 1_000, 20_000, 100_000];

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64, clocks: Clocks) -> Self {
        let mut random = Random::new(seed);
        let (mut sizes, mut weather, mut trouble) = (random.fork(), random.fork(), random.fork());
        let nodes = draw_u32(&mut sizes, 3, 7);
        let cells = draw_u32(&mut sizes, 100, 400);
        let is_possible = |kind| clocks == Clocks::Synchronised || kind != FaultKind::ClockStep;
        let faults = draw_kinds(INJECTED, is_possible, &mut trouble);
        let steps = faults.iter().any(|&(kind, _)| kind == FaultKind::ClockStep);
        let config = draw_config(&mut weather);
        let lease_millis = u32::try_from(config.t_max.as_micros() / 1000).unwrap_or(0);
        // A third of all seeds is hectic: faults hit the same lease more than once, and two of three members decide.
        let hectic = trouble.chance(1, 3);
        let replicas = draw_u32(&mut sizes, 2, nodes).max(draw_u32(&mut sizes, 2, nodes));
        Self {
            seed,
            nodes,
            cells,
            replicas: if hectic { 3 } else { replicas },
            // The shorter the lease, the more there is to renew in a second.
            active: draw_u32(&mut sizes, 6, 12).max(draw_u32(&mut sizes, 6, 12 + lease_millis / 200)),
            think: config.t_max / 10 * sizes.between(1, 4),
            clocks: draw_clocks(&mut weather, &config, clocks, steps),
            network: NetworkPlan::draw(draw_way(&mut weather, &config), config.t_max, OFTEN, &mut weather),
            faults: FaultPlan::in_tenths(faults, if hectic { config.t_max / HECTIC } else { config.t_max }),
            witnessed_percent: [0, 50, 100][trouble.index(3)],
            duration: Span::from_secs(sizes.between(60, 120)),
            config,
        }
    }

    /// With another number of nodes than the seed says.
    pub fn with_nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self.replicas = self.replicas.min(nodes);
        self
    }
}

/// A span around `mean`, between an eighth of it and twice it.
pub(crate) fn around(mean: Span, random: &mut Random) -> Span {
    let mean = mean.as_micros();
    Span::from_micros(random.between(mean / 8, mean * 2 - mean / 8))
}

/// A span from `low` to `high`.
pub(crate) fn span_between(low: Span, high: Span, random: &mut Random) -> Span {
    Span::from_micros(random.between(low.as_micros(), high.as_micros()))
}

pub(crate) fn draw_u32(random: &mut Random, low: u32, high: u32) -> u32 {
    u32::try_from(random.between(u64::from(low), u64::from(high))).unwrap_or(high)
}

fn draw_config(random: &mut Random) -> Config {
    let t_max = Span::from_millis(random.between(500, 5000));
    let permille = |random: &mut Random, low, high| t_max * random.between(low, high) / 1000;
    let epsilon = Span::from_micros(permille(random, 5, 120).as_micros() / 2 * 2);
    let round_trip_max = permille(random, 10, 60);
    let rate_error_ppm = draw_u32(random, 1_000, 200_000);
    let renew_after = permille(random, 200, 450);
    let gather = permille(random, 0, 30).min(renew_after);
    let spare = t_max.saturating_sub(renew_after + epsilon * 2 + gather + round_trip_max * 2);
    let fitting = spare * 1_000_000 / (1_000_000 + u64::from(rate_error_ppm));
    let session = fitting.min((t_max / 2).saturating_sub(epsilon)) * random.between(1, 9) / 10;
    let backoff_min = Span::from_micros(random.between(200, 5_000));
    Config {
        t_max,
        epsilon,
        session,
        rate_error_ppm,
        round_trip_max,
        renew_after,
        gather,
        backoff_min,
        backoff_max: backoff_min.max(permille(random, 10, 100)),
        attempts_max: u8::try_from(random.between(4, 16)).unwrap_or(4),
        registers_max: 10_000,
        claims_max: 10_000,
        renewals_max: [16, 64, 4096][random.index(3)],
        batch_max: [1, 3, 64, 4096][random.index(4)],
        ..Config::default()
    }
}

/// The longest ordinary way of a message.
fn draw_way(random: &mut Random, config: &Config) -> Span {
    config.round_trip_max / 2 * random.between(1, 9) / 10
}

/// How fast or slow a clock may run: a pair at opposite edges is just within the rate error, `(1 + x) / (1 - x) <= 1 + ρ`.
pub(crate) fn rate_edge_ppm(rate_error_ppm: u32) -> u64 {
    let error = u64::from(rate_error_ppm);
    error * 1_000_000 / (2_000_000 + error)
}

pub(crate) fn draw_clocks(random: &mut Random, config: &Config, clocks: Clocks, steps: bool) -> ClockPlan {
    const HOUR: u64 = 3_600_000_000;
    const DAY: u64 = 24 * HOUR;
    let start = match random.below(4) {
        0 => HOUR,
        1 => 20_000 * DAY + random.below(DAY),
        2 => 55 * 365 * DAY + random.below(365 * DAY),
        _ => 1_000_000 * DAY,
    };
    let edge = rate_edge_ppm(config.rate_error_ppm);
    let rate_ppm_max = i32::try_from(random.between(0, edge)).unwrap_or(0);
    ClockPlan {
        start: WallTime::from_micros(start),
        window: (clocks == Clocks::Synchronised).then_some(config.epsilon),
        apart: Span::from_secs(200_000),
        rate_ppm_max: if random.chance(1, 2) { i32::try_from(edge).unwrap_or(0) } else { rate_ppm_max },
        steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_one_that_production_accepts() {
        for seed in 0..20_000 {
            for clocks in [Clocks::Synchronised, Clocks::Free] {
                let plan = Plan::draw(seed, clocks);
                assert_eq!(plan.config.check(), Ok(()), "seed {seed}");
                assert!((3..=7).contains(&plan.nodes) && (2..=plan.nodes).contains(&plan.replicas));
                assert!(plan.cells >= 100 && plan.active < plan.cells && plan.faults.kinds() >= 3);
            }
        }
    }

    #[test]
    fn a_seed_has_one_plan_and_plans_differ() {
        assert_eq!(Plan::draw(1, Clocks::Free), Plan::draw(1, Clocks::Free));
        let sizes: std::collections::BTreeSet<u32> =
            (0..100).map(|seed| Plan::draw(seed, Clocks::Free).nodes).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    }

    #[test]
    fn only_synchronised_clocks_step() {
        let steps = |clocks| (0..100).filter(|&seed| Plan::draw(seed, clocks).clocks.steps).count();
        assert_eq!(steps(Clocks::Free), 0);
        assert!(steps(Clocks::Synchronised) > 30);
    }
}
