//! Parts of a state that cannot be read any more: they are never served, and come back from whoever has them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::NodeId;
use replication::{Bug, Config, Event, LeadError, Memory, Message, Standing};

use crate::cluster::{Cells, Cluster, Flying, Key, Told, ms};

fn config(bug: Option<Bug>) -> Config {
    Config { bug, ..Config::default() }
}

/// All three have the same, in cells 1 to 6.
fn three_alike(config: Config) -> Cluster {
    let mut cluster = Cluster::with(3, config);
    cluster.serve(1);
    cluster.renew(1);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    cluster.run(ms(50));
    cluster.assert_same(&[1, 2, 3]);
    cluster
}

const fn is_about_parts(message: &Message<Cells>) -> bool {
    matches!(message, Message::Lacks { .. } | Message::Found { .. })
}

fn serves(cluster: &Cluster, node: u32) -> bool {
    cluster.replica(node).standing() == Standing::Serving
}

#[test]
fn a_backup_gets_back_just_what_it_lacks() {
    let mut cluster = three_alike(config(None));
    let found = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&found);
    cluster.hold_back(move |flying| {
        if let Message::Found { parts, .. } = &flying.message {
            seen.borrow_mut().extend(parts.iter().map(|(key, _)| *key));
        }
        assert!(!matches!(flying.message, Message::Offer { .. }), "no whole state is needed");
        false
    });
    cluster.rot(2, &[Key::Cell(3)]);
    assert!(cluster.was_told(2, &Told::Event(Event::Damaged { parts: 1 })));
    cluster.settle();
    assert!(cluster.was_told(2, &Told::Event(Event::Mended)));
    assert_eq!(*found.borrow(), [Key::Cell(3), Key::Cell(3)], "of both that have it");
    cluster.assert_same(&[1, 2, 3]);
    assert!(serves(&cluster, 1));
}

#[test]
fn who_reads_again_what_it_could_not_read_starts_with_what_came_instead() {
    let mut cluster = three_alike(config(None));
    // What it reads again is no older than its journal.
    cluster.keeps_mended = false;
    cluster.checkpoint(3);
    cluster.while_unreadable(3, Key::Cell(3), |cluster| {
        cluster.must_put(1, 3, 33);
        cluster.run(ms(2_000));
        cluster.assert_same(&[1, 2, 3]);
    });
    cluster.run(ms(2_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// What node 1 says of a cell that it cannot read any more.
fn what_is_damaged_is_not_served(bug: Option<Bug>) {
    let mut cluster = three_alike(config(bug));
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(1, &[Key::Cell(3)]);
    if let Ok(ticket) = cluster.try_ask(1, 3) {
        assert_eq!(cluster.answer(ticket), Some(Some(30)));
    }
    assert!(!serves(&cluster, 1), "another one should lead");
    cluster.serve(2);
    assert_eq!(cluster.read(2, 3), Some(30));
    cluster.must_put(2, 3, 31);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// Node 2 lacks something, and has the longest log of those who are there.
fn who_lacks_something_is_nobodys_source(bug: Option<Bug>) {
    let mut cluster = three_alike(config(bug));
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.resign(1);
    match cluster.try_lead(2) {
        Ok(_) => {
            cluster.run(ms(500));
            assert_eq!(cluster.read(2, 3), Some(30));
        }
        Err(error) => assert_eq!(error, LeadError::Incomplete),
    }
    cluster.let_go();
    cluster.run(ms(500));
    cluster.serve(2);
    assert_eq!(cluster.read(2, 3), Some(30));
}

/// The process ends before anybody has answered.
fn what_is_lacking_stays_known(bug: Option<Bug>) {
    for takes_checkpoint in [false, true] {
        let mut cluster = three_alike(config(bug));
        cluster.hold_back(|flying| is_about_parts(&flying.message));
        cluster.rot(2, &[Key::Cell(3), Key::Cell(5)]);
        if takes_checkpoint {
            cluster.checkpoint(2);
        }
        cluster.kill(2);
        cluster.must_put(1, 7, 70);
        cluster.start(2);
        assert!(cluster.replica(2).lacks());
        assert_eq!(cluster.try_lead(2), Err(LeadError::Incomplete));
        cluster.serve(1);
        cluster.let_go();
        cluster.run(ms(500));
        cluster.assert_same(&[1, 2, 3]);
    }
}

#[test]
fn who_lacks_something_goes_on_taking_entries_in() {
    let mut cluster = three_alike(config(None));
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.kill(3);
    let mark = cluster.must_put(1, 1, 11);
    // But it has not got what that stands behind.
    let synced = cluster.sync(1, mark);
    cluster.run(ms(500));
    assert!(!cluster.is_durable(synced));
    cluster.let_go();
    cluster.run(ms(500));
    assert!(cluster.is_durable(synced));
    assert_eq!(cluster.replica(2).committed(), cluster.replica(1).committed());
    assert_eq!(cluster.replica(2).machine(), cluster.replica(1).machine());
}

#[test]
fn if_everybody_has_gone_on_a_later_state_takes_the_place() {
    for pages in [1, 100] {
        let mut cluster = three_alike(Config { parts_max: pages, versions_max: pages + 1, ..config(None) });
        cluster.hold_back(|flying| is_about_parts(&flying.message));
        cluster.rot(2, &[Key::Cell(3), Key::Executed]);
        (1..5).for_each(|cell| _ = cluster.must_put(1, cell, 100 + cell));
        cluster.let_go();
        cluster.run(ms(1_000));
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// While node 2 gets a later state, it is the only one beside node 1 that has the last entries.
#[test]
fn who_is_given_a_state_keeps_what_it_has_acknowledged() {
    let mut cluster = three_alike(Config { parts_max: 1, versions_max: 2, ..config(None) });
    cluster.isolate(3);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.must_put(1, 3, 31);
    let pages = Cell::new(0);
    cluster.hold_back(move |flying| {
        pages.set(pages.get() + u64::from(matches!(flying.message, Message::Pulled { .. })));
        pages.get() > 3 && matches!(flying.message, Message::Pulled { .. })
    });
    cluster.run(ms(300));
    assert!(cluster.held.iter().any(|flying| flying.to == 2), "it is being given a state");
    assert_eq!(cluster.replica(2).memory(), Memory::Clean);
    cluster.kill(1);
    cluster.mend();
    cluster.held.clear();
    cluster.let_go();
    cluster.serve_soon(3);
    assert_eq!(cluster.read(3, 3), Some(31), "from the log of who lacks something");
    cluster.run(ms(500));
    assert_eq!(cluster.replica(2).machine(), cluster.replica(3).machine());
}

#[test]
fn a_damaged_and_a_clean_one_recover_if_a_log_goes_so_far() {
    let mut cluster = three_alike(config(None));
    cluster.isolate(3);
    cluster.must_put(1, 1, 11);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.kill(1);
    cluster.mend();
    cluster.serve(3);
    assert_eq!(cluster.read(3, 1), Some(11));
    cluster.let_go();
    cluster.run(ms(500));
    assert_eq!(cluster.replica(2).machine(), cluster.replica(3).machine());
}

/// Node 3 lacks more than the log of node 2 still has, and node 2 lacks a part of its state.
fn too_far_apart() -> Cluster {
    let mut cluster = three_alike(Config { kept_max: 1, ..config(None) });
    cluster.isolate(3);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 100 + cell));
    cluster.run(ms(50));
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.kill(1);
    cluster.mend();
    cluster.let_go();
    cluster.lead(3);
    cluster.renew(3);
    cluster.run(ms(3_000));
    assert!(!serves(&cluster, 3), "nobody who is there has what was in the cell");
    let blocked = Event::Blocked { missing: vec![NodeId(1)], forgot: vec![NodeId(2)] };
    assert!(cluster.was_told(3, &Told::Event(blocked)));
    cluster
}

#[test]
fn otherwise_the_third_is_waited_for() {
    let mut cluster = too_far_apart();
    cluster.start(1);
    cluster.run(ms(1_000));
    assert!(!cluster.replica(2).lacks(), "it has from node 1 what it lacks");
    cluster.serve_soon(2);
    assert_eq!(cluster.read(2, 3), Some(103));
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn or_an_operator_gives_up_what_only_that_has() {
    let mut cluster = too_far_apart();
    assert!(cluster.accept_loss(3));
    // Node 1 might have dropped what it had, too, and is waited for.
    cluster.run(ms(3_000));
    assert!(serves(&cluster, 3));
    let generation = cluster.replica(3).rest().generation;
    assert!(cluster.was_told(3, &Told::Event(Event::Lost { generation })));
    assert_eq!(cluster.read(3, 3), Some(30));
    cluster.run(ms(500));
    cluster.start(1);
    cluster.must_put(3, 1, 1);
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn two_that_lack_different_parts_help_each_other() {
    let mut cluster = three_alike(config(None));
    cluster.kill(3);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(1, &[Key::Cell(1), Key::Cell(2)]);
    cluster.rot(2, &[Key::Cell(3), Key::Executed]);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.serve(2);
    cluster.run(ms(50));
    cluster.assert_same(&[1, 2]);
    assert_eq!((cluster.read(2, 1), cluster.read(2, 3)), (Some(10), Some(30)));
}

#[test]
fn what_is_damaged_while_a_state_is_taken_over_comes_again() {
    for after in 0..12 {
        let mut cluster =
            Cluster::with(3, Config { kept_max: 2, parts_max: 1, versions_max: 2, ..config(None) });
        cluster.serve(1);
        cluster.must_put(1, 1, 1);
        cluster.run(ms(50));
        cluster.isolate(3);
        (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
        let pages = Cell::new(0);
        cluster.hold_back(move |flying| {
            pages.set(pages.get() + usize::from(matches!(flying.message, Message::Pulled { .. })));
            pages.get() > after && matches!(flying.message, Message::Pulled { .. })
        });
        cluster.mend();
        cluster.run(ms(300));
        let there: Vec<Key> = (1..7).map(Key::Cell).collect();
        cluster.rot(3, &there);
        if after % 2 == 0 {
            cluster.kill(3);
            cluster.start(3);
        }
        cluster.let_go();
        cluster.renew(1);
        cluster.run(ms(1_000));
        cluster.assert_same(&[1, 2, 3]);
    }
}

#[test]
fn a_start_that_cannot_read_some_part_keeps_the_rest() {
    for (kept_max, takes_checkpoint) in [(1, true), (100, true), (100, false)] {
        let mut cluster = three_alike(Config { kept_max, ..config(None) });
        if takes_checkpoint {
            cluster.checkpoint(2);
        }
        cluster.must_put(1, 3, 33);
        cluster.must_put(1, 1, 11);
        let (tail, promised) = (cluster.replica(2).tail(), cluster.replica(2).promised());
        cluster.rot_disk(2, &[Key::Cell(3), Key::Cell(4)]);
        let replica = cluster.replica(2);
        assert_eq!((replica.tail(), replica.promised(), replica.memory()), (tail, promised, Memory::Clean));
        assert_eq!(replica.lacks(), takes_checkpoint, "else there is nothing that could be damaged");
        cluster.run(ms(500));
        cluster.assert_same(&[1, 2, 3]);
    }
}

#[test]
fn a_part_of_which_nothing_is_known_is_lacking_too() {
    let mut cluster = three_alike(config(None));
    cluster.checkpoint(2);
    cluster.lose_on_disk(2, Key::Cell(3));
    assert!(cluster.replica(2).lacks());
    cluster.must_put(1, 1, 11);
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// Nodes 1 and 2 make durable what is asked of them; node 2 has had to have a part back that its checkpoint has, and that the next start
/// cannot read.
fn what_is_back_is_durable_when_the_next_start_finds_it(bug: Option<Bug>) {
    let mut cluster = three_alike(config(bug));
    cluster.keeps_mended = false;
    cluster.checkpoint(2);
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.settle();
    cluster.assert_same(&[1, 2, 3]);
    cluster.kill(3);
    let mark = cluster.must_put(1, 1, 11);
    let synced = cluster.sync(1, mark);
    cluster.run(ms(500));
    if cluster.is_durable(synced) {
        cluster.rot_disk(2, &[Key::Cell(3)]);
        assert!(!cluster.replica(2).lacks(), "it has said that all of it was durable");
    }
    assert!(!cluster.is_durable(synced), "it is where the next start does not look");
    cluster.checkpoint(2);
    cluster.run(ms(500));
    assert!(cluster.is_durable(synced));
    cluster.kill(2);
    cluster.start(2);
    assert!(!cluster.replica(2).lacks());
}

/// The same of a primary, and of a state that it gives away: who takes that over drops what it has.
#[test]
fn what_is_back_is_given_to_nobody_who_would_count_on_it() {
    let mut cluster = three_alike(Config { kept_max: 1, kept_lending_max: 1, ..config(None) });
    cluster.keeps_mended = false;
    cluster.checkpoint(1);
    cluster.isolate(3);
    (1..4).for_each(|cell| _ = cluster.must_put(1, cell, 100 + cell));
    cluster.rot(1, &[Key::Cell(5)]);
    cluster.settle();
    assert!(!cluster.replica(1).lacks());
    cluster.serve(1);
    let mark = cluster.must_put(1, 1, 11);
    cluster.mend();
    let synced = cluster.sync(1, mark);
    cluster.hold_back(|flying| flying.from == 2 && matches!(flying.message, Message::Synced { .. }));
    cluster.run(ms(500));
    assert!(!cluster.is_durable(synced));
    assert_ne!(cluster.replica(3).committed(), cluster.replica(1).committed(), "it lags behind the log");
    cluster.checkpoint(1);
    cluster.run(ms(1_000));
    assert!(cluster.is_durable(synced));
    cluster.assert_same(&[1, 2, 3]);
}

/// The journal tells of a state that was taken over. What was the same then may be what is damaged now.
#[test]
fn damage_from_before_a_state_was_taken_over_is_found_again() {
    let mut cluster = three_alike(Config { kept_max: 1, ..config(None) });
    cluster.checkpoint(3);
    cluster.isolate(3);
    (1..4).for_each(|cell| _ = cluster.must_put(1, cell, 100 + cell));
    cluster.mend();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
    cluster.rot_disk(3, &[Key::Cell(5)]);
    assert!(cluster.replica(3).lacks());
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// Whether it is a member stands behind the state that lacks something.
#[test]
fn a_newcomer_that_lacks_something_gets_it_back() {
    let mut cluster = Cluster::with_spare(3, 4, None);
    cluster.serve(1);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    let rotten = Rc::new(Cell::new(false));
    let is_rotten = Rc::clone(&rotten);
    cluster.hold_back(move |flying| {
        let waits = is_about_parts(&flying.message) || matches!(flying.message, Message::Sync { .. });
        waits && !is_rotten.get()
    });
    cluster.admit(1, 4).unwrap();
    cluster.rot(4, &[Key::Cell(3)]);
    let synced = std::mem::take(&mut cluster.held);
    cluster.deliver_all(synced.into_iter().filter(|flying| !is_about_parts(&flying.message)).collect());
    assert_eq!(cluster.members(1), [1, 2, 3], "it has not got everything");
    assert!(cluster.replica(4).lacks());
    rotten.set(true);
    cluster.run(ms(1_000));
    assert_eq!(cluster.members(1), [1, 2, 3, 4]);
    cluster.rot(4, &[Key::Cell(5)]);
    cluster.kill(4);
    cluster.start(4);
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3, 4]);
}

/// What the checkpoint has of it was compared with the other state by a process before.
#[test]
fn damage_from_the_middle_of_a_state_that_was_taken_over_is_found_again() {
    for after in 1..10 {
        let mut cluster =
            Cluster::with(3, Config { kept_max: 2, parts_max: 1, versions_max: 2, ..config(None) });
        cluster.serve(1);
        cluster.renew(1);
        (1..4).for_each(|cell| _ = cluster.must_put(1, cell, cell));
        cluster.run(ms(50));
        cluster.isolate(3);
        (3..8).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
        let pages = Cell::new(0);
        cluster.hold_back(move |flying| {
            pages.set(pages.get() + usize::from(matches!(flying.message, Message::Pulled { .. })));
            pages.get() > after && matches!(flying.message, Message::Pulled { .. })
        });
        cluster.mend();
        cluster.run(ms(100));
        cluster.checkpoint(3);
        cluster.let_go();
        cluster.run(ms(1_000));
        cluster.assert_same(&[1, 2, 3]);
        cluster.rot_disk(3, &[Key::Cell(1), Key::Cell(2)]);
        cluster.run(ms(1_000));
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// The journal tells of damage, and what is found to be damaged now is older than that.
#[test]
fn damage_behind_damage_is_found_again() {
    let mut cluster = three_alike(Config { kept_max: 1, ..config(None) });
    cluster.checkpoint(3);
    cluster.must_put(1, 7, 70);
    cluster.must_put(1, 3, 33);
    cluster.run(ms(50));
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(3, &[Key::Cell(5)]);
    cluster.rot(3, &[Key::Cell(7), Key::Cell(2)]);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
    cluster.rot_disk(3, &[Key::Cell(5)]);
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// Nothing is in the place of a part that is lacking, and that is no version of it.
#[test]
fn what_is_lacking_is_not_lost_again() {
    for is_found_at_start in [false, true] {
        let mut cluster = three_alike(config(None));
        cluster.hold_back(|flying| is_about_parts(&flying.message));
        cluster.rot(3, &[Key::Executed]);
        cluster.rot(2, &[Key::Executed]);
        if is_found_at_start {
            cluster.checkpoint(2);
            cluster.rot_disk(2, &[Key::Executed]);
        } else {
            cluster.rot(2, &[Key::Executed]);
        }
        cluster.held.retain(|flying| flying.from != 1 && flying.to != 1);
        cluster.cut(2, 1);
        cluster.let_go();
        assert!(cluster.replica(2).lacks(), "the other one that lacks it has nothing to give");
        cluster.mend();
        cluster.run(ms(500));
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// The entry of a view has to be durable at a member that says nothing of the kind before it has its state again, and nobody has
/// the parts any more as they were: the primary serves only behind that entry, and must help before.
#[test]
fn who_is_needed_for_a_view_gets_its_state_from_a_primary_that_does_not_serve() {
    for knows in [true, false] {
        let mut cluster = Cluster::with_spare(2, 3, None);
        cluster.serve(1);
        cluster.renew(1);
        (1..5).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
        cluster.run(ms(50));
        cluster.hold_back(|flying| is_about_parts(&flying.message));
        cluster.rot(2, &[Key::Cell(3)]);
        cluster.must_put(1, 3, 33);
        if knows {
            cluster.run(ms(50));
        }
        cluster.admit(1, 3).unwrap();
        cluster.run(ms(300));
        let tail = cluster.replica(2).tail();
        assert!(tail > cluster.replica(2).committed(), "the view is not durable at node 2");
        cluster.resign(1);
        cluster.lead(1);
        cluster.renew(1);
        cluster.run(ms(300));
        assert!(!serves(&cluster, 1));
        cluster.let_go();
        cluster.run(ms(1_000));
        assert!(serves(&cluster, 1));
        assert_eq!(cluster.members(1), [1, 2, 3]);
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// Only who lacks something knows what is committed, and the primary serves only behind that.
#[test]
fn a_primary_learns_what_is_committed_from_who_lacks_something() {
    let mut cluster = Cluster::with_spare(2, 3, None);
    cluster.serve(1);
    cluster.renew(1);
    (1..5).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    cluster.admit(1, 3).unwrap();
    cluster.run(ms(300));
    cluster.isolate(3);
    let says_it_has = |flying: &Flying| matches!(flying.message, Message::Appended { .. });
    cluster.hold_back(move |flying| is_about_parts(&flying.message) || says_it_has(flying));
    cluster.put(1, 5, 50);
    let held = std::mem::take(&mut cluster.held);
    let (said, held) = held.into_iter().partition(says_it_has);
    cluster.held = held;
    cluster.deliver_all(said);
    // Node 2 has the entry, and was not told that it is committed.
    cluster.kill(2);
    cluster.start(2);
    assert_eq!(cluster.replica(2).tail(), cluster.replica(1).tail());
    assert!(cluster.replica(2).committed() < cluster.replica(1).committed());
    cluster.rot(1, &[Key::Cell(3), Key::Executed]);
    cluster.lead(2);
    cluster.renew(2);
    cluster.let_go();
    cluster.run(ms(1_000));
    assert!(serves(&cluster, 2));
    assert_eq!(cluster.read(2, 5), Some(50));
    cluster.mend();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// What it acknowledges are entries that it was sent before, and nothing of what it lacks.
#[test]
fn who_acknowledges_entries_still_needs_its_state() {
    let mut cluster = three_alike(Config { parts_max: 1, versions_max: 2, ..config(None) });
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.must_put(1, 3, 31);
    cluster.run(ms(50));
    cluster.hold_back(|flying| {
        let is_acknowledgement = matches!(flying.message, Message::Appended { .. }) && flying.from == 2;
        is_acknowledgement || matches!(flying.message, Message::Pull { .. })
    });
    let asked = std::mem::take(&mut cluster.held);
    cluster.deliver_all(asked);
    cluster.must_put(1, 4, 41);
    assert!(cluster.held.iter().any(|flying| matches!(flying.message, Message::Pull { .. })));
    let held = std::mem::take(&mut cluster.held);
    let (acknowledgements, pulls) =
        held.into_iter().partition(|flying| matches!(flying.message, Message::Appended { .. }));
    cluster.hold_back(|_| false);
    cluster.deliver_all(acknowledgements);
    cluster.deliver_all(pulls);
    assert!(!cluster.replica(2).lacks(), "it gets what it was offered");
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// The offer was heard, and what it was about is not lent any more.
#[test]
fn who_is_given_nothing_asks_again() {
    let mut cluster = three_alike(Config { parts_max: 1, versions_max: 2, ..config(None) });
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.must_put(1, 3, 31);
    cluster.run(ms(50));
    cluster.hold_back(|flying| matches!(flying.message, Message::Pull { .. }));
    let asked = std::mem::take(&mut cluster.held);
    cluster.deliver_all(asked);
    assert!(cluster.held.iter().any(|flying| matches!(flying.message, Message::Pull { .. })));
    cluster.isolate(2);
    cluster.run(ms(10_000));
    // Nothing is heard of it for so long that it need not be kept, and it may still ask for that.
    cluster.held.clear();
    cluster.let_go();
    cluster.mend();
    (1..3).for_each(|cell| _ = cluster.must_put(1, cell, 100 + cell));
    cluster.run(ms(5_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// And nothing else is to be done for which somebody would look.
#[test]
fn no_state_is_kept_for_who_is_gone_while_it_gets_back_what_it_lacks() {
    let mut cluster = three_alike(Config { parts_max: 1, versions_max: 2, ..config(None) });
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(2, &[Key::Cell(3)]);
    cluster.must_put(1, 3, 31);
    cluster.run(ms(100));
    cluster.hold_back(|flying| matches!(flying.message, Message::Pull { .. }));
    let asked = std::mem::take(&mut cluster.held);
    cluster.deliver_all(asked);
    assert!(cluster.held.iter().any(|flying| matches!(flying.message, Message::Pull { .. })));
    cluster.isolate(2);
    cluster.run(ms(3_000));
    cluster.forget_log(1);
    assert_eq!(cluster.replica(1).log_bytes(), 0);
}

/// All had the end of the object on disk, and all but node 3 have forgotten it. That one cannot read its state any more, its log does not
/// go back to the beginning, and it has said so.
fn over_for_all_but_one() -> Cluster {
    let mut cluster = Cluster::with(3, Config { kept_max: 1, ..config(None) });
    cluster.serve(1);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    cluster.run(ms(50));
    cluster.resign(1);
    cluster.checkpoint(3);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(3, &[Key::Cell(3)]);
    cluster.settle();
    [1, 2].into_iter().for_each(|node| cluster.bury(node));
    cluster.let_go();
    cluster
}

fn is_told_that_it_is_over(cluster: &Cluster, node: u32) -> bool {
    cluster.was_told(node, &Told::Event(Event::Over))
}

/// Node `slow` is the last to be heard of.
fn led_again(slow: u32, creates: bool) -> Cluster {
    let mut cluster = over_for_all_but_one();
    cluster
        .hold_back(move |flying| matches!(flying.message, Message::Promised { .. }) && flying.from == slow);
    cluster.lead_as(1, creates);
    cluster.renew(1);
    cluster.run(ms(100));
    cluster.let_go();
    cluster.run(ms(50));
    cluster
}

#[test]
fn what_is_over_for_all_others_is_over_for_who_cannot_give_it() {
    for slow in 1..=3 {
        let cluster = led_again(slow, false);
        assert!(is_told_that_it_is_over(&cluster, 3), "{slow} is slow");
        assert!(cluster.was_told(1, &Told::Event(Event::Nothing)));
    }
}

/// But not in an epoch in which somebody was told to forget it.
#[test]
fn what_is_over_for_all_others_may_begin_again() {
    for slow in 1..=3 {
        let mut cluster = led_again(slow, true);
        if slow < 3 {
            assert!(is_told_that_it_is_over(&cluster, 3), "{slow} is slow");
            assert_eq!(cluster.replica(1).standing(), Standing::Backup);
            [1, 2, 3].into_iter().for_each(|node| cluster.bury(node));
            cluster.serve_soon(1);
        }
        cluster.run(ms(2_000));
        assert!(serves(&cluster, 1));
        assert_eq!(cluster.read(1, 3), None);
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// Who has said that it lacks something is told, if it answers, and not waited for for ever.
#[test]
fn what_nobody_who_answers_has_is_not_waited_for() {
    let mut cluster = over_for_all_but_one();
    cluster.isolate(3);
    cluster.lead_as(1, false);
    cluster.renew(1);
    assert!(!cluster.was_told(1, &Told::Event(Event::Nothing)), "node 3 may still answer");
    cluster.run(ms(1_000));
    assert!(cluster.was_told(1, &Told::Event(Event::Nothing)));
    assert!(!is_told_that_it_is_over(&cluster, 3));
}

/// Whatever an operator gives up: it may be all that is left.
#[test]
fn who_can_read_most_of_it_keeps_that_though_an_operator_gives_it_up() {
    let mut cluster = Cluster::with(3, Config { kept_max: 1, ..config(None) });
    cluster.isolate(2);
    cluster.serve(1);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    cluster.run(ms(50));
    cluster.kill(1);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(3, &[Key::Cell(3)]);
    cluster.mend();
    cluster.let_go();
    cluster.lead_as(2, false);
    cluster.renew(2);
    cluster.run(ms(3_000));
    assert!(cluster.accept_loss(2));
    cluster.run(ms(1_000));
    assert!(!is_told_that_it_is_over(&cluster, 3));
    cluster.start(1);
    cluster.run(ms(1_000));
    cluster.serve_soon(1);
    assert_eq!(cluster.read(1, 3), Some(30));
}

/// Two of them have lost what node 3 has. They would say the same if it were over.
fn what_is_forgotten_is_not_over(bug: Option<Bug>) {
    let mut cluster = Cluster::with(3, Config { kept_max: 1, ..config(bug) });
    [1, 2].into_iter().for_each(|node| cluster.sync_disk(node));
    cluster.serve(1);
    cluster.renew(1);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    cluster.run(ms(50));
    cluster.checkpoint(3);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(3, &[Key::Cell(3)]);
    [1, 2].into_iter().for_each(|node| cluster.power_off(node));
    [1, 2].into_iter().for_each(|node| cluster.start(node));
    cluster.lead_as(1, false);
    cluster.renew(1);
    cluster.run(ms(10_000));
    assert!(!is_told_that_it_is_over(&cluster, 3));
    let blocked = Event::Blocked { missing: vec![], forgot: vec![NodeId(1), NodeId(2), NodeId(3)] };
    assert!(cluster.was_told(1, &Told::Event(blocked)), "only an operator can give it up");
}

/// Of five, two may never have heard of what the other three have.
#[test]
fn what_a_minority_has_nothing_of_is_not_over() {
    let mut cluster = Cluster::with(5, Config { kept_max: 1, ..config(None) });
    [4, 5].into_iter().for_each(|node| cluster.isolate(node));
    cluster.serve(1);
    (1..7).for_each(|cell| _ = cluster.must_put(1, cell, 10 * cell));
    cluster.run(ms(50));
    cluster.resign(1);
    cluster.hold_back(|flying| is_about_parts(&flying.message));
    cluster.rot(3, &[Key::Cell(3)]);
    [1, 2].into_iter().for_each(|node| cluster.kill(node));
    cluster.mend();
    cluster.lead_as(4, false);
    cluster.renew(4);
    cluster.run(ms(5_000));
    assert!(!is_told_that_it_is_over(&cluster, 3));
    [1, 2].into_iter().for_each(|node| cluster.start(node));
    cluster.let_go();
    cluster.serve_soon(2);
    assert_eq!(cluster.read(2, 3), Some(30));
}

stories! {
    ForgottenIsOver: what_is_forgotten_is_not_over;
    DamagedServes: what_is_damaged_is_not_served;
    DamagedIsSource: who_lacks_something_is_nobodys_source;
    DamageNotKept: what_is_lacking_stays_known;
    MendedDurable: what_is_back_is_durable_when_the_next_start_finds_it;
}
