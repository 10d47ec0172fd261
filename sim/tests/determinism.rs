//! The same seed gives the same run, byte for byte.

use base::Span;
use sim::cluster::{self, ClusterSummary};
use sim::lease::Subject;
use sim::{Plan, Summary, Trace};

/// Short, because a full trace has a line for every message.
fn short(subject: Subject, seed: u64) -> Plan {
    let mut plan = subject.plan(seed);
    plan.duration = Span::from_secs(5);
    plan
}

fn traced(subject: Subject, plan: &Plan) -> (Vec<u8>, Summary) {
    let mut sink = Vec::new();
    let summary = subject.run(plan, Trace::all(&mut sink));
    (sink, summary)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for subject in Subject::ALL {
        for seed in [3, 2024] {
            let plan = short(subject, seed);
            let (first, summary) = traced(subject, &plan);
            let (second, again) = traced(subject, &plan);
            assert!(first.len() > 1_000_000, "a trace of {} bytes shows nothing", first.len());
            assert!(first == second, "two runs of seed {seed} differ");
            assert_eq!(summary, again);
        }
    }
}

#[test]
fn a_trace_changes_nothing() {
    for subject in Subject::ALL {
        let plan = short(subject, 11);
        assert_eq!(traced(subject, &plan).1, subject.run(&plan, Trace::off()));
    }
}

#[test]
fn two_seeds_give_two_runs() {
    for subject in Subject::ALL {
        let [one, other] = [5, 6].map(|seed| traced(subject, &short(subject, seed)).0);
        assert!(one != other);
    }
}

fn traced_cluster(subject: Subject, seed: u64) -> (Vec<u8>, ClusterSummary) {
    let mut plan = cluster::plan(subject, seed);
    plan.duration = Span::from_secs(5);
    let mut sink = Vec::new();
    let summary = cluster::run(subject, &plan, Trace::all(&mut sink));
    (sink, summary)
}

#[test]
fn the_same_seed_gives_the_same_trace_of_a_cluster() {
    for subject in Subject::ALL {
        for seed in [3, 2024] {
            let (first, summary) = traced_cluster(subject, seed);
            let (second, again) = traced_cluster(subject, seed);
            assert!(first.len() > 100_000, "a trace of {} bytes shows nothing", first.len());
            assert!(first == second, "two runs of seed {seed} differ");
            assert_eq!(summary, again);
            let mut plan = cluster::plan(subject, seed);
            plan.duration = Span::from_secs(5);
            assert_eq!(summary, cluster::run(subject, &plan, Trace::off()), "a trace changes nothing");
        }
    }
}
