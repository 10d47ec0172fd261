//! What cannot be is refused, and what is just too much to ask is left to the tree.

use namespace::limits::{
    CLIENTS_MAX, FILE_BYTES_MAX, GRANTED_MAX, HOLDERS_MAX, LINKS_MAX, LOCKS_MAX, PAGE_MAX, XATTRS_MAX,
};
use namespace::{
    Ask, Body, Change, Doomed, Inode, Listed, Make, Page, SetAttributes, Site, Volume, XattrHow,
};

use super::samples::{
    CLIENT, OWNER, bodies, born, entry_name, fcntl_lock, file, flock_lock, inode, inode_id, locks,
    name_parts, replicas, xattr_name,
};
use super::*;

fn refused<T: Field + PartialEq + Debug>(value: &T) -> &'static str {
    let (metadata, tail) = written(value);
    match read::<T>(&metadata, &tail) {
        Err(DecodeError::Impossible(what)) => what,
        other => panic!("{other:?} of {value:?}"),
    }
}

fn op(change: Change) -> Op {
    Op { time: WallTime::from_micros(300), who: Who::root(), client: CLIENT, change }
}

fn create(mode: u16, umask: u16) -> Op {
    let (dir, name, make) = (InodeId::ROOT, entry_name(), Make::Directory);
    op(Change::Create { dir, name, make, mode, umask, is_exclusive: true, lends: false })
}

fn of_inode(inode: Inode) -> Placed {
    (Key::Inode(inode_id(7)), Some((born(10), Part::Inode(inode.into()))))
}

#[test]
fn modes_have_twelve_bits() {
    check(&create(0o7777, 0o777));
    let what = "a mode of more than twelve bits";
    assert_eq!(refused(&create(0o10000, 0)), what);
    assert_eq!(refused(&create(0, 0o10000)), what);
    let set = |mode| {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        op(Change::SetAttributes { inode: InodeId::ROOT, set })
    };
    check(&set(0o7777));
    assert_eq!(refused(&set(0o10000)), what);
    let enter = |mode| {
        let (dir, under, number, name) = (InodeId::ROOT, Generation(born(9)), 1, entry_name());
        op(Change::Enter { dir, under, number, name, replicas: replicas(), mode, created: WallTime::ZERO })
    };
    check(&enter(0o7777));
    assert_eq!(refused(&enter(0o10000)), what);
    let attributes = |mode| Inode { mode, ..inode(file()) }.attributes(inode_id(7));
    check(&attributes(0o7777));
    assert_eq!(refused(&attributes(u16::MAX)), what);
}

#[test]
fn names_are_those_that_something_can_have() {
    let name = |bytes: &[u8]| {
        let mut out = Sink::default();
        put_short(bytes, &mut out);
        out.metadata
    };
    let impossible = |what| Err(DecodeError::Impossible(what));
    for bytes in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        let expected = impossible("a name that nothing can have");
        assert_eq!(read::<Name>(&name(bytes), &[]).map(drop), expected, "{}", bytes.escape_ascii());
    }
    for bytes in [&b""[..], b"user.", b"system.other", b"user.\0"] {
        let expected = impossible("a name that nothing can have");
        assert_eq!(read::<XattrName>(&name(bytes), &[]).map(drop), expected, "{}", bytes.escape_ascii());
    }
    for bytes in [&b""[..], b"a\0b"] {
        let expected = impossible("a name that nothing can have");
        assert_eq!(read::<Target>(&name(bytes), &[]).map(drop), expected, "{}", bytes.escape_ascii());
    }
    let long = |length| name(&vec![b'x'; length]);
    assert!(read::<Name>(&long(255), &[]).is_ok() && read::<Target>(&long(4095), &[]).is_ok());
    assert_eq!(read::<Name>(&long(256), &[]).map(drop), impossible("a name that is too long"));
    assert_eq!(read::<Target>(&long(4096), &[]).map(drop), impossible("a name that is too long"));
    let long = [b"user.".as_slice(), &[b'x'; 251]].concat();
    assert_eq!(read::<XattrName>(&name(&long), &[]).map(drop), impossible("a name that is too long"));
    // What is too long is refused whether or not it is there.
    assert_eq!(read::<Name>(&[0xff, 0x7f], &[]).map(drop), impossible("a name that is too long"));
}

#[test]
fn wishes_may_be_foolish_and_locks_are_not() {
    let backwards = Lock { stretch: Stretch { first: 1, last: 0 }, ..fcntl_lock() };
    let narrow = Lock { stretch: Stretch { first: 1, last: 2 }, ..flock_lock() };
    for lock in [backwards, narrow] {
        check(&op(Change::Lock { inode: inode_id(7), lock, wait: true }));
        check(&Query { who: Who::root(), ask: Ask::TestLock { inode: inode_id(7), lock } });
        let what = "a lock of no stretch";
        assert_eq!(refused::<Answered>(&Ok(Answer::InTheWay(Some(lock)))), what);
        let what = "locks that cannot be had together";
        let held = Locks { held: vec![lock], ..locks() };
        let waiting = Locks { waiting: vec![Waiting { lock, ..locks().waiting[0] }], ..locks() };
        for locks in [held, waiting] {
            assert_eq!(refused::<Answered>(&Ok(Answer::Locks(Some(locks.clone().into())))), what);
            assert_eq!(
                refused::<Placed>(&(Key::Locks(inode_id(7)), Some((born(10), Part::Locks(locks.into()))))),
                what
            );
        }
    }
}

#[test]
fn locks_are_in_order_and_agree() {
    let what = "locks that cannot be had together";
    let other = Lock { owner: Owner { number: 5, ..OWNER }, ..fcntl_lock() };
    let apart = |lock: Lock| Lock { stretch: Stretch { first: 500, last: 600 }, ..lock };
    check(&Locks { held: vec![apart(other), fcntl_lock()], ..locks() });
    let wrong = [
        Locks::default(),
        Locks { held: vec![fcntl_lock(), apart(other)], ..locks() },
        Locks { held: vec![other, fcntl_lock()], ..locks() },
        Locks { waiting: vec![locks().waiting[0]; 2], ..locks() },
    ];
    for locks in wrong {
        assert_eq!(refused(&locks), what);
    }
}

#[test]
fn attributes_go_with_their_kind() {
    let what = "attributes that an inode of this kind has not";
    let of = |body| inode(body).attributes(inode_id(7));
    let attributes = of(file());
    check(&attributes);
    assert_eq!(refused(&Attributes { replicas: None, ..attributes }), what);
    assert_eq!(refused(&Attributes { rdev: 1, ..attributes.clone() }), what);
    let last_lend = attributes.lent.map(|lent| lent.generation);
    assert_eq!(refused(&Attributes { last_lend, ..attributes.clone() }), what);
    for body in bodies() {
        let other = of(body);
        check(&other);
        let lent = Attributes { lent: attributes.lent, ..other.clone() };
        if other.kind == Kind::Directory {
            check(&lent);
            let to_content = attributes.lent.map(|lent| Lent { to: LentTo::Content, ..lent });
            assert_eq!(refused(&Attributes { lent: to_content, ..other.clone() }), what);
        } else {
            assert_eq!(refused(&lent), what);
        }
        assert_eq!(refused(&Attributes { last_lend: Some(Generation(born(1))), ..other.clone() }), what);
        assert_eq!(refused(&Attributes { replicas: Some(replicas()), ..other.clone() }), what);
        if matches!(other.kind, Kind::CharDevice | Kind::BlockDevice) {
            assert_eq!(refused(&Attributes { size: 1, ..other }), what);
        } else {
            assert_eq!(refused(&Attributes { rdev: 1, ..other.clone() }), what);
            if matches!(other.kind, Kind::Fifo | Kind::Socket) {
                assert_eq!(refused(&Attributes { size: 1, ..other }), what);
            }
        }
    }
}

#[test]
fn inodes_are_within_their_limits() {
    let what = "an inode that has more of something than there can be";
    let full = Inode {
        mode: 0o7777,
        links: LINKS_MAX,
        holders: CLIENTS_MAX,
        xattrs: XATTRS_MAX,
        xattr_bytes: u32::try_from(XATTR_BYTES_MAX).unwrap(),
        body: Body::File { size: FILE_BYTES_MAX, replicas: replicas(), lent: None, last_lend: None },
        ..inode(Body::Fifo)
    };
    check(&of_inode(full.clone()));
    assert_eq!(refused(&of_inode(Inode { mode: 0o10000, ..full.clone() })), what);
    assert_eq!(refused(&of_inode(Inode { links: LINKS_MAX + 1, ..full.clone() })), what);
    assert_eq!(refused(&of_inode(Inode { holders: CLIENTS_MAX + 1, ..full.clone() })), what);
    assert_eq!(refused(&of_inode(Inode { xattrs: XATTRS_MAX + 1, ..full.clone() })), what);
    assert_eq!(refused(&of_inode(Inode { xattr_bytes: full.xattr_bytes + 1, ..full.clone() })), what);
    let what = "a file of such a size";
    let body = Body::File { size: FILE_BYTES_MAX + 1, replicas: replicas(), lent: None, last_lend: None };
    assert_eq!(refused(&of_inode(Inode { body, ..full })), what);
    let generation = Generation(born(9));
    let lent = Some(Lent { generation, to: LentTo::Content });
    let body = Body::File { size: 0, replicas: replicas(), lent, last_lend: Some(generation) };
    assert_eq!(refused(&of_inode(Inode { body, ..full })), "a lend before one that is over");
    let body = Body::Directory { parent: InodeId::ROOT, entries: 0, lent };
    assert_eq!(refused(&of_inode(Inode { body, ..full })), "a directory that is lent to its content");
    let doomed = |size| {
        let part = Part::Doomed(Doomed { replicas: replicas(), size }.into());
        (Key::Doomed(inode_id(7)), Some((born(10), part)))
    };
    check(&doomed(FILE_BYTES_MAX));
    assert_eq!(refused(&doomed(FILE_BYTES_MAX + 1)), what);
}

#[test]
fn volumes_hold_what_there_can_be() {
    let what = "a volume that holds more than there can be";
    let bytes = 2 * u128::from(FILE_BYTES_MAX);
    let full = Volume { inodes: 2, inodes_max: 1, bytes, bytes_max: 1, clients: CLIENTS_MAX };
    check(&full);
    assert_eq!(refused(&Volume { bytes: bytes + 1, ..full }), what);
    assert_eq!(refused(&Volume { clients: CLIENTS_MAX + 1, ..full }), what);
}

#[test]
fn values_are_no_longer_than_an_inode_has_room_for() {
    let what = "an extended attribute that is too long";
    let bytes = |length: u64| Bytes::from(vec![7; usize::try_from(length).unwrap()]);
    let set = |length| {
        let (inode, name, how) = (inode_id(7), xattr_name(), XattrHow::Any);
        op(Change::SetXattr { inode, name, value: bytes(length), how })
    };
    // With its name it is too long, which the tree says.
    check(&set(XATTR_BYTES_MAX));
    assert_eq!(refused(&set(XATTR_BYTES_MAX + 1)), what);
    let answer = |length| -> Answered { Ok(Answer::Value(bytes(length))) };
    check(&answer(XATTR_BYTES_MAX));
    assert_eq!(refused(&answer(XATTR_BYTES_MAX + 1)), what);
    let key = Key::Xattr(inode_id(7), xattr_name());
    let part = |length| Part::Value(bytes(length).into());
    let longest = XATTR_BYTES_MAX - xattr_name().as_bytes().len() as u64;
    check::<Placed>(&(key.clone(), Some((born(10), part(longest)))));
    assert_eq!(refused::<Placed>(&(key.clone(), Some((born(10), part(longest + 1))))), what);
    let kept = Bytes::from(encode_name_part(born(10), &part(longest + 1)).concat());
    assert_eq!(decode_name_part(&key, kept), Err(DecodeError::Impossible(what)));
}

#[test]
fn values_fit_their_checksum() {
    let answer: Answered = Ok(Answer::Value(Bytes::from_static(b"some value")));
    let (metadata, tail) = written(&answer);
    let mut damaged = tail.to_vec();
    damaged[3] ^= 1;
    let error = read::<Answered>(&metadata, &damaged).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged(_)), "{error}");
}

#[test]
fn answers_are_in_order() {
    let what = "an answer that is not in order";
    let (a, b) = (inode_id(7), inode_id(8));
    let other = ClientId { program: 2, ..CLIENT };
    let (alive, ended) = (ClientState::Alive, ClientState::Ended);
    let sound = [
        Answer::Inodes(vec![a, b]),
        Answer::Doomed(vec![(a, replicas()), (b, replicas())]),
        Answer::Clients(vec![(CLIENT, alive), (other, ended)]),
        Answer::Names(vec![XattrName::acl_access(), xattr_name()]),
    ];
    sound.into_iter().for_each(|answer| check::<Answered>(&Ok(answer)));
    let wrong = [
        Answer::Inodes(vec![b, a]),
        Answer::Inodes(vec![a, a]),
        Answer::Doomed(vec![(b, replicas()), (a, replicas())]),
        Answer::Clients(vec![(CLIENT, alive), (CLIENT, ended)]),
        Answer::Names(vec![xattr_name(), XattrName::acl_access()]),
    ];
    for answer in wrong {
        assert_eq!(refused::<Answered>(&Ok(answer)), what);
    }
    // More than the attributes of an inode can have.
    let long = |number: u32| {
        let name =
            [b"user.".as_slice(), &number.to_be_bytes().map(|byte| byte | 0x80), &[b'x'; 246]].concat();
        XattrName::new(&name).unwrap()
    };
    check::<Answered>(&Ok(Answer::Names((0..127).map(long).collect())));
    let names = (0..128).chain(1 << 8..(1 << 8) + 128).chain(1 << 16..(1 << 16) + 2).map(long).collect();
    assert_eq!(refused::<Answered>(&Ok(Answer::Names(names))), what);
}

#[test]
fn pages_are_in_order_and_no_longer_than_they_are_made() {
    let attributes = inode(file()).attributes(inode_id(7));
    let listed = |name: &[u8], attributes| Listed {
        name: Name::new(name).unwrap(),
        inode: inode_id(7),
        kind: Kind::File,
        attributes,
    };
    let page = |entries| -> Answered { Ok(Answer::Page(Page { entries, is_last: false })) };
    check(&page(vec![listed(b"a", Some(attributes.clone())), listed(b"b", None)]));
    let what = "names that are no page of a directory";
    assert_eq!(refused(&page(vec![listed(b"b", None), listed(b"a", None)])), what);
    assert_eq!(refused(&page(vec![listed(b"a", None), listed(b"a", None)])), what);
    let names = |count: u32, length: usize, attributes: &Option<Attributes>| {
        let name = |number: u32| {
            let digits = format!("{number:05}{}", "x".repeat(length - 5));
            listed(digits.as_bytes(), attributes.clone())
        };
        page((0..count).map(name).collect())
    };
    // 32 and 16, 272 and 32 and 200: what they count.
    check(&names(64 * 1024 / 48, 16, &None));
    assert_eq!(refused(&names(64 * 1024 / 48 + 1, 16, &None)), what);
    check(&names(64 * 1024 / 504, 200, &Some(attributes.clone())));
    assert_eq!(refused(&names(64 * 1024 / 504 + 1, 200, &Some(attributes.clone()))), what);
    let what = "attributes of another inode than is listed";
    let other = Attributes { inode: inode_id(8), ..attributes };
    assert_eq!(refused(&page(vec![listed(b"a", Some(other))])), what);
    let other = inode(Body::Fifo).attributes(inode_id(7));
    assert_eq!(refused(&page(vec![listed(b"a", Some(other))])), what);
}

#[test]
fn lists_are_as_long_as_they_can_be() {
    let too_many = |head: &[u8], count: usize, element: &[u8]| {
        let mut out = Sink { metadata: head.to_vec(), tail: Vec::new() };
        (count as u64).put(&mut out);
        (0..count).for_each(|_| out.metadata.extend_from_slice(element));
        out.metadata
    };
    let id = [7, 5, 1];
    let site = written(&Site::new(inode_id(7), entry_name())).0;
    let unlink = [&[172, 2, 0, 0, 0, 1, 1, 2][..], &site].concat();
    check(&op(Change::Unlink {
        site: Site::new(inode_id(7), entry_name()),
        holders: vec![CLIENT; HOLDERS_MAX],
        removed: None,
    }));
    let tail = |read: Result<(), DecodeError>, count: usize| {
        assert_eq!(read, Err(DecodeError::TooMany(count)));
    };
    tail(read::<Op>(&too_many(&unlink, HOLDERS_MAX + 1, &[1, 1]), &[]).map(drop), HOLDERS_MAX + 1);
    tail(read::<Who>(&too_many(&[0, 0], GROUPS_MAX + 1, &[1]), &[]).map(drop), GROUPS_MAX + 1);
    tail(read::<Answered>(&too_many(&[0, 8], PAGE_MAX + 1, &id), &[]).map(drop), PAGE_MAX + 1);
    tail(read::<Answered>(&too_many(&[0, 9], PAGE_MAX + 1, &[1; 5]), &[]).map(drop), PAGE_MAX + 1);
    tail(read::<Answered>(&too_many(&[0, 10], PAGE_MAX + 1, &[1; 3]), &[]).map(drop), PAGE_MAX + 1);
    tail(read::<Answered>(&too_many(&[0, 4], 1025, b"\x06user.a"), &[]).map(drop), 1025);
    tail(read::<Answered>(&too_many(&[0, 1], 1986, &[0; 7]), &[]).map(drop), 1986);
    tail(read::<Locks>(&too_many(&[], LOCKS_MAX + 1, &[0; 21]), &[]).map(drop), LOCKS_MAX + 1);
    tail(read::<Locks>(&too_many(&[0], WAITING_MAX + 1, &[0; 24]), &[]).map(drop), WAITING_MAX + 1);
    tail(read::<Outcome>(&too_many(&[0, 8], GRANTED_MAX + 1, &[0; 20]), &[]).map(drop), GRANTED_MAX + 1);
    // Announced, and not there.
    tail(read::<Answered>(&[0, 8, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[]).map(drop), 4);
}

#[test]
fn bytes_without_a_meaning_are_refused() {
    let unknown = |read: Result<(), DecodeError>| match read {
        Err(DecodeError::UnknownByte { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(unknown(read::<Rights>(&[8], &[]).map(drop)), "rights");
    assert_eq!(unknown(read::<namespace::Marks>(&[8], &[]).map(drop)), "marks of an inode");
    assert_eq!(unknown(read::<Kind>(&[7], &[]).map(drop)), "what an inode is");
    assert_eq!(unknown(read::<Change>(&[23], &[]).map(drop)), "a change of a tree");
    assert_eq!(unknown(read::<Done>(&[13], &[]).map(drop)), "what came of a change of a tree");
    assert_eq!(unknown(read::<NameError>(&[40], &[]).map(drop)), "why a tree refuses");
    assert_eq!(unknown(read::<NameError>(&[23, 3], &[]).map(drop)), "why bytes are no acl");
    assert_eq!(unknown(read::<Ask>(&[15], &[]).map(drop)), "a question about a tree");
    assert_eq!(unknown(read::<Answer>(&[12], &[]).map(drop)), "an answer about a tree");
    assert_eq!(unknown(read::<Key>(&[15], &[]).map(drop)), "the name of a part of a tree");
}

#[test]
fn what_no_volume_is_called_is_refused() {
    assert_eq!(read::<VolumeName>(b"\x04home", &[]), Ok(VolumeName::parse("home").unwrap()));
    let long = [&[65][..], &[b'a'; 65]].concat();
    for bytes in [&b"\0"[..], b"\x01A", b"\x01.", b"\x02\xc3\x9f", b"\x01\xff", &long] {
        assert!(matches!(read::<VolumeName>(bytes, &[]), Err(DecodeError::Impossible(_))), "{bytes:?}");
    }
}

#[test]
fn a_key_says_what_its_part_is() {
    let parts = name_parts();
    for (key, at, part) in &parts {
        let kept = Bytes::from(encode_name_part(*at, part).concat());
        assert_eq!(decode_name_part(key, kept.clone()), Ok((*at, part.clone())));
        for (other, ..) in &parts {
            let read = decode_name_part(other, kept.clone());
            assert!(
                read.is_err() || part.is_of(other) || read.unwrap().1.is_of(other),
                "{key:?} as {other:?}"
            );
        }
    }
    let volume = parts[1].2.clone();
    let wrong: Placed = (Key::Inode(inode_id(7)), Some((born(10), volume)));
    assert!(std::panic::catch_unwind(|| written(&wrong)).is_err(), "an encoder does not write it");
}

#[test]
fn numbers_have_the_width_of_their_field() {
    // A mode that is no `u16`, and a size that is no `u32`, before any limit is looked at.
    let of_width = |read: Result<(), DecodeError>| match read {
        Err(DecodeError::Impossible(what)) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(of_width(read::<u16>(&[0x80, 0x80, 4], &[]).map(drop)), "a number of more than 16 bits");
    assert_eq!(read::<u16>(&[0xff, 0xff, 3], &[]), Ok(u16::MAX));
    assert_eq!(read::<u128>(&[1, 2], &[]), Ok((1 << 64) + 2));
}
