//! Nothing takes more bytes in a message than it is said to cost, and whatever there is fits into a frame.

use std::sync::Arc;

use base::{Epoch, MEMBERS_MAX, NodeId, Seq};
use namespace::cost::{OP_BYTES_MAX, OUTCOME_BYTES_MAX, op_bytes, part_bytes};
use namespace::limits::{ATTRIBUTES_BYTES, GRANTED_MAX, HOLDERS_MAX, LISTED_BYTES, PAGE_BYTES_MAX, PAGE_MAX};
use namespace::{
    Body, Change, Given, Grant, Granted, Inode, Listed, Make, NotAcl, Page, RenameHow, SetAttributes,
    SetTime, Site, XattrHow,
};

use super::*;
use crate::Kind as FrameKind;

const EPOCH: Epoch = Epoch { number: u64::MAX, node: NodeId(u32::MAX) };
const BORN: Born = Born { epoch: EPOCH, seq: Seq(u64::MAX) };
const INODE: InodeId = InodeId::of(BORN);
const CLIENT: ClientId = ClientId { certificate: u64::MAX, program: u64::MAX };
const OWNER: Owner = Owner { client: CLIENT, number: u64::MAX };
const NEVER: WallTime = WallTime::from_micros(u64::MAX);

fn length<T: Field>(value: &T) -> u64 {
    let (metadata, tail) = written(value);
    (metadata.len() + tail.len()) as u64
}

fn name(number: u64) -> Name {
    let name = format!("{number:05}{}", "x".repeat(NAME_BYTES_MAX - 5));
    Name::new(name.as_bytes()).unwrap()
}

fn xattr_name() -> XattrName {
    XattrName::new(&[b"user.".as_slice(), &[b'x'; 250]].concat()).unwrap()
}

fn members() -> Members {
    Members::new((0..).take(MEMBERS_MAX).map(|less| NodeId(u32::MAX - less))).unwrap()
}

fn lock(less: u64) -> Lock {
    Lock {
        owner: Owner { number: u64::MAX - less, ..OWNER },
        kind: LockKind::Fcntl,
        mode: LockMode::Shared,
        stretch: Stretch { first: u64::MAX, last: u64::MAX },
    }
}

fn locks() -> Locks {
    let waiting = |less| {
        let ticket = Ticket(Born { seq: Seq(u64::MAX - less), ..BORN });
        Waiting { ticket, lock: lock(less) }
    };
    Locks {
        held: (0..LOCKS_MAX as u64).rev().map(lock).collect(),
        waiting: (0..WAITING_MAX as u64).map(waiting).collect(),
    }
}

fn inode(body: Body) -> Inode {
    // Half of all time from `ctime` is the longest way.
    let far = WallTime::from_micros(u64::MAX - (1 << 63));
    Inode {
        mode: 0o7777,
        marks: namespace::Marks::default(),
        uid: u32::MAX,
        gid: u32::MAX,
        links: namespace::limits::LINKS_MAX,
        holders: namespace::limits::CLIENTS_MAX,
        xattrs: namespace::limits::XATTRS_MAX,
        xattr_bytes: 1 << 16,
        atime: far,
        mtime: far,
        ctime: NEVER,
        btime: far,
        body,
    }
}

fn file() -> Body {
    let lent = Lent { generation: Generation(BORN), to: LentTo::Client(CLIENT) };
    let last_lend = Some(Generation(Born { seq: Seq(BORN.seq.0 - 1), ..BORN }));
    let size = namespace::limits::FILE_BYTES_MAX;
    Body::File { size, replicas: members(), lent: Some(lent), last_lend }
}

fn largest_ops() -> Vec<Op> {
    let site = || Site::new(INODE, name(1)).naming(INODE);
    let holders = || vec![CLIENT; HOLDERS_MAX];
    let target = Target::new(vec![b't'; TARGET_BYTES_MAX].into()).unwrap();
    let create = |make| Change::Create {
        dir: INODE,
        name: name(1),
        make,
        mode: 0o7777,
        umask: 0o7777,
        is_exclusive: true,
        lends: false,
    };
    let to = Some(SetTime::To(NEVER));
    let set = SetAttributes {
        mode: Some(0o7777),
        uid: Some(u32::MAX),
        gid: Some(u32::MAX),
        size: Some(u64::MAX),
        atime: to,
        mtime: to,
        is_open: true,
    };
    let value: Bytes = vec![0; usize::try_from(XATTR_BYTES_MAX).unwrap()].into();
    let changes = vec![
        create(Make::File { replicas: members() }),
        create(Make::Symlink { target }),
        Change::Enter {
            dir: INODE,
            under: Generation(BORN),
            number: u64::MAX,
            name: name(1),
            replicas: members(),
            mode: 0o7777,
            created: NEVER,
        },
        Change::Link { inode: INODE, dir: INODE, name: name(1) },
        Change::Unlink { site: site(), holders: holders(), removed: Some(NEVER) },
        Change::Rename { from: site(), to: site(), how: RenameHow::Replace, holders: holders() },
        Change::Rename { from: site(), to: site(), how: RenameHow::Replace, holders: vec![] },
        Change::SetAttributes { inode: INODE, set },
        Change::SetXattr { inode: INODE, name: xattr_name(), value, how: XattrHow::Any },
        Change::GiveBack {
            inode: INODE,
            generation: Generation(BORN),
            given: Some(Given { size: u64::MAX, mtime: NEVER, ctime: NEVER }),
            accessed: Some(NEVER),
            mode: Some(0o7777),
            changed: Some(NEVER),
        },
        Change::Lock { inode: INODE, lock: lock(0), wait: true },
        Change::Cancel { inode: INODE, ticket: Ticket(BORN) },
    ];
    let who = Who::new(u32::MAX, u32::MAX, &[u32::MAX; GROUPS_MAX]).unwrap();
    let op = |change| Op { time: NEVER, who: who.clone(), client: CLIENT, change };
    changes.into_iter().map(op).collect()
}

#[test]
fn the_largest_operations_take_no_more_than_they_cost() {
    for op in largest_ops() {
        assert!(length(&op) <= op_bytes(&op).min(OP_BYTES_MAX), "{} for {op:?}", length(&op));
    }
}

#[test]
fn the_largest_parts_take_no_more_than_they_cost() {
    let value = vec![0; usize::try_from(XATTR_BYTES_MAX).unwrap() - NAME_BYTES_MAX];
    let target = Target::new(vec![b't'; TARGET_BYTES_MAX].into()).unwrap();
    let doomed = namespace::Doomed { replicas: members(), size: namespace::limits::FILE_BYTES_MAX };
    let parts = [
        (Key::Inode(INODE), Part::Inode(inode(file()).into())),
        (Key::Inode(INODE), Part::Inode(inode(Body::Symlink { target }).into())),
        (Key::Entry(INODE, name(1)), Part::Entry(namespace::Entry { inode: INODE, kind: Kind::File })),
        (Key::Xattr(INODE, xattr_name()), Part::Value(Arc::new(value.into()))),
        (Key::Locks(INODE), Part::Locks(locks().into())),
        (Key::Doomed(INODE), Part::Doomed(doomed.into())),
        (Key::Hold(INODE, CLIENT), Part::Mark),
        (Key::Wait(OWNER, Ticket(BORN)), Part::Wait(INODE)),
    ];
    for (key, part) in parts {
        let cost = part_bytes(&part);
        let kept: usize = encode_name_part(BORN, &part).iter().map(Bytes::len).sum();
        assert!((encode_name_key(&key).len() + kept) as u64 <= cost, "{key:?}");
        let placed: Placed = (key, Some((BORN, part)));
        assert!(length(&placed) <= cost, "{} for {:?}", length(&placed), placed.0);
        check(&placed);
    }
}

#[test]
fn the_largest_outcomes_take_no_more_than_they_cost() {
    let grant = Grant { owner: OWNER, ticket: Ticket(BORN) };
    let granted = Granted { all: vec![grant; GRANTED_MAX], more: true };
    let outcomes: [Outcome; 2] = [
        Ok(Done::Created { attributes: inode(file()).attributes(INODE), is_new: true }),
        Ok(Done::Locked { waits: Some(Ticket(BORN)), granted }),
    ];
    let errors = golden::errors(INODE, BORN, (OWNER, u64::MAX, NotAcl::TooLong { entries: 1025 }));
    for outcome in outcomes.into_iter().chain(errors.into_iter().map(Err)) {
        assert!(length(&outcome) <= OUTCOME_BYTES_MAX, "{} for {outcome:?}", length(&outcome));
    }
}

#[test]
fn the_longest_answers_fit_into_a_frame() {
    let attributes = inode(file()).attributes(INODE);
    assert!(length(&attributes) <= ATTRIBUTES_BYTES as u64);
    let page = |attributes: Option<Attributes>| {
        let each = LISTED_BYTES + NAME_BYTES_MAX + attributes.as_ref().map_or(0, |_| ATTRIBUTES_BYTES);
        let listed = |number| Listed {
            name: name(number),
            inode: INODE,
            kind: Kind::File,
            attributes: attributes.clone(),
        };
        let entries: Vec<Listed> = (0..(PAGE_BYTES_MAX / each) as u64).map(listed).collect();
        Answer::Page(Page { entries, is_last: false })
    };
    let inode_id = |less| InodeId { number: u64::MAX - less, ..INODE };
    let ids = || (0..PAGE_MAX as u64).rev().map(inode_id);
    let client = |less| ClientId { program: u64::MAX - less, ..CLIENT };
    let answers = [
        page(None),
        page(Some(attributes)),
        Answer::Locks(Some(locks().into())),
        Answer::Inodes(ids().collect()),
        Answer::Doomed(ids().map(|inode| (inode, members())).collect()),
        Answer::Clients((0..PAGE_MAX as u64).rev().map(|less| (client(less), ClientState::Ended)).collect()),
    ];
    let limit = u64::from(FrameKind::FileReply.limits().metadata);
    for answer in answers {
        let answer: Answered = Ok(answer);
        check(&answer);
        // With the request's number and what else stands around it.
        assert!(length(&answer) + 32 <= limit, "{} bytes", length(&answer));
    }
    for op in largest_ops() {
        let (metadata, tail) = written(&op);
        let limits = FrameKind::FileRequest.limits();
        assert!(metadata.len() as u64 + 32 <= u64::from(limits.metadata));
        assert!(tail.len() as u64 <= u64::from(limits.tail));
    }
}

/// A million of each are kept by a daemon, under a key of theirs.
#[test]
fn a_file_and_its_name_are_kept_in_few_bytes() {
    let born = |number| Born { epoch: Epoch { number: 300, node: NodeId(3) }, seq: Seq(number) };
    let now = WallTime::from_micros(1_800_000_000_000_000);
    let body = Body::File {
        size: 1 << 20,
        replicas: Members::new([1, 2, 3].map(NodeId)).unwrap(),
        lent: Some(Lent { generation: Generation(born(1_000_000)), to: LentTo::Content }),
        last_lend: None,
    };
    let inode = Inode {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        links: 1,
        holders: 0,
        xattrs: 0,
        xattr_bytes: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        ..inode(body)
    };
    let id = InodeId::of(born(1_000_000));
    let kept = |part: Part| encode_name_part(born(1_000_000), &part).concat().len();
    assert_eq!(kept(Part::Inode(inode.into())), 46);
    assert_eq!(kept(Part::Entry(namespace::Entry { inode: id, kind: Kind::File })), 14);
    assert_eq!(encode_name_key(&Key::Inode(id)).len(), 21);
    assert_eq!(encode_name_key(&Key::Entry(id, Name::new(b"a name").unwrap())).len(), 27);
}
