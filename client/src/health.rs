//! What is wrong with a cluster, said plainly.

use base::Span;
use node::{ClockTrust, Status};

use crate::DaemonState;

/// A certificate that expires this soon is worth a word.
const EXPIRY_WARNING_S: u64 = 30 * 24 * 3_600;
const DAY_S: u64 = 24 * 3_600;

/// What is wrong, one line each; nothing if all is well. `now_s` counts from 1970.
pub fn problems(states: &[DaemonState], now_s: u64) -> Vec<String> {
    let mut found = Vec::new();
    let down = states.iter().filter(|state| state.status.is_err()).count();
    if down * 2 >= states.len() && down > 0 {
        found.push(format!(
            "{down} of {} daemons do not answer: without a majority nothing can be locked",
            states.len()
        ));
    }
    for state in states {
        let who = format!("daemon {} at {}", state.node, state.address);
        match &state.status {
            Ok(status) => {
                found.extend(of_one(status, now_s).into_iter().map(|what| format!("{who}: {what}")))
            }
            Err(why) => found.push(format!("{who}: {why}")),
        }
    }
    found
}

fn of_one(status: &Status, now_s: u64) -> Vec<String> {
    let mut found = Vec::new();
    if status.quarantine_ms > 0 {
        found.push(format!("started recently and votes again in {} ms", status.quarantine_ms));
    }
    let epsilon = Span::from_micros(status.clock.epsilon_us);
    match status.clock.state {
        ClockTrust::Sound => {}
        ClockTrust::Joining => {
            found.push(format!("does not know yet whether its clock is within {epsilon} of a majority; check that it reaches the others"));
        }
        ClockTrust::Off => found.push(format!(
            "its clock is off by more than {epsilon} allows, so it owns nothing; synchronise it (chronyd, systemd-timesyncd)"
        )),
    }
    for peer in status.peers.iter().filter(|peer| !peer.connected) {
        found.push(format!("has no connection to daemon {}", peer.node));
    }
    let left_s = status.certificate_expires_unix_s.saturating_sub(now_s);
    if left_s == 0 {
        found.push("its certificate has expired; renew it with `fleasefs cert renew`".to_owned());
    } else if left_s < EXPIRY_WARNING_S {
        found.push(format!(
            "its certificate expires in {} days; renew it with `fleasefs cert renew`",
            left_s / DAY_S
        ));
    }
    if status.supervisor.is_some_and(|supervisor| supervisor.crash_looping) {
        found.push("ends again and again soon after its start; its log says why".to_owned());
    }
    if status.draining {
        found.push("is stopping".to_owned());
    }
    found
}
