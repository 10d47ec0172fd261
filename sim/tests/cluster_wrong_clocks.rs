//! Clusters with clocks that are wrong: what `docs/semantics.md` names may go wrong then, and nothing else.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

mod finding;

use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject;
use sim::{FaultKind, Outcome as _, Simulation as _, Trace};

/// A seed with its own mix of faults, and wrong clocks again and again.
fn plan(subject: Subject, seed: u64) -> ClusterPlan {
    let mut plan = Clusters::plan(subject, seed);
    plan.faults = plan.faults.and(FaultKind::ClockWrong, plan.shard.lease.t_max * 6);
    plan
}

#[test]
fn probe() {
    let seeds = std::env::var("SEEDS").map_or(20, |n| n.parse().unwrap());
    let first: u64 = std::env::var("FIRST").map_or(0, |n| n.parse().unwrap());
    let only = std::env::var("TRACE").ok();
    for subject in Subject::ALL {
        let (mut loose, mut stale, mut shared) = (0, 0, 0);
        for seed in first..first + seeds {
            let plan = plan(subject, seed);
            let summary = match std::panic::catch_unwind(|| Clusters::run(subject, &plan, Trace::off())) {
                Ok(summary) => summary,
                Err(_) => {
                    println!("PANIC {seed} {}", subject.name());
                    continue;
                }
            };
            loose += summary.judgement.loose;
            stale += summary.judgement.stale;
            shared += summary.locks_shared;
            if !summary.is_clean() {
                println!("{summary}");
                if only.is_some() {
                    for v in &summary.violations {
                        for line in Clusters::explain(subject, &plan, v, 600).lines() { println!("{line}"); }
                    }
                }
            }
        }
        println!("{}: loose {loose} stale {stale} shared {shared}", subject.name());
    }
}
