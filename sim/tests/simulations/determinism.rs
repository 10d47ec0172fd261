//! The same seed gives the same run, byte for byte.

use base::Span;
use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::{Leases, Subject};
use sim::{Plan, Simulation, Trace};

/// Short, because a full trace has a line for every message.
const DURATION: Span = Span::from_secs(5);

fn leases(subject: Subject, seed: u64) -> Plan {
    Plan { duration: DURATION, ..Leases::plan(subject, seed) }
}

fn clusters(subject: Subject, seed: u64) -> ClusterPlan {
    ClusterPlan { duration: DURATION, ..Clusters::plan(subject, seed) }
}

fn traced<S: Simulation>(subject: Subject, plan: &S::Plan) -> (Vec<u8>, S::Summary) {
    let mut sink = Vec::new();
    let summary = S::run(subject, plan, Trace::all(&mut sink));
    (sink, summary)
}

/// Runs each seed twice, and once more without a trace.
fn assert_repeatable<S>(plan: impl Fn(Subject, u64) -> S::Plan, bytes_min: usize)
where
    S: Simulation<Summary: PartialEq + std::fmt::Debug>,
{
    for subject in Subject::ALL {
        for seed in [3, 2024] {
            let plan = plan(subject, seed);
            let (first, summary) = traced::<S>(subject, &plan);
            let (second, again) = traced::<S>(subject, &plan);
            assert!(first.len() > bytes_min, "a trace of {} bytes shows nothing", first.len());
            assert!(first == second, "two runs of seed {seed} differ");
            assert_eq!(summary, again);
            assert_eq!(summary, S::run(subject, &plan, Trace::off()), "a trace changes nothing");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_repeatable::<Leases>(leases, 1_000_000);
}

#[test]
fn the_same_seed_gives_the_same_trace_of_a_cluster() {
    assert_repeatable::<Clusters>(clusters, 100_000);
}

#[test]
fn two_seeds_give_two_runs() {
    for subject in Subject::ALL {
        let [one, other] = [5, 6].map(|seed| traced::<Leases>(subject, &leases(subject, seed)).0);
        assert!(one != other);
    }
}
