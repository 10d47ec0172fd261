fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a[1] == "scan" {
        for subject in sim::lease::Subject::ALL {
            for seed in a[2].parse().unwrap()..a[3].parse().unwrap() {
                let s = subject.run(&subject.plan(seed), sim::Trace::off());
                if !s.is_clean() { println!("{} {seed} {:?} {}", subject.name(), s.counts(), s.violations.iter().map(|v| v.to_string()).collect::<String>()); }
            }
        }
        return;
    }
    if a[1] == "bugs" {
        use lease::Bug::*;
        let max: u64 = a[2].parse().unwrap();
        for bug in [VotesCountedByMessages, WrongViewIsAVote, RenewalUnderOldBallot, DropWithoutFloor, DropBeforeExpiry, AgeWithoutSkew, FarFutureAccepted, NoGrace, EarlierIncarnationIsOwn, ClockAskedAtAcquireOnly, NoQuarantine, OwnVoteInQuarantine, BallotsWithoutInterval, ReadsUnderValidLease, NewcomerVotes, HoldsWhileReleasing, NoticeKillsEveryIncarnation, TimerFromLastVote] {
            if a.len() > 3 && format!("{bug:?}") != a[3] { continue; }
            for subject in sim::lease::Subject::ALL {
                let mut found = vec![];
                let mut first = String::new();
                let t = std::time::Instant::now();
                for seed in 0..max {
                    let mut plan = subject.plan(seed);
                    plan.config.bug = Some(bug);
                    let r = std::panic::catch_unwind(|| subject.run(&plan, sim::Trace::off()));
                    match r {
                        Err(_) => { found.push(seed); if first.is_empty() { first = "panic".into(); } }
                        Ok(s) => if let Some(v) = s.violations.first() { found.push(seed); if first.is_empty() { first = v.to_string(); } }
                    }
                }
                println!("{bug:?} {} found {}/{max} first {:?} {} ({:?})", subject.name(), found.len(), found.first(), first.chars().take(150).collect::<String>(), t.elapsed());
            }
        }
        return;
    }
    let subject = sim::lease::Subject::ALL[usize::from(a[1] == "p")];
    let plan = subject.plan(a[2].parse().unwrap());
    println!("{:?}", plan);
    let s = subject.run(&plan, sim::Trace::off());
    println!("{s}");
    if let Some(v) = s.violations.first() {
        let t = subject.explain(&plan, v, a[3].parse().unwrap());
        for l in t.lines() { println!("{l}"); }
    }
}
