//! Everything that is said and kept of a tree, byte for byte: whoever changes one of these changes the protocol.
//!
//! Groups of digits belong together; `docs/wire.md` says what they are. What stands behind a bar is in the tail.

use namespace::{
    Ask, Body, Change, Expect, Fate, Given, Grant, Granted, LentTo, Listed, Make, NotAcl, Page, RenameHow,
    SetAttributes, SetTime, Site, Volume, XattrHow,
};

use super::samples::{
    CLIENT, OWNER, bodies, born, entry_name, fcntl_lock, file, flock_lock, inode, inode_id, locks,
    name_parts, replicas, xattr_name,
};
use super::*;

const ID: InodeId = InodeId::ROOT;

/// Every reason there is, in the order of their numbers.
pub(super) fn errors(
    inode: InodeId,
    born: Born,
    (owner, number, why): (Owner, u64, NotAcl),
) -> Vec<NameError> {
    use NameError as E;
    let (dir, generation, ticket, client) = (inode, Generation(born), Ticket(born), owner.client);
    vec![
        E::NoInode { inode },
        E::NoEntry { dir },
        E::Exists { inode },
        E::NotDirectory { inode },
        E::IsDirectory { inode },
        E::WrongKind { inode },
        E::NotEmpty { dir },
        E::Denied { inode },
        E::NotPermitted { inode },
        E::TooManyLinks { inode },
        E::Loop { dir },
        E::TooDeep { dir },
        E::Stale { dir },
        E::Lent { inode, generation },
        E::NotLent { inode, generation },
        E::NoInodes { inodes_max: number },
        E::NoSpace { bytes_max: number },
        E::TooLong { size: number },
        E::NoXattr { inode },
        E::XattrExists { inode },
        E::XattrTooLong { bytes: number },
        E::NoXattrSpace { inode },
        E::NotSupported { inode },
        E::NotAcl(why),
        E::Locked { by: owner },
        E::Deadlock { owner },
        E::TooManyLocks { inode },
        E::NoStretch,
        E::NotWaiting { ticket },
        E::Foreign { owner },
        E::NotOrphan { inode },
        E::Orphan { inode },
        E::NotHeld { inode, client },
        E::NotDoomed { inode },
        E::TooManyHolders { count: number },
        E::TooManyClients,
        E::Expired { client },
        E::NotExpired { client },
        E::NoClient { client },
        E::NoMode,
    ]
}

/// A value looks as expected, and comes back.
fn expect<T: Field + PartialEq + Debug>(value: &T, expected: &str) {
    let (metadata, tail) = written(value);
    let bar = if tail.is_empty() { "" } else { "|" };
    let found = format!("{}{bar}{}", digits(&metadata), digits(&tail));
    assert_eq!(found, expected.replace(' ', ""), "{value:?}");
    check(value);
}

fn site(expect: Expect) -> Site {
    Site { expect, ..Site::new(ID, entry_name()) }
}

fn changes() -> Vec<Change> {
    let (inode, dir, name) = (inode_id(7), ID, entry_name());
    let create = |make| Change::Create {
        dir,
        name: entry_name(),
        make,
        mode: 0o640,
        umask: 0o22,
        is_exclusive: true,
        lends: false,
    };
    let target = Target::new(Bytes::from_static(b"../x")).unwrap();
    let time = WallTime::from_micros(301);
    let set = SetAttributes {
        mode: Some(0o7777),
        uid: Some(1000),
        gid: None,
        size: Some(300),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To(time)),
        is_open: true,
    };
    let (to, holders) = (site(Expect::Nothing), vec![CLIENT]);
    let value = Bytes::from_static(b"some value");
    let generation = Generation(born(9));
    vec![
        create(Make::File { replicas: replicas() }),
        create(Make::Symlink { target }),
        create(Make::BlockDevice { rdev: 0x0800 }),
        Change::Link { inode, dir, name },
        Change::Unlink { site: site(Expect::Inode(inode)), holders: holders.clone(), removed: Some(time) },
        Change::RemoveDirectory { site: site(Expect::Any), holders: vec![] },
        Change::Rename { from: site(Expect::Any), to, how: RenameHow::Exchange, holders },
        Change::SetAttributes { inode, set },
        Change::SetXattr { inode, name: xattr_name(), value, how: XattrHow::Replace },
        Change::RemoveXattr { inode, name: xattr_name() },
        Change::Lend { inode, to: LentTo::Content },
        Change::Lend { inode, to: LentTo::Client(CLIENT) },
        Change::Return {
            inode,
            generation,
            modified: Some(time),
            accessed: None,
            mode: Some(0o640),
            changed: Some(time),
            is_untouched: true,
        },
        Change::GiveBack {
            inode,
            generation,
            given: Some(Given { size: 300, mtime: time, ctime: time }),
            accessed: Some(time),
            mode: None,
            changed: Some(time),
        },
        Change::Hold { inode, client: CLIENT },
        Change::Release { inode, client: CLIENT },
        Change::Deleted { inode },
        Change::Lock { inode, lock: fcntl_lock(), wait: true },
        Change::Unlock { inode, owner: OWNER, kind: LockKind::Fcntl, stretch: Stretch { first: 1, last: 2 } },
        Change::Cancel { inode, ticket: Ticket(born(8)) },
        Change::Settle,
        Change::Welcome { client: CLIENT, opens: true },
        Change::Expire { client: CLIENT },
        Change::Forget { client: CLIENT },
        Change::Limit { inodes_max: 300, bytes_max: 7 },
        entered(),
    ]
}

fn entered() -> Change {
    let (under, number, created) = (Generation(born(9)), 7, WallTime::from_micros(301));
    let (name, replicas) = (entry_name(), replicas());
    Change::Enter { dir: ID, under, number, name, replicas, mode: 0o640, created }
}

#[test]
fn operations_look_as_documented() {
    let expected = [
        "00 010000 06 61206e616d65 00 03 01 02 ac02 a003 12 0100",
        "00 010000 06 61206e616d65 02 04 2e2e2f78 a003 12 0100",
        "00 010000 06 61206e616d65 06 8010 a003 12 0100",
        "01 070501 010000 06 61206e616d65",
        "02 010000 06 61206e616d65 02 070501 01 ff01 01 01 ad02",
        "03 010000 06 61206e616d65 00 00",
        "04 010000 06 61206e616d65 00 010000 06 61206e616d65 01 02 01 ff01 01",
        "05 070501 01 ff1f 01 e807 00 01 ac02 01 00 01 01 ad02 01",
        "06 070501 06 757365722e61 0a b2ca43c7 02 | 736f6d652076616c7565",
        "07 070501 06 757365722e61",
        "08 070501 00",
        "08 070501 01 ff01 01",
        "15 070501 050109 01 ad02 00 01a003 01 ad02 01",
        "09 070501 050109 01 ac02 ad02 ad02 01 ad02 00 01 ad02",
        "0a 070501 ff01 01",
        "0b 070501 ff01 01",
        "0c 070501",
        "0d 070501 ff00000000000000 0100000000000000 06 01 01 00 ac02 01",
        "0e 070501 ff00000000000000 0100000000000000 06 01 01 02",
        "0f 070501 050108",
        "10",
        "11 ff01 01 01",
        "12 ff01 01",
        "13 ff01 01",
        "14 ac02 07",
        "16 010000 050109 07 06 61206e616d65 03 01 02 ac02 a003 ad02",
    ];
    assert_all(&changes(), &expected);
    let who = Who::new(1000, 100, &[4, 300]).unwrap();
    let op = Op { time: WallTime::from_micros(300), who, client: CLIENT, change: Change::Settle };
    expect(&op, "ac02 e807 64 02 04 ac02 ff01 01 10");
}

fn outcomes() -> Vec<Done> {
    let fate = Fate::Named { links: 2 };
    let granted = || Granted { all: vec![Grant { owner: OWNER, ticket: Ticket(born(8)) }], more: true };
    let attributes = || inode(file()).attributes(inode_id(7));
    vec![
        Done::Created { attributes: attributes(), is_new: true },
        Done::Changed { attributes: inode(Body::CharDevice { rdev: 259 }).attributes(inode_id(7)) },
        Done::Removed { inode: inode_id(7), fate },
        Done::Renamed { moved: inode_id(7), other: Some(ID), fate: Some(Fate::Orphan { holders: 3 }) },
        Done::Held,
        Done::Released { fate: Fate::Doomed },
        Done::Deleted,
        Done::Locked { waits: Some(Ticket(born(8))), granted: Granted::NONE },
        Done::Unlocked { granted: granted() },
        Done::Welcomed,
        Done::Expired { more: false, dooms: true, lends: true, granted: Granted::NONE },
        Done::Forgotten,
        Done::Limited,
    ]
}

#[test]
fn outcomes_look_as_documented() {
    let expected = [
        "00 070501 00 a003 e807 64 01 00 8020 e807 04 00 01 01 050109 01ff010101050108 01 03 01 02 ac02 01 01",
        "01 070501 05 a003 e807 64 01 8302 00 e807 04 00 01 00 00 00 01",
        "02 070501 00 02",
        "03 070501 01 010000 01 01 03",
        "04",
        "05 02",
        "06",
        "07 01 050108 00 00",
        "08 01 ff00000000000000 0100000000000000 06 050108 01",
        "09",
        "0a 00 01 010000",
        "0b",
        "0c",
    ];
    assert_all(&outcomes(), &expected);
    expect::<Outcome>(&Ok(Done::Removed { inode: ID, fate: Fate::Gone }), "00 02 010000 03");
    let wide = NotAcl::TooLong { entries: 1025 };
    expect::<Outcome>(&Err(NameError::NotAcl(wide)), "01 17 01 8108");
}

#[test]
fn refusals_look_as_documented() {
    let (inode, generation, owner, client) =
        ("070501", "050109", "ff000000000000000100000000000000 06", "ff0101");
    for (number, error) in errors(inode_id(7), born(9), (OWNER, 300, NotAcl::Entries)).into_iter().enumerate()
    {
        let fields = match number {
            13 | 14 => format!("{inode}{generation}"),
            15..=17 | 20 | 34 => "ac02".to_owned(),
            23 => "02".to_owned(),
            24 | 25 | 29 => owner.to_owned(),
            27 | 35 | 39 => String::new(),
            28 => generation.to_owned(),
            32 => format!("{inode}{client}"),
            36..=38 => client.to_owned(),
            _ => inode.to_owned(),
        };
        expect(&error, &format!("{number:02x}{fields}"));
    }
}

fn asks() -> Vec<Ask> {
    let (inode, dir) = (inode_id(7), ID);
    vec![
        Ask::Lookup { dir, name: entry_name() },
        Ask::Attributes { inode },
        Ask::List { dir, after: Some(entry_name()), entries_max: 300, with_attributes: true },
        Ask::Readlink { inode },
        Ask::GetXattr { inode, name: xattr_name() },
        Ask::ListXattrs { inode },
        Ask::Access { inode, rights: Rights::CHANGE },
        Ask::Statfs,
        Ask::TestLock { inode, lock: flock_lock() },
        Ask::Locks { inode },
        Ask::Orphans { after: None },
        Ask::Doomed { after: Some(inode) },
        Ask::Clients { after: Some(CLIENT) },
        Ask::Holds { client: CLIENT, after: None },
        Ask::Wish { inode, lock: flock_lock(), ticket: Ticket(Born::default()) },
    ]
}

#[test]
fn questions_look_as_documented() {
    let expected = [
        "00 010000 06 61206e616d65",
        "01 070501",
        "02 010000 01 06 61206e616d65 ac02 01",
        "03 070501",
        "04 070501 06 757365722e61",
        "05 070501",
        "06 070501 03",
        "07",
        "08 070501 ff00000000000000 0100000000000000 07 00 00 00 ffffffffffffffffff01",
        "09 070501",
        "0a 00",
        "0b 01 070501",
        "0c 01 ff01 01",
        "0d ff01 01 00",
        "0e 070501 ff00000000000000 0100000000000000 07 000000 ffffffffffffffffff01 000000",
    ];
    assert_all(&asks(), &expected);
    expect(&Query { who: Who::new(1000, 100, &[4]).unwrap(), ask: Ask::Statfs }, "e807 64 01 04 07");
}

fn answers() -> Vec<Answer> {
    let attributes = || inode(bodies()[1].clone()).attributes(inode_id(7));
    let listed = |name: &[u8], attributes| {
        let (name, inode, kind) = (Name::new(name).unwrap(), inode_id(7), Kind::Symlink);
        Listed { name, inode, kind, attributes }
    };
    let entries = vec![listed(b"a", Some(attributes())), listed(b"b", None)];
    let volume = Volume { inodes: 9, inodes_max: 300, bytes: 1 << 65, bytes_max: 7, clients: 2 };
    vec![
        Answer::Attributes(attributes()),
        Answer::Page(Page { entries, is_last: true }),
        Answer::Target(Target::new(Bytes::from_static(b"../x")).unwrap()),
        Answer::Value(Bytes::from_static(b"some value")),
        Answer::Names(vec![XattrName::acl_access(), xattr_name()]),
        Answer::Volume(volume),
        Answer::InTheWay(Some(fcntl_lock())),
        Answer::Locks(Some(locks().into())),
        Answer::Inodes(vec![ID, inode_id(7)]),
        Answer::Doomed(vec![(inode_id(7), replicas())]),
        Answer::Clients(vec![(CLIENT, ClientState::Ended)]),
        Answer::Wish(Wish::Had),
    ]
}

#[test]
fn answers_look_as_documented() {
    let expected = [
        "00 070501 02 a003 e807 64 01 00 04 e807 04 00 01 00 00 00 01",
        "01 02 01 61 070501 02 01 070501 02 a003 e807 64 01 00 04 e807 04 00 01 00 00 00 01 01 62 070501 02 00 01",
        "02 04 2e2e2f78",
        "03 0a b2ca43c7 | 736f6d652076616c7565",
        "04 02 17 73797374656d2e706f7369785f61636c5f616363657373 06 757365722e61",
        "05 09 ac02 02 00 07 02",
        "06 01 ff00000000000000 0100000000000000 06 01 01 00 ac02",
        "07 01 01 ff00000000000000 0100000000000000 06 01 01 00 ac02 01 050108 ff00000000000000 0100000000000000 07 00 00 00 ffffffffffffffffff01",
        "08 02 010000 070501",
        "09 01 070501 03 01 02 ac02",
        "0a 01 ff01 01 02",
        "0b 01",
    ];
    assert_all(&answers(), &expected);
}

#[test]
fn parts_look_as_documented() {
    let expected = [
        "00 070501 01 05010a a003 05 e807 64 01 00 02 ac02 e807 04 00 01 00 8020 03 01 02 ac02 01 050109 01ff010101050108",
        "01 01 05010a 09 ac02 02 00 ffffffffffffffffff01 02",
        "02 010000 06 61206e616d65 01 05010a 070501 00",
        "03 070501 06 757365722e61 01 05010a 0a b2ca43c7 | 736f6d652076616c7565",
        "04 070501 01 05010a 01 ff00000000000000 0100000000000000 06 01 01 00 ac02 01 050108 ff00000000000000 0100000000000000 07 00 00 00 ffffffffffffffffff01",
        "05 070501 ff01 01 01 05010a",
        "06 070501 01 05010a",
        "07 070501 01 05010a 03 01 02 ac02 8020",
        "08 070501 01 05010a",
        "09 ff01 01 01 05010a 01",
        "0a ff01 01 070501 01 05010a",
        "0b ff01 01 070501 01 05010a",
        "0c ff00000000000000 0100000000000000 06 050108 01 05010a 070501",
        "0d 01 05010a 04 686f6d65",
        "0e ff01 01 070501 01 05010a",
    ];
    let placed = name_parts().into_iter().map(|(key, at, part)| (key, Some((at, part))));
    assert_all::<Placed>(&placed.collect::<Vec<_>>(), &expected);
    expect::<Placed>(&(Key::Orphan(inode_id(7)), None), "06 070501 00");
    let expected = ["01 010000 03 01 050109 01 ff01 01", "02 04 2e2e2f78", "03", "04", "05 8302", "06 8010"];
    assert_all(&bodies(), &expected);
}

/// All of them look as expected, and there is one for each.
fn assert_all<T: Field + PartialEq + Debug>(values: &[T], expected: &[&str]) {
    assert_eq!(values.len(), expected.len());
    values.iter().zip(expected).for_each(|(value, expected)| expect(value, expected));
}

#[test]
fn what_is_kept_looks_as_documented() {
    // A length, the entry, and what the part looks like; the key is elsewhere.
    let expected = [
        "27 05010a a003 05 e807 64 01 00 02 ac02 e807 04 00 01 00 8020 03 01 02 ac02 01 050109 01ff010101050108",
        "13 05010a 09 ac02 02 00 ffffffffffffffffff01 02",
        "07 05010a 070501 00",
        "08 05010a 0a b2ca43c7 736f6d652076616c7565",
    ];
    for ((key, at, part), expected) in name_parts().into_iter().zip(expected) {
        let bytes = Bytes::from(encode_name_part(at, &part).concat());
        assert_eq!(digits(&bytes), expected.replace(' ', ""), "{key:?}");
        assert_eq!(decode_name_part(&key, bytes), Ok((at, part)));
    }
    let mark = encode_name_part(born(10), &Part::Mark).concat();
    assert_eq!(digits(&mark), "0305010a");
}
