//! What things cost: the largest of each costs no more than is said.

use base::MEMBERS_MAX;
use bytes::Bytes;

use super::*;
use crate::cost::{OP_BYTES_MAX, OUTCOME_BYTES_MAX, PART_BYTES_MAX, op_bytes, part_bytes};
use crate::limits::{GRANTED_MAX, HOLDERS_MAX, LOCKS_MAX, WAITING_MAX, XATTR_BYTES_MAX};

fn longest_name() -> Name {
    Name::new(&[b'n'; NAME_BYTES_MAX]).unwrap()
}

fn largest_who() -> Who {
    Who::new(1, 1, &[1; GROUPS_MAX]).unwrap()
}

fn most_members() -> Members {
    Members::new((0..).take(MEMBERS_MAX).map(NodeId)).unwrap()
}

#[test]
fn a_caller_has_so_many_groups() {
    assert_eq!(Who::new(1, 1, &[1; GROUPS_MAX + 1]), Err(TooManyGroups { count: GROUPS_MAX + 1 }));
    assert!(largest_who().is_in(1));
}

#[test]
fn the_largest_operations_cost_no_more_than_they_may() {
    let site = || Site::new(InodeId::ROOT, longest_name());
    let holders: Vec<ClientId> = (0..HOLDERS_MAX as u64).map(client).collect();
    let xattr_name = XattrName::new(&[b"user.".as_slice(), &[b'x'; 250]].concat()).unwrap();
    let value: Bytes = vec![0; usize::try_from(XATTR_BYTES_MAX).unwrap()].into();
    let target = Target::new(vec![b't'; TARGET_BYTES_MAX].into()).unwrap();
    let make = |make| Change::Create {
        dir: InodeId::ROOT,
        name: longest_name(),
        make,
        mode: 0,
        umask: 0,
        is_exclusive: true,
        lends: false,
    };
    let changes = [
        make(Make::File { replicas: most_members() }),
        make(Make::Symlink { target }),
        Change::Enter {
            dir: InodeId::ROOT,
            under: Generation(at(1)),
            number: 1,
            name: longest_name(),
            replicas: most_members(),
            mode: 0,
            created: time(1),
        },
        Change::Rename { from: site(), to: site(), how: RenameHow::Replace, holders },
        Change::SetXattr { inode: InodeId::ROOT, name: xattr_name, value, how: XattrHow::Any },
    ];
    let costs =
        changes.map(|change| op_bytes(&Op { time: time(1), who: largest_who(), client: client(1), change }));
    assert!(costs.iter().all(|&cost| cost <= OP_BYTES_MAX), "{costs:?}");
    assert_eq!(costs.into_iter().max(), Some(OP_BYTES_MAX), "and no less");
}

#[test]
fn the_largest_parts_cost_no_more_than_they_may() {
    let lock = |number| Lock {
        owner: Owner { client: client(number), number },
        kind: LockKind::Fcntl,
        mode: LockMode::Shared,
        stretch: Stretch::ALL,
    };
    let waiting = |number| Waiting { ticket: Ticket(at(number)), lock: lock(number) };
    let locks = Locks {
        held: (0..LOCKS_MAX as u64).map(lock).collect(),
        waiting: (0..WAITING_MAX as u64).map(waiting).collect(),
    };
    let value = vec![0; usize::try_from(XATTR_BYTES_MAX).unwrap()];
    let doomed = Doomed { replicas: most_members(), size: 0 };
    let parts = [
        Part::Locks(locks.into()),
        Part::Value(std::sync::Arc::new(value.into())),
        Part::Doomed(doomed.into()),
    ];
    let costs = parts.map(|part| part_bytes(&part));
    assert!(costs.iter().all(|&cost| cost <= PART_BYTES_MAX), "{costs:?}");
    assert_eq!(costs.into_iter().max(), Some(PART_BYTES_MAX), "and no less");
}

#[test]
fn outcomes_are_small() {
    let members = MEMBERS_MAX * size_of::<NodeId>();
    let grants = GRANTED_MAX * size_of::<Grant>();
    let own = size_of::<Result<Done, NameError>>();
    assert_eq!(OUTCOME_BYTES_MAX, (own + members.max(grants)) as u64);
    const { assert!(OUTCOME_BYTES_MAX < 2048, "each that is pending is charged as much") };
}

#[test]
fn an_inode_and_its_name_are_small() {
    // What is kept of a file in memory: a place in the run of inodes, the inode, its members, a place in the run of the rest.
    let inode =
        size_of::<(InodeId, (Born, std::sync::Arc<Inode>))>() + 2 * size_of::<usize>() + size_of::<Inode>();
    let entry = size_of::<(Key, (Born, Part))>();
    let members = 3 * size_of::<NodeId>();
    assert!(inode + entry + members <= 368, "{inode} + {entry} + {members}");
}

#[test]
fn parts_are_of_their_keys() {
    let mut tree = Tree::<Memory>::default();
    let before = tree.clone();
    tree.place(Key::Inode(InodeId::ROOT), Some((at(1), Part::Mark)));
    tree.place(Key::Orphan(id(1)), Some((at(1), Part::Client(ClientState::Alive))));
    assert_eq!(tree, before);
    tree.place(Key::Orphan(id(1)), Some((at(1), Part::Mark)));
    assert_eq!(tree.version(&Key::Orphan(id(1))), Some(at(1)));
}
