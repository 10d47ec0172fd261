//! Clients and their end.

use super::*;
use crate::limits::EXPIRE_MAX;

const ROOT: InodeId = InodeId::ROOT;

fn lock(number: u64, inode: InodeId, mode: LockMode, wait: bool) -> Change {
    let owner = Owner { client: client(number), number: 0 };
    Change::Lock { inode, lock: Lock { owner, kind: LockKind::Fcntl, mode, stretch: Stretch::ALL }, wait }
}

#[test]
fn a_client_that_has_ended_does_nothing_until_it_is_forgotten() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    let gone = client(5);
    world.run(Change::Welcome { client: gone });
    assert_eq!(world.ask(Ask::Clients { after: None }), Answer::Clients(vec![(gone, ClientState::Alive)]));
    let done = Done::Expired { more: false, dooms: false, granted: Granted::NONE };
    assert_eq!(world.run(Change::Expire { client: gone }), done);
    assert_eq!(world.run(Change::Expire { client: gone }), done, "twice is once");

    let expired = Err(NameError::Expired { client: gone });
    for change in [
        create(ROOT, "g", Make::Fifo, 0),
        unlink(ROOT, "f"),
        chmod(inode, 0),
        Change::Lend { inode },
        lock(5, inode, LockMode::Shared, false),
        Change::Welcome { client: gone },
    ] {
        assert_eq!(world.try_for(gone, &Who::root(), change), expired);
    }
    let held = Change::Unlink { site: site(ROOT, "f"), holders: vec![gone] };
    assert_eq!(world.run(held), Done::Removed { inode, fate: Fate::Doomed }, "it holds nothing");
    world.run(Change::Forget { client: gone });
    assert_eq!(world.error(Change::Forget { client: gone }), NameError::NoClient { client: gone });
    assert!(world.try_for(gone, &Who::root(), create(ROOT, "g", Make::Fifo, 0)).is_ok());
}

#[test]
fn the_end_of_a_client_ends_what_it_holds_has_and_waits_for() {
    let mut world = World::default();
    let (orphan, other, kept) = (world.file(ROOT, "o"), world.file(ROOT, "p"), world.file(ROOT, "f"));
    for (text, holders) in [("o", vec![client(1)]), ("p", vec![client(1), client(2)])] {
        world.run(Change::Unlink { site: site(ROOT, text), holders });
    }
    world.try_for(client(1), &Who::root(), lock(1, kept, LockMode::Exclusive, false)).unwrap();
    world.try_for(client(2), &Who::root(), lock(2, kept, LockMode::Shared, true)).unwrap();
    let ticket = Ticket(at(world.seq));
    let Done::Expired { more: false, dooms: true, granted } = world.run(Change::Expire { client: client(1) })
    else {
        panic!()
    };
    let owner = Owner { client: client(2), number: 0 };
    assert_eq!(granted, Granted { all: vec![Grant { owner, ticket }], more: false });
    assert_eq!((world.is_there(orphan), world.is_there(other)), (false, true));
    world.run(Change::Expire { client: client(2) });
    assert_eq!(world.ask(Ask::Locks { inode: kept }), Answer::Locks(None));
    assert!(!world.is_there(other));
}

#[test]
fn the_end_of_a_client_with_much_takes_several_entries() {
    let mut world = World::default();
    let files = 2 * EXPIRE_MAX + 5;
    for number in 0..files {
        let text = format!("f{number}");
        let inode = world.file(ROOT, &text);
        if number % 2 == 0 {
            world.run(Change::Unlink { site: site(ROOT, &text), holders: vec![client(1)] });
        } else {
            world.try_for(client(1), &Who::root(), lock(1, inode, LockMode::Shared, false)).unwrap();
        }
    }
    let mut steps = 1;
    while let Done::Expired { more: true, .. } = world.run(Change::Expire { client: client(1) }) {
        steps += 1;
        let refused = world.try_for(client(1), &Who::root(), create(ROOT, "x", Make::Fifo, 0));
        assert_eq!(refused, Err(NameError::Expired { client: client(1) }), "from the first step on");
        assert_eq!(
            world.error(Change::Forget { client: client(1) }),
            NameError::NotExpired { client: client(1) }
        );
    }
    assert_eq!(steps, 3);
    assert_eq!(world.ask(Ask::Holds { client: client(1), after: None }), Answer::Inodes(vec![]));
    world.run(Change::Forget { client: client(1) });
}

#[test]
fn a_client_that_has_nothing_is_forgotten_though_it_is_there() {
    let mut world = World::default();
    let (inode, gone) = (world.file(ROOT, "f"), client(5));
    world.try_for(gone, &Who::root(), lock(5, inode, LockMode::Shared, false)).unwrap();
    assert_eq!(world.error(Change::Forget { client: gone }), NameError::NotExpired { client: gone });
    let owner = Owner { client: gone, number: 0 };
    let unlock = Change::Unlock { inode, owner, kind: LockKind::Fcntl, stretch: Stretch::ALL };
    world.try_for(gone, &Who::root(), unlock).unwrap();
    world.run(Change::Forget { client: gone });
    assert_eq!(world.ask(Ask::Clients { after: None }), Answer::Clients(vec![]));
    assert!(
        world.try_for(gone, &Who::root(), create(ROOT, "g", Make::Fifo, 0)).is_ok(),
        "and may come again"
    );
}

#[test]
fn clients_are_limited_in_number() {
    let mut world = World::default();
    let op = |change| Op { time: time(9), who: Who::root(), client: client(0), change };
    let welcome = |number| op(Change::Welcome { client: client(number) });
    for number in 1..=u64::from(limits::CLIENTS_MAX) {
        world.tree.apply(at(number), &welcome(number)).unwrap();
    }
    let next = u64::from(limits::CLIENTS_MAX) + 1;
    assert_eq!(world.tree.apply(at(next), &welcome(next)), Err(NameError::TooManyClients));
    world.tree.apply(at(next), &welcome(1)).unwrap();
}
