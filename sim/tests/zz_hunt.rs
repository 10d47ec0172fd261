use sim::cluster::{Clusters, StorePlan};
use sim::lease::Subject;
use sim::{Outcome, Simulation, Trace};
#[test]
fn hunt() {
    let from: u64 = std::env::var("FROM").map_or(0, |n| n.parse().unwrap());
    let to: u64 = std::env::var("TO").map_or(0, |n| n.parse().unwrap());
    for seed in from..to {
        for subject in Subject::ALL {
            let mut plan = Clusters::plan(subject, seed);
            if std::env::var("REAL").is_ok() {
                plan.store = Some(StorePlan::draw(seed));
            }
            if let Ok(p) = std::env::var("PERCENT") {
                plan.volumes.count = plan.volumes.count.max(1);
                plan.volumes.percent = p.parse().unwrap();
            }
            let summary = Clusters::run(subject, &plan, Trace::off());
            println!(
                "seed {seed} {subject:?} opened {} wanted {} {:?}",
                summary.trees.opened,
                summary.trees.content_wanted,
                summary.violations().first()
            );
        }
    }
}
