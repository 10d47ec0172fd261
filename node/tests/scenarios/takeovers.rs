//! What a daemon tells of a file that it has taken over: whose it was, how that ended, and how long nobody served it.

use base::{Process, Span};
use node::{EndedSeen, ShardEvent};

use crate::cluster::ms;
use crate::files::{Daemons, Writer, created, data, read, write};

/// What a daemon has told of files taken over, and how long it was for.
fn told(cluster: &Daemons, node: u32) -> Vec<(Process, EndedSeen, Span)> {
    let told = |event: &ShardEvent| match *event {
        ShardEvent::FileTakenOver { from, ended, stall, .. } => Some((from, ended, stall)),
        _ => None,
    };
    cluster.events(node).iter().filter_map(told).collect()
}

/// Asks one member after the other until one answers.
fn served(cluster: &mut Daemons, members: &[u32]) -> u32 {
    for _ in 0..200 {
        if let Some(node) = members.iter().copied().find(|&node| read(cluster, node) == data("before")) {
            return node;
        }
    }
    panic!("nobody serves it")
}

#[test]
fn who_takes_a_file_over_says_whose_it_was_and_how_that_ended() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("before"));
    assert!(members.iter().all(|&node| told(&cluster, node).is_empty()), "it was nobody's before");

    cluster.kill_with_notice(members[0]);
    let second = served(&mut cluster, &members[1..]);
    let [(from, ended, stall)] = told(&cluster, second)[..] else { panic!("{:?}", told(&cluster, second)) };
    assert_eq!((from, ended), (Process::new(members[0], 1), EndedSeen::Died));
    assert!(stall <= ms(200), "{stall}");

    // Back, and it votes again.
    cluster.start(members[0]);
    cluster.run(ms(3_000));
    cluster.kill(second);
    let rest: Vec<u32> = members.iter().copied().filter(|node| *node != second).collect();
    let third = served(&mut cluster, &rest);
    let last = told(&cluster, third).pop();
    let Some((from, ended, stall)) = last else { panic!("{third} tells nothing") };
    assert_eq!((from, ended), (Process::new(second, 1), EndedSeen::Expired));
    assert!(stall > ms(500) && stall < ms(4_000), "it had to run out: {stall}");

    cluster.start(second);
    cluster.run(ms(3_000));
    assert_eq!(read(&mut cluster, third), data("before"));
    assert_eq!(cluster.order_drain(third, false), Ok(()));
    cluster.run(ms(50));
    let others: Vec<u32> = members.iter().copied().filter(|node| *node != third).collect();
    let fourth = served(&mut cluster, &others);
    let Some((from, ended, stall)) = told(&cluster, fourth).pop() else { panic!("{fourth} tells nothing") };
    assert_eq!((from.node.0, ended), (third, EndedSeen::HandedOver));
    assert!(stall < ms(50), "{stall}");
}
