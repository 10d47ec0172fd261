//! One of everything that is said about files.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{ClientId, Epoch, Members, NodeId, ObjectId, Seq, Span, View, ViewId, WallTime};
use bytes::Bytes;
use namespace::{
    Ask, Born, Generation, Given, InodeId, Kind, Lent, LentTo, Make, Name, NameError, Root, Volume,
    VolumeName, Who,
};
use node::file::{
    Answer, Attributes, Change, Chunk, Done, Extent, File, FileBody, FileError, FileOf, FileReply,
    FileReplyBody, FileRequest, Key, Lend, LendStage, Level, Mark, Op, Part, Piece, Place, Position, Query,
    Stat, Stored as OnDisk,
};
use node::{
    AccessError, Attendance, CacheGrant, Capability, CapabilityError, CertificateId, Changed, DrainError,
    Errand, ErrandBody, FileMessage, GrantKind, KeyEpoch, MemberChange, MembersError, Open, OpenMode, Order,
    OrderBody, OrderReply, OrderReplyBody, PROOF_BYTES, Proof, RequestId, Source, StrikeError, Tag,
    Unavailable,
};
use replication::{
    Account, Body, Entry, Head, Holding, Memory, Message, Page, Record, Request, Rest, Session, Sessions,
};
use wire::{FileRecord, KeptChunk};

pub(crate) type Outcome = Result<Done, FileError>;

const OBJECT: ObjectId = ObjectId::new(3, 0x80);
const OTHER: ObjectId = ObjectId::new(4, 0x81);
const CLIENT: ClientId = ClientId { certificate: 0xff, program: 1 };

pub(crate) const fn epoch(number: u64) -> Epoch {
    Epoch { number, node: NodeId(1) }
}

pub(crate) const fn at(number: u64, seq: u64) -> Position {
    Position { epoch: epoch(number), seq: Seq(seq) }
}

const fn time(micros: u64) -> WallTime {
    WallTime::from_micros(micros)
}

fn members() -> Members {
    Members::new([1, 2, 300].map(NodeId)).unwrap()
}

fn view() -> View {
    View { id: ViewId { epoch: epoch(4), seq: Seq(6) }, members: members() }
}

const fn stat() -> Stat {
    Stat { size: 9, modified: time(300), changed: time(301), allocated: 7, lend: None }
}

const fn lent_stat() -> Stat {
    Stat { lend: Some(generation()), ..stat() }
}

const fn mark() -> Mark {
    Mark { at: at(5, 9), generation: epoch(2) }
}

pub(crate) fn changes() -> Vec<Change> {
    vec![
        Change::Write { offset: 200, data: Bytes::from_static(b"some").into() },
        Change::Append { data: Bytes::from_static(b"data").into() },
        Change::Truncate { size: 5 },
        Change::Punch { offset: 1, length: 2 },
        Change::Touch { modified: Some(time(7)) },
    ]
}

/// What daemons do to a volume's file by themselves.
fn lends() -> Vec<Change> {
    let (of, lent) = (file_of(), lent());
    vec![
        Change::Borrow { of, lent, modified: time(7), changed: time(8) },
        Change::Return { of, lent, modified: None },
        Change::Return { of, lent, modified: Some(time(9)) },
    ]
}

/// What is done to trees.
fn tree_changes() -> Vec<Change> {
    let create = namespace::Change::Create {
        dir: InodeId::ROOT,
        name: Name::new(b"a").unwrap(),
        make: Make::File { replicas: members() },
        mode: 0o644,
        umask: 0o022,
        is_exclusive: true,
        lends: false,
    };
    let op = namespace::Op { time: time(128), who: Who::root(), client: CLIENT, change: create };
    vec![
        Change::Plant(Root { time: time(127), uid: 1_000, gid: 100, mode: 0o755, name: volume_name() }),
        Change::Tree(Arc::new(op)),
    ]
}

pub(crate) fn volume_name() -> VolumeName {
    VolumeName::parse("home").unwrap()
}

/// The first entries of a tree.
fn tree_entries() -> Vec<Entry<Op>> {
    let entry = |(seq, change)| {
        let request = Request { client: CLIENT, number: seq, settled: 1 };
        Entry {
            at: at(5, seq),
            lease: 0xabcd,
            body: Body::Op { request, op: Op { time: time(128), under: None, change } },
        }
    };
    (1..).zip(tree_changes().into_iter().chain(lends())).map(entry).collect()
}

/// Parts of a tree, one of them gone.
fn tree_parts() -> Vec<(Key, Option<(Position, Part)>)> {
    let inode = InodeId { number: 2, epoch: epoch(5) };
    let entry = namespace::Key::Entry(InodeId::ROOT, Name::new(b"a").unwrap());
    let named = namespace::Part::Entry(namespace::Entry { inode, kind: Kind::File });
    vec![
        (Key::Tree(namespace::Key::Inode(inode)), None),
        (Key::Tree(namespace::Key::Volume), Some((at(5, 2), Part::Tree(volume())))),
        (Key::Tree(entry), Some((at(5, 2), Part::Tree(named)))),
    ]
}

fn volume() -> namespace::Part {
    namespace::Part::Volume(Arc::new(Volume::default()))
}

pub(crate) fn entries() -> Vec<Entry<Op>> {
    let request = |number| Request { client: CLIENT, number, settled: 1 };
    let mut bodies = vec![Body::Barrier { generation: epoch(2) }];
    bodies.extend((2..).zip(changes()).map(|(number, change)| Body::Op {
        request: request(number),
        op: Op { time: time(128), under: None, change },
    }));
    bodies.push(Body::Expire { client: CLIENT, since: time(2), forget: time(1) });
    bodies.push(Body::View(members()));
    bodies.push(Body::Settled(view().id));
    let entry = |(seq, body)| Entry { at: at(if seq < 6 { 4 } else { 5 }, seq), lease: 0xabcd, body };
    (4..).zip(bodies).map(entry).collect()
}

pub(crate) fn rest() -> Rest<Outcome> {
    let errors = [
        FileError::PastLimit { end: 1 },
        FileError::Overflow { offset: 2, length: 3 },
        FileError::TooLong { length: 4, bytes_max: 5 },
        FileError::BadChunk,
    ];
    let mut outcomes: Vec<(u64, Outcome)> = (10..).zip(errors.map(Err)).collect();
    outcomes.push((20, Ok(Done::Written { offset: 4, stat: stat() })));
    outcomes.push((21, Ok(Done::Changed { stat: stat() })));
    outcomes.push((22, Ok(Done::Tree(Box::new(namespace::Done::Welcomed)))));
    outcomes.push((23, Ok(Done::Returned { stat: None })));
    outcomes.push((24, Ok(Done::Returned { stat: Some(lent_stat()) })));
    let inode = InodeId::ROOT;
    let errors = [
        FileError::IsTree,
        FileError::IsFile,
        FileError::NoTree,
        FileError::NotEmpty,
        FileError::NotForClients,
        FileError::Tree(NameError::NoInode { inode }),
        FileError::Access(AccessError::NotExported),
        FileError::Access(AccessError::ReadOnly),
        FileError::Access(AccessError::OperatorsOnly),
        FileError::Access(AccessError::Nobody { id: 300 }),
        FileError::Access(AccessError::FileOfVolume),
        FileError::Access(AccessError::NoKeys),
        FileError::Access(AccessError::NotOpen),
        FileError::NotLent,
        FileError::Capability(CapabilityError::UnknownKey { epoch: KeyEpoch(1), latest: KeyEpoch(2) }),
        FileError::Capability(CapabilityError::Forged),
        FileError::Capability(CapabilityError::ForeignClient),
        FileError::Capability(CapabilityError::OtherFile { theirs: OBJECT, wanted: OTHER }),
        FileError::Capability(CapabilityError::Insufficient),
        FileError::Capability(CapabilityError::Expired { ago: Span::from_micros(300) }),
        FileError::Capability(CapabilityError::OtherVolume { theirs: OBJECT, wanted: OTHER }),
        FileError::Access(AccessError::Outside),
        FileError::Access(AccessError::NoExportPath),
    ];
    outcomes.extend((25..).zip(errors.map(Err)));
    let session = Session::new(10, outcomes).unwrap();
    let over = ClientId { certificate: 2, program: 3 };
    Rest {
        at: at(5, 9),
        generation: epoch(2),
        view: view(),
        before: ViewId { epoch: epoch(3), seq: Seq(5) },
        settled: ViewId::default(),
        former: BTreeSet::from([NodeId(1), NodeId(4)]),
        home: Some(members()),
        sessions: Sessions::new(vec![(CLIENT, session)], vec![(time(300), over)]).unwrap(),
    }
}

pub(crate) fn page() -> Page<File> {
    let attributes = Attributes::new(9, time(300), time(301)).unwrap();
    let held = |bytes| Piece::Held(Bytes::from_static(bytes));
    let pieces = vec![(4, held(b"a chunk")), (16, held(b"and more")), (0x3000, held(b"far away"))];
    let chunk = Chunk::new(0b1001, pieces).unwrap();
    Page {
        after: None,
        upto: None,
        parts: vec![
            (Key::Attributes, Some((at(5, 8), Part::Attributes(attributes)))),
            (Key::Chunk(0), Some((at(5, 9), Part::Chunk(chunk)))),
            (Key::Chunk(2), None),
        ],
        same: vec![(Key::Chunk(1), at(1, 1))],
        rest: Some(Box::new(rest())),
    }
}

fn account(memory: Memory) -> Account {
    let frozen_at = (memory == Memory::Forgot).then_some(at(4, 7));
    Account { tail: at(4, 9), committed: at(4, 8), memory, frozen_at }
}

fn messages() -> Vec<Message<File>> {
    let (epoch, promised) = (epoch(5), epoch(6));
    let promised_with = |memory| Message::Promised { epoch, account: account(memory) };
    vec![
        Message::Promise { epoch, begun_after: 300 },
        promised_with(Memory::Clean),
        promised_with(Memory::Forgot),
        promised_with(Memory::Mixed { source: NodeId(2) }),
        promised_with(Memory::Torn),
        Message::Refused { epoch, promised },
        Message::WrongView { epoch, current: view() },
        Message::Fetch { epoch, after: at(4, 3) },
        Message::Apart { epoch },
        Message::Append { epoch, after: at(4, 3), entries: entries(), committed: Seq(5) },
        Message::Appended { epoch, upto: at(5, 9) },
        Message::Missing { epoch, committed: Some(at(4, 3)) },
        Message::Missing { epoch, committed: None },
        Message::Sync { epoch, upto: at(5, 9) },
        Message::Synced { epoch, upto: at(5, 9) },
        Message::Offer { epoch, at: at(5, 9), generation: self::epoch(2) },
        Message::Pull {
            epoch,
            at: at(5, 9),
            after: Some(Key::Attributes),
            upto: Some(Key::Chunk(2)),
            have: vec![(Key::Chunk(0), at(1, 1)), (Key::Chunk(2), at(1, 2))],
        },
        Message::Pulled { epoch, at: at(5, 9), page: page() },
        Message::Adopt { epoch, view: view() },
        Message::Adopted { epoch, view: view().id },
        Message::WhichView { epoch },
        Message::There { epoch },
        Message::Forget { epoch, view: view().id },
        Message::Lacks {
            epoch,
            at: at(4, 3),
            parts: vec![(Key::Attributes, at(1, 1)), (Key::Chunk(2), at(1, 2))],
        },
        Message::Found { epoch, parts: page().parts },
        Message::Append { epoch, after: Position::START, entries: tree_entries(), committed: Seq(0) },
        Message::Found { epoch, parts: tree_parts() },
    ]
}

pub(crate) fn file_messages() -> Vec<FileMessage> {
    let say = |message| FileMessage { object: OBJECT, view: view().id, message };
    messages().into_iter().map(say).collect()
}

/// What opens the second inode of a volume.
pub(crate) fn capability() -> Capability {
    let born = |seq| Born { epoch: epoch(5), seq: Seq(seq) };
    let source = Source { volume: OBJECT, inode: InodeId::of(born(2)), lend: Some(Generation(born(3))) };
    let open = Open { file: OTHER, mode: OpenMode::ReadWrite, certificate: CertificateId([0xcc; 32]) };
    Capability { source, open, expires: time(300), epoch: KeyEpoch(4), tag: Tag::from_bytes([0x77; 32]) }
}

fn proof() -> Proof {
    Proof::new(KeyEpoch(4), [0x99; PROOF_BYTES])
}

/// The inode that is opened.
fn opened_attributes() -> namespace::Attributes {
    let Source { inode, lend, .. } = capability().source;
    let lent = lend.map(|generation| Lent { generation, to: LentTo::Content });
    let (mode, uid, gid, links, rdev, size) = (0o644, 1_000, 100, 1, 0, 9);
    let (atime, mtime, ctime, btime) = (time(1), time(2), time(3), time(0));
    namespace::Attributes {
        inode,
        kind: Kind::File,
        mode,
        uid,
        gid,
        links,
        rdev,
        size,
        atime,
        mtime,
        ctime,
        btime,
        lent,
        last_lend: Some(Generation(Born { epoch: epoch(4), seq: Seq(2) })),
        replicas: Some(members()),
        has_acl: false,
    }
}

pub(crate) fn file_requests() -> Vec<FileRequest> {
    let mut bodies = vec![FileBody::Create];
    bodies.extend((1..).zip(changes()).map(|(number, change)| FileBody::Change {
        number,
        settled: 1,
        level: if number % 2 == 0 { Level::Durable } else { Level::Written },
        under: (number > 3).then(generation),
        change,
    }));
    bodies.push(FileBody::Ask(Query::Read { offset: 200, length: 0x4000, under: None }));
    bodies.push(FileBody::Ask(Query::Read { offset: 0, length: 9, under: Some(generation()) }));
    bodies.push(FileBody::Ask(Query::Stat));
    bodies.push(FileBody::Sync { oldest: Mark { at: at(5, 8), ..mark() }, newest: mark() });
    bodies.extend(tree_changes().into_iter().map(|change| FileBody::Change {
        number: 9,
        settled: 1,
        level: Level::Written,
        under: None,
        change,
    }));
    let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: InodeId::ROOT } };
    bodies.push(FileBody::Ask(Query::Tree(Arc::new(query))));
    let who = Who::new(1_000, 100, &[7]).unwrap();
    bodies.push(FileBody::Open { who, inode: InodeId::ROOT, mode: OpenMode::Read });
    bodies.push(FileBody::Renew { capability: Box::new(capability()) });
    let open = Some(vec![InodeId::ROOT, file_of().inode]);
    bodies.push(FileBody::Attend(Attendance { tenure: Some(epoch(5)), stamp: 300, open }));
    bodies.push(FileBody::Attend(Attendance { tenure: None, stamp: 0, open: None }));
    bodies.push(FileBody::Change {
        number: 10,
        settled: 1,
        level: Level::Written,
        under: None,
        change: Change::Extend { size: 6 },
    });
    bodies.push(FileBody::Ask(Query::Extent { offset: 200, under: None }));
    bodies.push(FileBody::Ask(Query::Extent { offset: 0, under: Some(generation()) }));
    let of = |id| match id {
        3 => Some(Box::new(capability())),
        _ => None,
    };
    let request = |(id, body)| {
        let is_open = matches!(body, FileBody::Open { .. });
        let (proof, holds) = (is_open.then(proof), is_open.then_some(7));
        let caches = id % 2 == 0;
        FileRequest { id: RequestId(id), object: OBJECT, shown: of(id), body, proof, holds, caches }
    };
    (1..).zip(bodies).map(request).collect()
}

const fn file_of() -> FileOf {
    FileOf { volume: ObjectId::new(1, 200), inode: InodeId { number: 2, epoch: epoch(5) } }
}

const fn generation() -> Generation {
    Generation(Born { epoch: epoch(5), seq: Seq(2) })
}

const fn lent() -> Lent {
    Lent { generation: generation(), to: LentTo::Client(CLIENT) }
}

pub(crate) fn errands() -> Vec<Errand> {
    let given = Given { size: 300, mtime: time(7), ctime: time(8) };
    let bodies = [
        ErrandBody::Lend,
        ErrandBody::GiveBack { generation: generation(), given: Some(given) },
        ErrandBody::GiveBack { generation: generation(), given: None },
        ErrandBody::Return { lent: lent(), modified: None },
        ErrandBody::Return { lent: lent(), modified: Some(time(9)) },
        ErrandBody::Confirm { generation: generation() },
        ErrandBody::Remove,
    ];
    (1..).zip(bodies).map(|(id, body)| Errand { id: RequestId(id), of: file_of(), body }).collect()
}

pub(crate) fn orders() -> Vec<Order> {
    let (admit, dismiss) = (MemberChange::Admit(NodeId(4)), MemberChange::Dismiss(NodeId(300)));
    let bodies = [
        OrderBody::Members(OBJECT),
        OrderBody::Change { object: OBJECT, change: admit },
        OrderBody::Change { object: OBJECT, change: dismiss },
        OrderBody::Strike(NodeId(2)),
        OrderBody::AcceptLoss(OBJECT),
        OrderBody::Drain { forced: true },
        OrderBody::Undrain,
    ];
    (1..).zip(bodies).map(|(id, body)| Order { id: RequestId(id), body }).collect()
}

pub(crate) fn order_replies() -> Vec<OrderReply> {
    let errors = [
        MembersError::Unavailable(Unavailable::Overloaded),
        MembersError::Elsewhere(NodeId(2)),
        MembersError::NoSuchFile,
        MembersError::NotInMap(NodeId(300)),
        MembersError::NotConnected(NodeId(3)),
        MembersError::Changing,
        MembersError::Undecided,
        MembersError::NoMajority,
        MembersError::Count,
    ];
    let mut bodies = vec![OrderReplyBody::Members(members())];
    bodies.extend([Changed::Done, Changed::UnderWay].map(|done| OrderReplyBody::Changed(Ok(done))));
    bodies.extend(errors.map(|error| OrderReplyBody::Changed(Err(error))));
    bodies.push(OrderReplyBody::Struck(Ok(())));
    bodies.push(OrderReplyBody::Struck(Err(StrikeError::Connected(NodeId(2)))));
    bodies.extend([false, true].map(OrderReplyBody::LossAccepted));
    let missing = [None, Some(NodeId(300))];
    let errors = missing.map(|missing| DrainError::NoMajority { members: members(), missing });
    let drained = errors.into_iter().chain([DrainError::Stopping]).map(Err).chain([Ok(())]);
    bodies.extend(drained.map(OrderReplyBody::Drained));
    (1..).zip(bodies).map(|(id, body)| OrderReply { id: RequestId(id), body }).collect()
}

fn grant() -> CacheGrant {
    let inode = InodeId { number: 300, epoch: epoch(2) };
    let inodes = vec![InodeId::ROOT, inode];
    let (lent, last_lend, replicas) = (None, None, None);
    let directory = namespace::Attributes {
        inode,
        kind: Kind::Directory,
        lent,
        last_lend,
        replicas,
        ..opened_attributes()
    };
    let changed = vec![directory];
    CacheGrant { kind: GrantKind::Placed, tenure: epoch(5), at: Seq(129), revoked: 2, inodes, changed }
}

pub(crate) fn file_replies() -> Vec<FileReply> {
    let error = FileError::PastLimit { end: 1 };
    let changed = |outcome, level| FileReplyBody::Changed { outcome, mark: mark(), level, opened: None };
    let bodies = [
        FileReplyBody::Exists,
        changed(Ok(Done::Written { offset: 4, stat: stat() }), Level::Durable),
        changed(Err(error), Level::Written),
        FileReplyBody::Answer(Ok(Answer::Data(Bytes::from_static(b"what stands there").into()))),
        FileReplyBody::Answer(Ok(Answer::Stat(stat()))),
        FileReplyBody::Answer(Err(error)),
        FileReplyBody::Durable,
        FileReplyBody::Lost,
        FileReplyBody::Refused(error),
        FileReplyBody::NoSuchFile,
        FileReplyBody::Expired,
        FileReplyBody::Settled,
        FileReplyBody::Elsewhere(NodeId(2)),
        FileReplyBody::Unavailable(Unavailable::Overloaded),
        changed(Ok(Done::Tree(Box::new(namespace::Done::Welcomed))), Level::Written),
        FileReplyBody::Answer(Ok(Answer::Tree(Box::new(namespace::Answer::Volume(Volume::default()))))),
        FileReplyBody::Answer(Err(FileError::NoTree)),
        FileReplyBody::Opened {
            attributes: Box::new(opened_attributes()),
            capability: Box::new(capability()),
        },
        FileReplyBody::Changed {
            outcome: Ok(Done::Tree(Box::new(namespace::Done::Welcomed))),
            mark: mark(),
            level: Level::Written,
            opened: Some(Box::new(capability())),
        },
        FileReplyBody::Attended { tenure: epoch(5), is_told: true },
        FileReplyBody::Answer(Ok(Answer::Extent(None))),
        FileReplyBody::Answer(Ok(Answer::Extent(Some(Extent { start: 200, end: 0x4000 })))),
    ];
    (1..)
        .zip(bodies)
        .map(|(id, body)| {
            let is_open = matches!(body, FileReplyBody::Opened { .. });
            let grant = matches!(body, FileReplyBody::Answer(Ok(Answer::Tree(_)))).then(|| Box::new(grant()));
            FileReply { id: RequestId(id), body, proofs: is_open.then(proof).into_iter().collect(), grant }
        })
        .collect()
}

pub(crate) fn kept(record: Record<File>) -> FileRecord {
    FileRecord { object: OBJECT, record }
}

pub(crate) fn records() -> Vec<FileRecord> {
    let records = [
        Record::Promised(epoch(5)),
        Record::Appended { after: Seq(3), entries: entries(), committed: Seq(4) },
        Record::Began { source: NodeId(2), applied: Seq(3) },
        Record::Placed(page().parts),
        Record::Ended(Box::new(rest())),
        Record::Adopted(view()),
        Record::Buried(Some(view())),
        Record::Buried(None),
        Record::Damaged {
            applied: Seq(3),
            parts: vec![(Key::Attributes, at(1, 1)), (Key::Chunk(2), at(1, 2))],
        },
        Record::Mended(page().parts),
        Record::Repaired(Box::new(rest())),
        Record::Appended { after: Seq(0), entries: tree_entries(), committed: Seq(0) },
        Record::Placed(tree_parts()),
    ];
    records.map(kept).into()
}

pub(crate) fn head() -> Head<File> {
    Head {
        promised: epoch(6),
        accepted: epoch(5),
        rest: rest(),
        holding: Holding::Whole,
        base: at(4, 3),
        entries: entries(),
        adopted: Some(view()),
        damaged_at: Some(2),
        lacking: vec![(Key::Chunk(2), at(1, 2))],
        is_mixed: true,
    }
}

pub(crate) fn mixed() -> Head<File> {
    let (holding, base) = (Holding::Mixed(epoch(5)), Position::START);
    Head { holding, base, entries: Vec::new(), adopted: None, damaged_at: None, ..head() }
}

pub(crate) fn attributes() -> (Position, Attributes) {
    let time = WallTime::from_micros;
    let lend = Lend { of: file_of(), lent: lent(), stage: LendStage::Ended };
    (at(5, 8), Attributes::new(9, time(300), time(301)).unwrap().lent(lend))
}

pub(crate) fn chunk() -> KeptChunk {
    let stored = OnDisk { place: Place::new(&[300, 7]), from: 2, len: 5 };
    let pieces = vec![(4, Piece::Held(Bytes::from_static(b"a chunk"))), (0x3000, Piece::Stored(stored))];
    KeptChunk { at: at(5, 9), chunk: Chunk::new(0b1001, pieces).unwrap() }
}
