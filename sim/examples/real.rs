//! Scratch.
#![allow(clippy::print_stdout)]
use sim::cluster::{Clusters, StorePlan};
use sim::lease::Subject;
use sim::{Outcome, Simulation, Trace};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (from, count, which) = (args[0], args[1], args.get(2).copied().unwrap_or(0));
    let subjects: &[Subject] = match which { 0 => &[Subject::Flease], 1 => &[Subject::PaxosLease], _ => &Subject::ALL };
    let mut bad = 0;
    let begun = std::time::Instant::now();
    for seed in from..from + count {
        for &subject in subjects {
            let mut plan = Clusters::plan(subject, seed);
            plan.store = Some(StorePlan::draw(seed));
            let run = std::panic::catch_unwind(|| Clusters::run(subject, &plan, Trace::off()));
            match run {
                Err(_) => { bad += 1; println!("seed {seed} {} PANIC", subject.name()); }
                Ok(summary) => {
                    if count == 1 { println!("{summary}"); }
                    if !summary.is_clean() {
                        bad += 1;
                        println!("seed {seed} {}: {}", subject.name(), summary.violations().first().map_or("nothing".to_string(), |v| format!("{v}")));
                        if let Some(v) = summary.violations().first() { for f in &v.shown { println!("    {f}"); } }
                    }
                    if count == 1 && !summary.is_clean() && std::env::var("LINES").is_ok() {
                        let n = std::env::var("LINES").unwrap().parse().unwrap();
                        let v = summary.violations().first().unwrap();
                        for line in Clusters::explain(subject, &plan, v, n).lines() { println!("  {line}"); }
                    }
                }
            }
        }
    }
    println!("{bad} bad of {count}, {:.1} s", begun.elapsed().as_secs_f64());
}
