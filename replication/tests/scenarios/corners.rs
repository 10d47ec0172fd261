//! Histories in which something comes at the worst moment.

use replication::{Config, Memory, Message, Standing};

use crate::cluster::{Cluster, Told, ms};

fn short_logs() -> Config {
    Config { kept_max: 2, parts_max: 2, versions_max: 3, ..Config::default() }
}

/// Nodes 1 and 2 have gone on without node 3.
fn node_3_lags() -> Cluster {
    let mut cluster = Cluster::with(3, short_logs());
    cluster.serve(1);
    cluster.must_put(1, 1, 1);
    cluster.run(ms(50));
    cluster.renew(1);
    cluster.isolate(3);
    (0..8).for_each(|cell| _ = cluster.must_put(1, cell, 10 + cell));
    cluster
}

/// The promises of others may be here before the candidate's own is in its journal. What it has itself beyond what they
/// know to be committed is not committed.
#[test]
fn a_tail_of_its_own_is_not_read_before_it_is_committed() {
    let mut cluster = Cluster::with(3, Config::default());
    cluster.serve(1);
    cluster.must_put(1, 1, 1);
    cluster.run(ms(50));
    cluster.isolate(1);
    cluster.put(1, 1, 2);
    cluster.resign(1);
    cluster.mend();
    cluster.slow_disk(1, true);
    cluster.hold_back(|flying| matches!(flying.message, Message::Append { .. }));
    cluster.lead(1);
    let seen = cluster.try_ask(1, 1).ok().and_then(|ticket| cluster.answer(ticket)).flatten();
    cluster.kill(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.serve(2);
    assert!(seen.is_none_or(|seen| cluster.read(2, 1) == Some(seen)), "what was read stays");
}

/// The same, and the others have nothing at all: the object was over, and this node did not hear it. If it took what it has for nothing it
/// would keep that, and find it again the next time.
#[test]
fn who_has_something_does_not_find_that_there_is_nothing() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 1);
    cluster.run(ms(50));
    cluster.resign(1);
    cluster.bury(1);
    cluster.bury(2);
    cluster.slow_disk(3, true);
    cluster.lead_as(3, false);
    cluster.renew(3);
    cluster.run(ms(50));
    cluster.slow_disk(3, false);
    cluster.run(ms(50));
    assert_eq!(cluster.replica(3).standing(), Standing::Serving);
    cluster.assert_same(&[1, 2, 3]);
}

/// Nobody asks again for what has arrived: if its acknowledgement is lost, the next offer is answered with it.
#[test]
fn who_has_taken_a_state_over_says_so_again() {
    let mut cluster = node_3_lags();
    cluster.hold_back(|flying| flying.from == 3 && matches!(flying.message, Message::Appended { .. }));
    cluster.mend();
    cluster.run(ms(300));
    assert!(cluster.replica(3).is_whole() && !cluster.held.is_empty());
    // The connection breaks.
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(500));
    cluster.must_put(1, 20, 20);
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
    cluster.kill(2);
    cluster.must_put(1, 21, 21);
}

/// An offer that has waited for its disk arrives after the state was taken over, and after a new start of the process.
#[test]
fn a_late_offer_drops_nothing() {
    let mut cluster = node_3_lags();
    cluster.mend();
    let late = {
        cluster.hold_back(|flying| matches!(flying.message, Message::Offer { .. }));
        cluster.run(ms(300));
        std::mem::take(&mut cluster.held)
    };
    assert!(!late.is_empty());
    cluster.let_go();
    cluster.run(ms(500));
    // Only nodes 1 and 3 have this.
    cluster.kill(2);
    let mark = cluster.must_put(1, 20, 20);
    cluster.kill(3);
    cluster.start(3);
    cluster.hold_back(|flying| matches!(flying.message, Message::Pull { .. }));
    cluster.deliver_all(late);
    cluster.power_off(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.start(1);
    cluster.start(2);
    cluster.serve_soon(3);
    assert_eq!((cluster.read(3, 20), cluster.replica(3).rest().generation), (Some(20), mark.generation));
}

/// The end of a transfer was not synced, and what was acknowledged after it is lost with it: what the source has on disk
/// does not make up for that.
#[test]
fn who_forgot_that_a_transfer_has_ended_is_not_counted_on() {
    let mut cluster = node_3_lags();
    let before = cluster.replica(3).committed();
    cluster.hold_back(|flying| matches!(flying.message, Message::Pull { after: Some(_), .. }));
    cluster.mend();
    cluster.run(ms(300));
    cluster.sync_disk(3);
    assert_eq!(cluster.replica(3).memory(), Memory::Mixed { source: base::NodeId(1) });
    cluster.let_go();
    cluster.run(ms(500));
    assert!(cluster.replica(3).committed() > before);
    cluster.sync_disk(1);
    cluster.isolate(2);
    let mark = cluster.must_put(1, 20, 20);
    for node in [1, 3] {
        cluster.power_off(node);
        cluster.start(node);
    }
    cluster.mend();
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(5_000));
    assert_eq!(cluster.replica(2).standing(), Standing::Serving);
    assert_eq!(cluster.read(2, 20), None);
    assert!(cluster.replica(2).rest().generation > mark.generation, "it is lost, and nobody says so");
    cluster.try_sync(2, mark).unwrap_err();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// A state is offered once, and again only if nothing comes back: each offer waits for a sync.
#[test]
fn not_every_entry_is_accompanied_by_an_offer() {
    let mut cluster = node_3_lags();
    cluster.hold_back(|flying| matches!(flying.message, Message::Offer { .. }));
    cluster.mend();
    cluster.run(ms(250));
    let before = cluster.held.len();
    assert!(before > 0);
    (0..50).for_each(|value| _ = cluster.must_put(1, 20, value));
    assert_eq!(cluster.held.len(), before);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
    assert!(
        !cluster.told.iter().any(|(_, told)| matches!(told, Told::Event(replication::Event::Unsound { .. })))
    );
}

/// A newcomer whose acknowledgements were lost has trimmed its log beyond what is sent again.
#[test]
fn who_lacks_nothing_is_known_to_lack_nothing() {
    let mut cluster = Cluster::of(3, 4, Config { kept_max: 2, ..Config::default() });
    cluster.serve(1);
    cluster.renew(1);
    cluster.hold_back(|flying| flying.from == 4 && matches!(flying.message, Message::Appended { .. }));
    cluster.admit(1, 4).unwrap();
    for value in 0..20 {
        cluster.must_put(1, 1, value);
        cluster.run(ms(30));
    }
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(2_000));
    assert_eq!(cluster.members(1), [1, 2, 3, 4]);
}

/// The disk of a backup is so slow that entries are sent to it again, with what is committed. It has trimmed its log beyond them.
#[test]
fn who_makes_nothing_of_what_is_sent_again_is_told_what_is_committed() {
    let mut cluster = Cluster::with(3, Config::default());
    cluster.serve(1);
    cluster.renew(1);
    cluster.must_put(1, 1, 1);
    cluster.run(ms(50));
    cluster.slow_disk(3, true);
    (2..4).for_each(|value| _ = cluster.must_put(1, 1, value));
    cluster.forget_log(3);
    cluster.run(ms(1_000));
    cluster.slow_disk(3, false);
    cluster.run(ms(1_000));
    assert_eq!(cluster.replica(3).committed(), cluster.replica(1).committed());
}

/// A backup that has started again has what it had: a sync does not wait for the next entry.
#[test]
fn who_starts_again_syncs_what_it_has() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.isolate(3);
    let mark = cluster.must_put(1, 1, 1);
    cluster.kill(2);
    cluster.start(2);
    let sync = cluster.sync(1, mark);
    cluster.run(ms(1_000));
    assert!(cluster.is_durable(sync));
}
