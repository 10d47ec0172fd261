//! Locks: who gets one, who waits, and in which order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::limits::{GRANTED_MAX, LOCKS_MAX, WAITING_MAX, WAITS_MAX};
use LockKind::{Fcntl, Flock};
use LockMode::{Exclusive, Shared};

const ROOT: InodeId = InodeId::ROOT;

/// Each owner is a client of its own.
fn owner(number: u64) -> Owner {
    Owner { client: client(number), number }
}

fn part(number: u64, mode: LockMode, first: u64, last: u64) -> Lock {
    Lock { owner: owner(number), kind: Fcntl, mode, stretch: Stretch { first, last } }
}

fn whole(number: u64, mode: LockMode) -> Lock {
    Lock { kind: Flock, ..part(number, mode, 0, 0) }
}

/// What came of a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Got {
    It,
    Waits(Ticket),
}

impl World {
    fn try_lock(&mut self, inode: InodeId, lock: Lock, wait: bool) -> Result<(Got, Vec<u64>), NameError> {
        let done = self.try_for(lock.owner.client, &Who::root(), Change::Lock { inode, lock, wait })?;
        let Done::Locked { waits, granted } = done else { panic!("{done:?}") };
        Ok((waits.map_or(Got::It, Got::Waits), granted.all.iter().map(|grant| grant.owner.number).collect()))
    }

    fn lock(&mut self, inode: InodeId, lock: Lock) {
        assert_eq!(self.try_lock(inode, lock, false), Ok((Got::It, vec![])), "{lock:?}");
    }

    fn wait(&mut self, inode: InodeId, lock: Lock) -> Ticket {
        match self.try_lock(inode, lock, true) {
            Ok((Got::Waits(ticket), granted)) if granted.is_empty() => ticket,
            other => panic!("{other:?}"),
        }
    }

    /// Gives a stretch up. Who got something by it?
    fn unlock(&mut self, inode: InodeId, Lock { owner, kind, stretch, .. }: Lock) -> Vec<u64> {
        let change = Change::Unlock { inode, owner, kind, stretch };
        let Ok(Done::Unlocked { granted }) = self.try_for(owner.client, &Who::root(), change) else {
            panic!()
        };
        granted.all.iter().map(|grant| grant.owner.number).collect()
    }

    fn held(&self, inode: InodeId) -> Vec<(u64, LockMode, u64, u64)> {
        let Answer::Locks(locks) = self.ask(Ask::Locks { inode }) else { panic!() };
        let held = locks.iter().flat_map(|locks| &locks.held);
        held.map(|lock| (lock.owner.number, lock.mode, lock.stretch.first, lock.stretch.last)).collect()
    }
}

fn with_file() -> (World, InodeId) {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    (world, inode)
}

#[test]
fn locks_exclude_each_other_where_they_meet() {
    let table = [
        (part(1, Shared, 0, 9), part(2, Shared, 5, 5), true),
        (part(1, Shared, 0, 9), part(2, Exclusive, 9, 20), false),
        (part(1, Exclusive, 0, 9), part(2, Shared, 0, 0), false),
        (part(1, Exclusive, 0, 9), part(2, Exclusive, 10, u64::MAX), true),
        (part(1, Exclusive, 0, 9), part(1, Shared, 0, 9), true),
        (whole(1, Shared), whole(2, Shared), true),
        (whole(1, Shared), whole(2, Exclusive), false),
        (whole(1, Exclusive), part(2, Exclusive, 0, u64::MAX), true),
    ];
    for (first, second, fits) in table {
        let (mut world, inode) = with_file();
        world.lock(inode, first);
        let got = world.try_lock(inode, second, false);
        let refused = Err(NameError::Locked { by: owner(1) });
        assert_eq!(got, if fits { Ok((Got::It, vec![])) } else { refused }, "{first:?} {second:?}");
        let Answer::InTheWay(found) = world.ask(Ask::TestLock { inode, lock: second }) else { panic!() };
        assert_eq!(found.is_none(), fits);
    }
}

#[test]
fn stretches_are_split_and_joined() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Exclusive, 10, 29));
    world.lock(inode, part(1, Shared, 15, 19));
    assert_eq!(world.held(inode), [(1, Exclusive, 10, 14), (1, Shared, 15, 19), (1, Exclusive, 20, 29)]);
    world.lock(inode, part(1, Exclusive, 15, 19));
    assert_eq!(world.held(inode), [(1, Exclusive, 10, 29)]);
    world.lock(inode, part(1, Exclusive, 30, 30));
    world.unlock(inode, part(1, Shared, 12, 13));
    assert_eq!(world.held(inode), [(1, Exclusive, 10, 11), (1, Exclusive, 14, 30)]);
    world.lock(inode, part(1, Exclusive, 0, u64::MAX));
    world.unlock(inode, part(1, Shared, 0, 4));
    world.unlock(inode, part(1, Shared, 9, u64::MAX));
    assert_eq!(world.held(inode), [(1, Exclusive, 5, 8)]);
    world.unlock(inode, part(2, Shared, 0, u64::MAX));
    world.unlock(inode, part(1, Shared, 0, u64::MAX));
    assert_eq!(world.held(inode), []);
    assert_eq!(world.try_lock(inode, part(1, Shared, 5, 4), true), Err(NameError::NoStretch));
}

#[test]
fn who_waits_gets_it_in_turn() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Shared, 0, 99));
    let writer = world.wait(inode, part(2, Exclusive, 0, 99));
    world.wait(inode, part(3, Shared, 50, 60));
    assert_eq!(
        world.try_lock(inode, part(4, Shared, 0, 9), false),
        Ok((Got::It, vec![])),
        "it minds no queue"
    );
    assert_eq!(world.unlock(inode, part(4, Shared, 0, 9)), []);
    assert_eq!(world.unlock(inode, part(1, Shared, 0, 89)), [], "not all of it is free");
    assert_eq!(world.unlock(inode, part(1, Shared, 90, 99)), [2]);
    world.wait(inode, part(5, Shared, 55, 56));
    assert_eq!(world.unlock(inode, part(2, Shared, 0, 99)), [3, 5]);
    let gone = Change::Cancel { inode, ticket: writer };
    let refused = world.try_for(client(2), &Who::root(), gone);
    assert_eq!(refused, Err(NameError::NotWaiting { ticket: writer }), "it was granted");
}

#[test]
fn who_gives_something_up_by_a_lock_lets_others_in() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Exclusive, 0, 99));
    world.wait(inode, part(2, Shared, 0, 9));
    assert_eq!(world.try_lock(inode, part(1, Shared, 0, 99), false), Ok((Got::It, vec![2])));
}

#[test]
fn a_request_that_is_taken_back_makes_room_for_those_behind() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Shared, 0, 9));
    let ticket = world.wait(inode, part(2, Exclusive, 0, 9));
    world.wait(inode, part(3, Shared, 0, 9));
    let cancel = Change::Cancel { inode, ticket };
    let foreign = world.try_for(client(3), &Who::root(), cancel.clone());
    assert_eq!(foreign, Err(NameError::Foreign { owner: owner(2) }));
    let Ok(Done::Unlocked { granted }) = world.try_for(client(2), &Who::root(), cancel) else { panic!() };
    assert_eq!(granted.all.len(), 1);
    assert_eq!(world.held(inode), [(1, Shared, 0, 9), (3, Shared, 0, 9)]);
}

#[test]
fn what_became_of_a_wish_can_be_asked() {
    let (mut world, inode) = with_file();
    let (wanted, other) = (part(2, Exclusive, 10, 19), part(1, Shared, 0, 99));
    world.lock(inode, other);
    let ticket = world.wait(inode, wanted);
    let wish = |world: &World| match world.ask(Ask::Wish { inode, lock: wanted, ticket }) {
        Answer::Wish(wish) => wish,
        other => panic!("{other:?}"),
    };
    assert_eq!(wish(&world), Wish::Waits);
    assert_eq!(world.unlock(inode, other), [2]);
    assert_eq!(wish(&world), Wish::Had);
    world.unlock(inode, part(2, Exclusive, 15, 15));
    assert_eq!(wish(&world), Wish::Gone, "some of it was given up again");
    world.lock(inode, part(2, Shared, 10, 19));
    assert_eq!(wish(&world), Wish::Gone, "that is less");
    world.lock(inode, part(2, Exclusive, 0, 99));
    assert_eq!(wish(&world), Wish::Had, "that is more");
}

#[test]
fn who_has_not_heard_that_it_waits_asks_again_and_waits_once() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Exclusive, 0, 99));
    let ticket = world.wait(inode, part(2, Exclusive, 0, 9));
    assert_eq!(world.wait(inode, part(2, Exclusive, 0, 9)), ticket);
    assert_ne!(world.wait(inode, part(2, Exclusive, 0, 8)), ticket, "that is another wish");
    let Ok(Done::Unlocked { .. }) = world.try_for(client(2), &Who::root(), Change::Cancel { inode, ticket })
    else {
        panic!("it waits")
    };
    let again = world.try_for(client(2), &Who::root(), Change::Cancel { inode, ticket });
    assert_eq!(again, Err(NameError::NotWaiting { ticket }));
}

#[test]
fn what_was_asked_for_before_an_unlock_is_not_granted_after_it() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Exclusive, 0, 99));
    world.wait(inode, part(2, Exclusive, 0, 9));
    world.wait(inode, part(2, Shared, 5, 20));
    world.unlock(inode, part(2, Shared, 0, 9));
    assert_eq!(
        world.unlock(inode, part(1, Shared, 0, 99)),
        [2],
        "what is wanted behind what was unlocked, too, waits on"
    );
    assert_eq!(world.held(inode), [(2, Shared, 5, 20)]);
}

#[test]
fn owners_are_of_the_client_that_asks() {
    let (mut world, inode) = with_file();
    let change = Change::Lock { inode, lock: part(1, Shared, 0, 0), wait: false };
    let foreign = Err(NameError::Foreign { owner: owner(1) });
    assert_eq!(world.try_for(client(2), &Who::root(), change), foreign);
}

#[test]
fn a_whole_files_lock_is_given_up_for_the_wait_for_another() {
    let (mut world, inode) = with_file();
    world.lock(inode, whole(1, Shared));
    world.lock(inode, whole(2, Shared));
    world.wait(inode, whole(1, Exclusive));
    assert_eq!(
        world.try_lock(inode, whole(2, Exclusive), false),
        Ok((Got::It, vec![])),
        "nobody else has it"
    );
    assert_eq!(world.unlock(inode, whole(2, Shared)), [1]);
}

#[test]
fn nobody_waits_in_a_circle() {
    let mut world = World::default();
    let files: Vec<InodeId> = (0..3).map(|number| world.file(ROOT, &format!("f{number}"))).collect();
    for (number, &inode) in (0..).zip(&files) {
        world.lock(inode, part(number, Exclusive, 0, 9));
    }
    world.wait(files[1], part(0, Exclusive, 3, 3));
    world.wait(files[2], part(1, Shared, 3, 3));
    let before = world.tree.clone();
    let refused = world.try_lock(files[0], part(2, Shared, 9, 20), true);
    assert_eq!(refused, Err(NameError::Deadlock { owner: owner(2) }));
    assert_eq!(world.tree, before);
    world.wait(files[0], part(9, Shared, 9, 20));

    // Two that have it and want more of it.
    let inode = world.file(ROOT, "g");
    world.lock(inode, part(4, Shared, 0, 9));
    world.lock(inode, part(5, Shared, 0, 9));
    world.wait(inode, part(4, Exclusive, 0, 9));
    let refused = world.try_lock(inode, part(5, Exclusive, 0, 9), true);
    assert_eq!(refused, Err(NameError::Deadlock { owner: owner(5) }));
    assert_eq!(world.unlock(inode, part(5, Shared, 0, 9)), [4]);
}

#[test]
fn who_is_in_the_way_of_the_queue_does_not_wait_behind_it() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1, Shared, 0, 9));
    world.lock(inode, part(3, Exclusive, 20, 20));
    world.wait(inode, part(2, Exclusive, 0, 99));
    // Nobody has it, and the one that waits for it waits for the one that asks.
    assert_eq!(world.try_lock(inode, part(1, Shared, 10, 10), true), Ok((Got::It, vec![])));
    // Somebody has it: the one that asks waits, but in front.
    world.wait(inode, part(1, Shared, 20, 20));
    assert_eq!(world.unlock(inode, part(3, Shared, 20, 20)), [1]);
    assert_eq!(world.unlock(inode, part(1, Shared, 0, 99)), [2]);
}

#[test]
fn an_entry_grants_so_many_and_the_next_ones_the_others() {
    let (mut world, inode) = with_file();
    world.lock(inode, part(1000, Exclusive, 0, 9));
    let count = 2 * GRANTED_MAX as u64 + 3;
    for number in 0..count {
        world.wait(inode, part(number, Shared, 0, 9));
    }
    let mut got: Vec<u64> = world.unlock(inode, part(1000, Shared, 0, 9));
    assert_eq!(got.len(), GRANTED_MAX);
    let mut entries = 0;
    loop {
        let Done::Unlocked { granted } = world.run(Change::Settle) else { panic!() };
        got.extend(granted.all.iter().map(|grant| grant.owner.number));
        entries += 1;
        if !granted.more {
            break;
        }
    }
    let granted = GRANTED_MAX as u64;
    assert_eq!((got, entries), ((0..count).collect(), (count - granted).div_ceil(granted)));
    assert_eq!(world.run(Change::Settle), Done::Unlocked { granted: Granted::NONE });
}

#[test]
fn locks_and_requests_are_limited_in_number() {
    let (mut world, inode) = with_file();
    let op = |lock: Lock, wait| Op {
        time: time(9),
        who: Who::root(),
        client: lock.owner.client,
        change: Change::Lock { inode, lock, wait },
    };
    let too_many = Err(NameError::TooManyLocks { inode });
    for number in 0..LOCKS_MAX as u64 {
        world.tree.apply(at(100 + number), &op(part(1, Shared, number * 2, number * 2), false)).unwrap();
    }
    assert_eq!(world.tree.apply(at(5000), &op(part(2, Shared, 5000, 5000), false)).map(drop), too_many);
    let split = Op {
        change: Change::Unlock {
            inode,
            owner: owner(1),
            kind: Fcntl,
            stretch: Stretch { first: 0, last: 0 },
        },
        ..op(part(1, Shared, 0, 0), false)
    };
    world.tree.apply(at(5001), &split).unwrap();
    world.tree.apply(at(5002), &op(part(3, Shared, 0, 9000), false)).unwrap();
    for number in 0..WAITING_MAX as u64 {
        world.tree.apply(at(6000 + number), &op(part(100 + number, Exclusive, 0, 0), true)).unwrap();
    }
    assert_eq!(world.tree.apply(at(7000), &op(part(4, Exclusive, 0, 0), true)).map(drop), too_many);
    sound::check(&world.tree);

    let mut world = World::default();
    for number in 0..=WAITS_MAX as u64 {
        let inode = world.file(ROOT, &format!("f{number}"));
        world.lock(inode, part(1, Exclusive, 0, 0));
        let got = world.try_lock(inode, part(2, Exclusive, 0, 0), true);
        assert_eq!(got.is_ok(), number < WAITS_MAX as u64, "{got:?}");
    }
}

proptest! {
    /// Against byte after byte, for requests that do not wait.
    #[test]
    fn each_byte_has_the_locks_that_it_should(
        steps in prop::collection::vec((0..3_u64, 0..3_u8, 0..20_u64, 0..8_u64), 1..60),
    ) {
        let (mut world, inode) = with_file();
        let mut model: BTreeMap<(u64, u64), LockMode> = BTreeMap::new();
        for (number, step, first, length) in steps {
            let bytes = || first..=first + length;
            let mode = if step == 1 { Shared } else { Exclusive };
            let lock = part(number, mode, first, first + length);
            if step == 0 {
                world.unlock(inode, lock);
                model.retain(|&(other, byte), _| other != number || !bytes().contains(&byte));
                continue;
            }
            let is_free = !model.iter().any(|(&(other, byte), &held)| {
                other != number && bytes().contains(&byte) && (mode == Exclusive || held == Exclusive)
            });
            prop_assert_eq!(world.try_lock(inode, lock, false).is_ok(), is_free);
            if is_free {
                model.extend(bytes().map(|byte| ((number, byte), mode)));
            }
            let held = world.held(inode).into_iter().flat_map(|(number, mode, first, last)| {
                (first..=last).map(move |byte| ((number, byte), mode))
            });
            prop_assert_eq!(held.collect::<BTreeMap<_, _>>(), model.clone());
        }
    }

    /// Whoever waits gets there when all others give up what they have, in whatever order.
    #[test]
    fn nobody_waits_for_ever(
        steps in prop::collection::vec((0..4_u64, 0..3_usize, any::<bool>(), 0..6_u64, 0..4_u64), 1..40),
    ) {
        let mut world = World::default();
        let files: Vec<InodeId> = (0..3).map(|number| world.file(ROOT, &format!("f{number}"))).collect();
        let mut waits: BTreeMap<u64, usize> = BTreeMap::new();
        let note = |waits: &mut BTreeMap<u64, usize>, got: Vec<u64>| waits.retain(|number, _| !got.contains(number));
        for (number, file, is_shared, first, length) in steps {
            if waits.contains_key(&number) {
                continue;
            }
            let mode = if is_shared { Shared } else { Exclusive };
            if let Ok((got, others)) = world.try_lock(files[file], part(number, mode, first, first + length), true) {
                if got != Got::It {
                    waits.insert(number, file);
                }
                note(&mut waits, others);
            }
        }
        // Who waits does nothing else, so that there has to be somebody who does not.
        while !waits.is_empty() {
            let free: Vec<u64> = (0..4).filter(|number| !waits.contains_key(number)).collect();
            prop_assert!(!free.is_empty(), "all wait for each other");
            let before = waits.len();
            for number in free {
                for &inode in &files {
                    let got = world.unlock(inode, part(number, Shared, 0, u64::MAX));
                    note(&mut waits, got);
                }
            }
            prop_assert!(waits.len() < before, "nobody gets anywhere");
        }
    }
}

#[test]
fn locks_that_cannot_be_are_known() {
    let shared = |number, first, last| part(number, Shared, first, last);
    let alone = |number, first, last| part(number, Exclusive, first, last);
    let flock = |number, mode| Lock { stretch: Stretch::ALL, ..whole(number, mode) };
    let is_sound = |held: &[Lock]| Locks { held: held.to_vec(), waiting: Vec::new() }.is_sound();
    let sound: [&[Lock]; 8] = [
        &[shared(1, 0, 0)],
        &[shared(1, 5, 9), shared(2, 0, 9), shared(3, 7, u64::MAX)],
        &[shared(1, 0, 4), alone(1, 5, 5), shared(1, 6, 9)],
        &[shared(1, 0, 3), shared(1, 5, 9)],
        &[alone(1, 5, 9), alone(2, 0, 4)],
        &[flock(1, Exclusive), alone(1, 0, 9)],
        &[flock(1, Shared), flock(2, Shared)],
        &[shared(1, 0, 9), shared(2, 2, 3), alone(3, 10, 10)],
    ];
    assert_eq!(sound.map(is_sound), [true; 8]);
    let wrong: [&[Lock]; 12] = [
        &[],
        &[shared(1, 1, 0)],
        &[whole(1, Shared)],
        &[shared(2, 0, 0), shared(1, 0, 0)],
        &[shared(1, 5, 5), shared(1, 0, 0)],
        &[shared(1, 0, 9), flock(1, Shared)],
        &[shared(1, 0, 5), alone(1, 5, 9)],
        &[shared(1, 0, 4), shared(1, 5, 9)],
        &[shared(1, 0, 9), alone(2, 9, 9)],
        &[alone(1, 9, 9), shared(2, 0, 9)],
        &[flock(1, Exclusive), flock(2, Shared)],
        &[shared(1, 0, 9), shared(2, 2, 3), alone(3, 4, 4)],
    ];
    assert_eq!(wrong.map(is_sound), [false; 12]);
}

#[test]
fn locks_and_queues_that_are_too_long_cannot_be() {
    let is_sound = |held: usize, waiting: usize| {
        let held = (0..held as u64).map(|number| part(number, Shared, 0, 0)).collect();
        let wish = |number| Waiting { ticket: Ticket(at(number)), lock: part(number, Exclusive, 0, 0) };
        Locks { held, waiting: (0..waiting as u64).map(wish).collect() }.is_sound()
    };
    assert!(is_sound(LOCKS_MAX, WAITING_MAX) && is_sound(0, 1));
    assert!(!is_sound(LOCKS_MAX + 1, 0) && !is_sound(1, WAITING_MAX + 1));
    let wish = |ticket, last| Waiting { ticket: Ticket(at(ticket)), lock: part(1, Shared, 0, last) };
    let waiting = |waiting: &[Waiting]| Locks { held: Vec::new(), waiting: waiting.to_vec() }.is_sound();
    assert!(waiting(&[wish(2, 0), wish(1, 0)]), "in whatever order they came");
    assert!(!waiting(&[wish(1, 0), wish(1, 1)]), "an entry asks once");
    assert!(!waiting(&[Waiting { lock: part(1, Shared, 1, 0), ..wish(1, 0) }]));
}
