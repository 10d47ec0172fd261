//! Clocks that are wrong: what may go wrong then, and what does not.

use lease::PaxosRules;
use node::file::{FileBody, FileReplyBody};
use node::{ReplyBody, ShardEvent, Unavailable};
use replication::Mark;

use crate::cluster::{Cluster, ms};
use crate::files::{Daemons, FILE, Writer, created, data, read, write};
use crate::grants::take;

/// The clock of a file's primary goes back while no other daemon reaches it, and another one takes over. What was
/// acknowledged there, and the two.
fn two_primaries() -> (Daemons, Mark, (u32, u32)) {
    let (mut cluster, members) = created(None);
    let (old, new) = (members[0], members[1]);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, old, write("before"));
    cluster.isolate(old);
    cluster.daemons.get_mut(&old).unwrap().offset_ms = -3_000;
    cluster.run(ms(2_200));
    assert_eq!(read(&mut cluster, new), data("before"));
    let mark = writer.must(&mut cluster, new, write("behind"));
    (cluster, mark, (old, new))
}

#[test]
fn who_leads_by_a_clock_that_went_back_reads_the_past_and_writes_nothing() {
    let (mut cluster, _, (old, new)) = two_primaries();
    assert_eq!(read(&mut cluster, old), data("before"), "a stale answer");
    assert_eq!(read(&mut cluster, new), data("behind"));
    let mut other = Writer { number: 10 };
    assert_eq!(other.change(&mut cluster, old, write("never!")), None, "no majority has it");
    // As soon as others reach it, it leads no more, and takes what it missed.
    cluster.mend();
    cluster.run(ms(300));
    assert!(cluster.events(old).iter().any(|event| matches!(event, ShardEvent::Clock(_))));
    assert_eq!(read(&mut cluster, old), Some(FileReplyBody::Unavailable(Unavailable::Clock)));
    cluster.daemons.get_mut(&old).unwrap().offset_ms = 0;
    cluster.run(ms(6_000));
    assert_eq!(read(&mut cluster, new), data("behind"));
    let machine = |node: u32| cluster.shard(node).file(FILE).unwrap().machine();
    assert_eq!(machine(old), machine(new));
}

#[test]
fn what_a_later_primary_wrote_is_not_told_to_be_lost() {
    let (mut cluster, mark, (old, _)) = two_primaries();
    let id = cluster.ask_file(1, old, FILE, FileBody::Sync { oldest: mark, newest: mark });
    cluster.run(ms(20));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
}

/// A daemon that was started anew has the lock's lease, and its clock goes back to when it was still silent.
#[test]
fn a_lock_is_given_back_to_an_owner_whose_clock_went_back() {
    let mut cluster: Cluster<PaxosRules> = Cluster::new(3);
    cluster.kill(1);
    cluster.start(1);
    cluster.run(ms(3_000));
    take(&mut cluster);
    let token = cluster.clients[&1].token();
    cluster.daemons.get_mut(&1).unwrap().offset_ms = -2_500;
    assert_eq!(cluster.release(1, 1, token), Some(ReplyBody::Released));
    cluster.daemons.get_mut(&1).unwrap().offset_ms = 0;
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    let (next, _) = cluster.granted(2, id, ms(50));
    assert!(next > token);
}
