//! Scenarios on virtual time: real quinn, real TLS, and a network that does what the scenario says.

use std::time::Duration;

use super::udp::Faults;
use super::world::{Setup, World, ip, numbered_datagram, numbered_frame, text_of_close, text_of_refusal};
use crate::{CloseReason, Config};

const SECOND: Duration = Duration::from_secs(1);

fn silent() -> String {
    text_of_close(CloseReason::Silent(Config::default().silent_after()))
}

#[test]
fn nodes_meet_and_tell_each_other_the_time() {
    let mut world = World::new(&Setup { nodes: 3, ..Setup::default() });
    world.run(SECOND);
    for (node, peer) in [(1, "n2"), (1, "n3"), (2, "n1"), (2, "n3"), (3, "n1"), (3, "n2")] {
        assert_eq!(world.log.of(node, &format!("opened {peer}")).len(), 1, "{}", world.log);
        let times = world.log.of(node, &format!("time {peer}")).len();
        assert!((7..=10).contains(&times), "one exchange each 125 ms, not {times}");
    }
}

/// A question, an answer that asks, an answer, and what acknowledges it.
#[test]
fn a_beat_of_two_nodes_is_four_packets() {
    let mut world = World::new(&Setup::default());
    world.connect();
    world.run(SECOND);
    let sent = |world: &mut World| {
        [1, 2].map(|node| {
            let (tell, told) = std::sync::mpsc::channel();
            world.command(node, move |node| tell.send(node.links[0].stats().packets_sent).unwrap());
            world.run(Duration::from_millis(1));
            told.recv().unwrap()
        })
    };
    let before = sent(&mut world);
    world.run(SECOND);
    let after = sent(&mut world);
    for node in [0, 1] {
        let packets = after[node] - before[node];
        assert!((14..=18).contains(&packets), "two for each of 8 beats, not {packets} in a second");
    }
}

#[test]
fn frames_arrive_once_and_in_order_over_a_bad_network() {
    let faults = Faults { lost_percent: 10, doubled_percent: 10 };
    let mut world = World::new(&Setup { faults, ..Setup::default() });
    world.connect();
    for batch in 0..20 {
        world.command(1, move |node| {
            for number in batch * 100..(batch + 1) * 100 {
                node.links[0].send(numbered_frame(number)).unwrap();
                node.links[0].datagram(numbered_datagram(1, number)).unwrap();
            }
        });
        world.run(Duration::from_millis(50));
    }
    world.run(5 * SECOND);
    assert_eq!(world.log.numbers(2, "frames n1"), (0..2_000).collect::<Vec<_>>());
    let datagrams = world.log.numbers(2, "datagrams n1");
    assert!((1_000..2_000).contains(&datagrams.len()), "some got lost, most arrived: {}", datagrams.len());
    let mut once = datagrams.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), datagrams.len(), "no datagram arrived twice");
    assert!(world.log.of(1, "closed").is_empty(), "a bad network is no dead peer");
}

#[test]
fn a_partition_ends_the_connection_and_its_healing_brings_it_back() {
    let mut world = World::new(&Setup::default());
    world.connect();
    world.run(SECOND);
    let (cut, seen) = (world.sim.elapsed(), world.seen());
    let config = Config::default();
    let (missed, beat) = (cut + config.silent_after(), config.heartbeat_interval);
    world.sim.partition(ip(1), ip(2));
    for node in [1, 2] {
        let closed = world.run_until(node, &silent(), seen, 3 * SECOND);
        assert!((missed - beat..=missed + beat).contains(&closed.at), "{:?}", closed.at);
    }
    world.run_until(1, "no answer from 10.0.0.2:7000", seen, 5 * SECOND);
    world.run(10 * SECOND);
    let (healed, seen) = (world.sim.elapsed(), world.seen());
    world.sim.repair(ip(1), ip(2));
    let opened = world.run_until(2, "opened n1#1", seen, 5 * SECOND);
    assert!(opened.at < healed + config.call_timeout_max + config.pause_max + SECOND / 2, "{:?}", opened.at);
}

#[test]
fn a_partition_in_one_direction_ends_both_ends() {
    for deaf in [1, 2] {
        let mut world = World::new(&Setup::default());
        world.connect();
        world.run(SECOND);
        let seen = world.seen();
        let heard = 3 - deaf;
        world.sim.partition_oneway(ip(heard), ip(deaf));
        let closed = world.run_until(deaf, &silent(), seen, 3 * SECOND);
        let told = world.run_until(heard, "the peer closed it: silent for 1s", seen, 3 * SECOND);
        assert!(told.at < closed.at + Duration::from_millis(10), "the way back works");
    }
}

#[test]
fn a_restarted_answerer_ends_the_connection_of_its_predecessor_at_once() {
    let mut world = World::new(&Setup::default());
    world.connect();
    world.run(SECOND);
    world.sim.crash(ip(2));
    world.run(Duration::from_millis(300));
    let (restarted, seen) = (world.sim.elapsed(), world.seen());
    world.sim.bounce(ip(2));
    let replaced = world.run_until(1, &text_of_close(CloseReason::Replaced), seen, SECOND);
    // The next heartbeat of the old connection, one way and back.
    let heartbeat = Config::default().heartbeat_interval;
    assert!(replaced.at < restarted + heartbeat + Duration::from_millis(20), "{:?}", replaced.at);
    let opened = world.run_until(1, "opened n2#2", seen, SECOND);
    assert!(opened.at < replaced.at + Duration::from_millis(50), "{:?}", opened.at);
}

#[test]
fn a_restarted_caller_is_back_before_its_old_connection_is_missed() {
    let mut world = World::new(&Setup::default());
    world.connect();
    world.run(SECOND);
    world.sim.crash(ip(1));
    let (restarted, seen) = (world.sim.elapsed(), world.seen());
    world.sim.bounce(ip(1));
    let opened = world.run_until(2, "opened n1#2", seen, SECOND);
    assert!(opened.at < restarted + Duration::from_millis(50), "{:?}", opened.at);
    world.run_until(2, "closed n1#1", seen, 2 * SECOND);
    world.run(3 * SECOND);
    assert!(world.log.of(2, "closed n1#2").is_empty(), "the new connection stays");
}

#[test]
fn the_word_that_a_process_is_dead_makes_its_caller_call_at_once() {
    let mut world = World::new(&Setup::default());
    world.connect();
    world.run(SECOND);
    world.sim.crash(ip(2));
    world.sim.bounce(ip(2));
    let (told, seen) = (world.sim.elapsed(), world.seen());
    world.command(1, |node| node.callers[0].call_again());
    world.run_until(1, "its process is dead", seen, SECOND);
    let opened = world.run_until(1, "opened n2#2", seen, SECOND);
    assert!(opened.at < told + Duration::from_millis(40), "{:?} after {told:?}", opened.at);
}

#[test]
fn a_refusal_reaches_the_other_side_with_its_text() {
    for (refusing, other) in [(1, 2), (2, 1)] {
        let text = "map 7 is not map 8; copy the newer one";
        let mut world = World::new(&Setup { refuses: Some((refusing, text)), ..Setup::default() });
        let told = text_of_refusal(text);
        world.run_until(other, &told, 0, SECOND);
        world.run_until(refusing, &format!("we refused the peer: another cluster map: {text}"), 0, SECOND);
        world.run(5 * SECOND);
        assert!(world.log.of(1, "opened").is_empty() && world.log.of(2, "opened").is_empty());
        assert!(world.log.of(other, "settles").is_empty(), "nothing is noted of who does not let us in");
        let calls = world.log.of(1, "failure").len();
        assert!((5..20).contains(&calls), "it calls again, with growing pauses: {calls} calls in 5 s");
    }
}

#[test]
fn a_node_of_another_version_is_told_so_until_it_is_upgraded() {
    let mut world = World::new(&Setup { old_runs: 1, nodes: 3, ..Setup::default() });
    world.run_until(1, "failure n2: the peer speaks another version", 0, SECOND);
    world.run_until(1, "failure n3: the peer speaks another version", 0, SECOND);
    world.run_until(2, "refused: the peer speaks another version", 0, SECOND);
    world.run(5 * SECOND);
    for node in [2, 3] {
        assert!(world.log.of(node, "opened n1").is_empty());
        assert!(world.log.of(node, "closed").is_empty(), "the others are not disturbed");
    }
    world.sim.bounce(ip(1));
    world.run_until(2, "opened n1#2", 0, SECOND);
    world.run_until(3, "opened n1#2", 0, SECOND);
}

#[test]
fn calls_to_nobody_go_on_with_growing_pauses() {
    let setup = Setup { nodes: 1, calls_nobody: true, ..Setup::default() };
    let mut world = World::new(&setup);
    world.sim.host(ip(99), std::future::pending);
    world.run(60 * SECOND);
    let failures = world.log.of(1, "n99: no answer from 10.0.0.99:7000");
    let gaps: Vec<_> = failures.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    let longest = setup.config.call_timeout_max + setup.config.pause_max;
    assert!(gaps[0] < Duration::from_millis(600), "{gaps:?}");
    assert!(
        gaps.last().is_some_and(|gap| *gap > setup.config.call_timeout_max && *gap < longest + SECOND / 10)
    );
    assert!(failures.last().unwrap().what.starts_with(&format!("failure {} ", failures.len())));
}

/// Everything at once, and what all nodes wrote down.
fn mixed_run(seed: u64) -> String {
    let faults = Faults { lost_percent: 5, doubled_percent: 5 };
    let mut world = World::new(&Setup { seed, faults, nodes: 3, ..Setup::default() });
    world.run(SECOND);
    world.sim.partition(ip(1), ip(2));
    world.command(3, |node| {
        for link in node.links {
            (0..200).for_each(|number| link.send(numbered_frame(number)).unwrap());
        }
    });
    world.run(2 * SECOND);
    world.sim.repair(ip(1), ip(2));
    world.sim.bounce(ip(3));
    world.run(3 * SECOND);
    world.log.to_string()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = mixed_run(7);
    assert_eq!(first, mixed_run(7));
    assert_ne!(first, mixed_run(8));
    assert!(first.contains("opened n3#2") && first.contains(&silent()), "something happened:\n{first}");
}
