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
    world.run(Change::Welcome { client: gone, opens: true });
    assert_eq!(world.ask(Ask::Clients { after: None }), Answer::Clients(vec![(gone, ClientState::Alive)]));
    let done = Done::Expired { more: false, dooms: false, lends: false, granted: Granted::NONE };
    assert_eq!(world.error(Change::Forget { client: gone }), NameError::NotExpired { client: gone });
    assert_eq!(world.run(Change::Expire { client: gone }), done);
    assert_eq!(world.run(Change::Expire { client: gone }), done, "twice is once");

    let expired = Err(NameError::Expired { client: gone });
    for change in [
        create(ROOT, "g", Make::Fifo, 0),
        unlink(ROOT, "f"),
        chmod(inode, 0),
        Change::Lend { inode, to: LentTo::Content },
        lock(5, inode, LockMode::Shared, false),
        Change::Welcome { client: gone, opens: true },
    ] {
        assert_eq!(world.try_for(gone, &Who::root(), change), expired);
    }
    let held = Change::Unlink { site: site(ROOT, "f"), holders: vec![gone], removed: None };
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
        world.run(Change::Unlink { site: site(ROOT, text), holders, removed: None });
    }
    world.try_for(client(1), &Who::root(), lock(1, kept, LockMode::Exclusive, false)).unwrap();
    world.try_for(client(2), &Who::root(), lock(2, kept, LockMode::Shared, true)).unwrap();
    let ticket = Ticket(at(world.seq));
    let Done::Expired { more: false, dooms: true, lends: false, granted } =
        world.run(Change::Expire { client: client(1) })
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
            world.run(Change::Unlink { site: site(ROOT, &text), holders: vec![client(1)], removed: None });
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
fn a_client_that_has_nothing_but_a_cache_is_forgotten_though_it_has_not_ended() {
    let mut world = World::default();
    let (inode, gone) = (world.file(ROOT, "f"), client(5));
    let states = |world: &World| world.ask(Ask::Clients { after: None });
    for change in [Change::Welcome { client: gone, opens: true }, lock(5, inode, LockMode::Shared, false)] {
        world.run(Change::Welcome { client: gone, opens: false });
        assert_eq!(states(&world), Answer::Clients(vec![(gone, ClientState::Caching)]));
        assert!(world.try_for(gone, &Who::root(), chmod(inode, 0)).is_ok(), "it does what it likes");
        world.run(Change::Forget { client: gone });
        assert_eq!(states(&world), Answer::Clients(vec![]));
        world.run(Change::Welcome { client: gone, opens: false });
        world.try_for(gone, &Who::root(), change).unwrap();
        world.run(Change::Welcome { client: gone, opens: false });
        assert_eq!(states(&world), Answer::Clients(vec![(gone, ClientState::Alive)]), "it stays what it is");
        assert_eq!(world.error(Change::Forget { client: gone }), NameError::NotExpired { client: gone });
        world.run(Change::Expire { client: gone });
        let late = world.error(Change::Welcome { client: gone, opens: false });
        assert_eq!(late, NameError::Expired { client: gone });
        world.run(Change::Forget { client: gone });
    }
}

#[test]
fn clients_are_limited_in_number() {
    let mut world = World::default();
    let op = |change| Op { time: time(9), who: Who::root(), client: client(0), change };
    let welcome = |number| op(Change::Welcome { client: client(number), opens: true });
    for number in 1..=u64::from(limits::CLIENTS_MAX) {
        world.tree.apply(at(number), &welcome(number)).unwrap();
    }
    let next = u64::from(limits::CLIENTS_MAX) + 1;
    assert_eq!(world.tree.apply(at(next), &welcome(next)), Err(NameError::TooManyClients));
    world.tree.apply(at(next), &welcome(1)).unwrap();
}
