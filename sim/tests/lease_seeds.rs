//! Both algorithms under many seeds.

use sim::lease::Subject;
use sim::{Summary, Trace};

fn run(subject: Subject, seed: u64) -> Summary {
    let summary = subject.run(&subject.plan(seed), Trace::off());
    println!("{summary}");
    summary
}

#[test]
fn x() {
    let mut bad = vec![];
    for subject in Subject::ALL {
        for seed in 0..30 {
            let t = std::time::Instant::now();
            let s = run(subject, seed);
            println!("took {:?} = {:.0}x", t.elapsed(), s.simulated.as_secs_f64() / t.elapsed().as_secs_f64());
            if !s.is_clean() { bad.push((subject, seed, s.violations)); }
        }
    }
    for b in &bad { println!("{b:?}"); }
}
