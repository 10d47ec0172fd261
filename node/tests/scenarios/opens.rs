//! Files that are open: what becomes of them without a name, when primaries fail and clients are silent; and their locks.

use std::sync::Arc;

use base::{ClientId, Epoch, Span};
use namespace::{
    Answer as TreeAnswer, Ask, Change as TreeChange, ClientState, Done as TreeDone, InodeId, Lock, LockKind,
    LockMode, Make, NameError, Owner, Query as TreeQuery, Site, Stretch, Ticket, Who, Wish,
};
use node::file::{Answer, Change, FileBody, FileError, FileOf, FileReplyBody, Level, Query};
use node::{
    Attendance, Bug, CAPABILITY_LASTS, Capability, CapabilityError, OpenMode, Unavailable, file_object,
};
use replication::Standing;

use crate::cluster::{Flying, ms};
use crate::files::{Daemons, FILE, created_with, write};
use crate::lends::Cell;
use crate::volumes::{make, name, op, outcome, plant};

/// Clients of these stories are ended so soon.
const GONE: Span = Span::from_secs(5);

/// A program that uses the volume, driven by hand.
struct Program {
    client: u64,
    number: u64,
    stamp: u64,
    tenure: Option<Epoch>,
    open: Vec<InodeId>,
}

/// Three daemons, a volume, and two programs that are on record in it.
fn used(bug: Option<Bug>) -> (Daemons, Vec<u32>, Program, Program) {
    used_with(bug, |config| config.client_gone = GONE)
}

fn used_with(
    bug: Option<Bug>,
    configure: fn(&mut node::ShardConfig),
) -> (Daemons, Vec<u32>, Program, Program) {
    let (mut cluster, members, writer) = plant(created_with(bug, configure));
    let program = |client, number| Program { client, number, stamp: 0, tenure: None, open: Vec::new() };
    let (mut one, mut two) = (program(1, writer.number), program(2, 0));
    cluster.client(2);
    for program in [&mut one, &mut two] {
        let client = ClientId { certificate: 0, program: 0 };
        assert_eq!(
            program.change(&mut cluster, TreeChange::Welcome { client, opens: true }),
            Ok(TreeDone::Welcomed)
        );
        program.attend(&mut cluster);
    }
    (cluster, members, one, two)
}

impl Program {
    /// Asks whoever answers for the volume.
    fn ask(&self, cluster: &mut Daemons, body: &FileBody, holds: Option<u64>) -> Option<FileReplyBody> {
        let volume =
            Cell { client: self.client, object: FILE, of: of(InodeId::ROOT), number: 0, name: String::new() };
        volume.ask_holding(cluster, body, holds)
    }

    fn send(&mut self, cluster: &mut Daemons, change: Change, holds: Option<u64>) -> Option<FileReplyBody> {
        self.number += 1;
        let (number, level) = (self.number, Level::Written);
        self.ask(cluster, &FileBody::Change { number, settled: number, level, under: None, change }, holds)
    }

    fn change(&mut self, cluster: &mut Daemons, change: TreeChange) -> Result<TreeDone, FileError> {
        outcome(self.send(cluster, op(change), None))
    }

    /// It says what it has open, once more if the primary is another one by now.
    fn attend(&mut self, cluster: &mut Daemons) {
        for _ in 0..2 {
            match self.ask(cluster, &FileBody::Attend(self.attendance()), None) {
                Some(FileReplyBody::Attended { tenure, .. }) => self.tenure = Some(tenure),
                other => panic!("{other:?}"),
            }
        }
    }

    fn attendance(&self) -> Attendance {
        Attendance { tenure: self.tenure, stamp: self.stamp, open: Some(self.open.clone()) }
    }

    /// Creates a file and has it open.
    fn create(&mut self, cluster: &mut Daemons, text: &str) -> Cell {
        self.stamp += 1;
        let told = self.send(cluster, make(text, Make::file()), Some(self.stamp));
        let Some(FileReplyBody::Changed { opened: Some(capability), .. }) = told else { panic!("{told:?}") };
        let inode = capability.source.inode;
        cluster.shown.insert(file_object(FILE, inode), capability);
        self.open.push(inode);
        cell(self.client, inode)
    }

    fn open(&mut self, cluster: &mut Daemons, inode: InodeId) -> Option<FileReplyBody> {
        self.stamp += 1;
        let body = FileBody::Open { who: Who::root(), inode, mode: OpenMode::ReadWrite };
        let told = self.ask(cluster, &body, Some(self.stamp));
        if let Some(FileReplyBody::Opened { capability, .. }) = &told {
            cluster.shown.insert(file_object(FILE, inode), capability.clone());
            self.open.push(inode);
        }
        told
    }

    fn renew(&self, cluster: &mut Daemons, capability: Box<Capability>) -> Option<FileReplyBody> {
        self.ask(cluster, &FileBody::Renew { capability }, None)
    }

    fn unlink(&mut self, cluster: &mut Daemons, text: &str) {
        let site = Site::new(InodeId::ROOT, name(text));
        let done = self.change(cluster, TreeChange::Unlink { site, holders: Vec::new(), removed: None });
        assert!(matches!(done, Ok(TreeDone::Removed { .. })), "{done:?}");
    }

    fn lock(&mut self, cluster: &mut Daemons, inode: InodeId, wait: bool) -> Result<TreeDone, FileError> {
        self.change(cluster, TreeChange::Lock { inode, lock: everything(), wait })
    }

    fn wish(&self, cluster: &mut Daemons, inode: InodeId, ticket: Ticket) -> Wish {
        let query = TreeQuery { who: Who::root(), ask: Ask::Wish { inode, lock: everything(), ticket } };
        match self.ask(cluster, &FileBody::Ask(Query::Tree(query.into())), None) {
            Some(FileReplyBody::Answer(Ok(Answer::Tree(answer)))) => match *answer {
                TreeAnswer::Wish(wish) => wish,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

fn everything() -> Lock {
    let owner = Owner { client: ClientId { certificate: 0, program: 0 }, number: 7 };
    Lock { owner, kind: LockKind::Fcntl, mode: LockMode::Exclusive, stretch: Stretch::ALL }
}

fn of(inode: InodeId) -> FileOf {
    FileOf { volume: FILE, inode }
}

fn cell(client: u64, inode: InodeId) -> Cell {
    Cell { client, object: file_object(FILE, inode), of: of(inode), number: 0, name: String::new() }
}

fn read(cluster: &mut Daemons, cell: &Cell) -> Option<FileReplyBody> {
    cell.ask(cluster, &FileBody::Ask(Query::Read { offset: 0, length: 100, under: None }))
}

fn is_there(cluster: &mut Daemons, cell: &Cell) -> bool {
    matches!(read(cluster, cell), Some(FileReplyBody::Answer(Ok(Answer::Data(_)))))
}

/// Whoever leads the volume.
fn primary(cluster: &Daemons) -> u32 {
    let leads = |node: &u32| {
        cluster.is_up(*node)
            && cluster.shard(*node).file(FILE).is_some_and(|file| file.standing() == Standing::Serving)
    };
    (1..=3).find(leads).expect("somebody leads it")
}

/// The volume has another primary.
fn fail_over(cluster: &mut Daemons) -> u32 {
    let before = primary(cluster);
    cluster.kill_with_notice(before);
    cluster.start(before);
    cluster.run(ms(1_000));
    before
}

fn is_gone(cluster: &mut Daemons, cell: &Cell) -> bool {
    let told = read(cluster, cell);
    let says_so =
        matches!(told, Some(FileReplyBody::NoSuchFile | FileReplyBody::Answer(Err(FileError::Removed))));
    let tree = cluster.shard(primary(cluster)).file(FILE).unwrap().machine().tree();
    says_so && tree.doomed(1).is_empty() && tree.part(&namespace::Key::Inode(cell.of.inode)).is_none()
}

#[test]
fn an_open_file_outlives_its_last_name_and_goes_with_the_last_who_closes_it() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    assert!(matches!(two.open(&mut cluster, file.of.inode), Some(FileReplyBody::Opened { .. })));
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    file.write(&mut cluster, "hello again");
    one.open.clear();
    one.attend(&mut cluster);
    cluster.run(ms(1_500));
    assert!(is_there(&mut cluster, &file), "the other still has it open");
    let refused = one.open(&mut cluster, file.of.inode);
    let gone = FileReplyBody::Refused(NameError::NoInode { inode: file.of.inode }.into());
    assert_eq!(refused, Some(gone), "who has closed it finds it no more");
    two.open.clear();
    two.attend(&mut cluster);
    cluster.run(ms(1_500));
    assert!(is_gone(&mut cluster, &file));
}

#[test]
fn who_has_nothing_open_keeps_nothing() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    one.open.clear();
    one.attend(&mut cluster);
    let before = cluster.shard(primary(&cluster)).file(FILE).unwrap().committed();
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    assert!(is_gone(&mut cluster, &file));
    let after = cluster.shard(primary(&cluster)).file(FILE).unwrap().committed();
    assert!(after.seq.0 <= before.seq.0 + 3, "no more than the removal, the end of a lend, and the end");
}

fn what_is_open_when_a_primary_fails_is_kept_by_the_next(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    fail_over(&mut cluster);
    // The first has said nothing to the new primary.
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    one.attend(&mut cluster);
    cluster.run(ms(1_500));
    assert!(is_there(&mut cluster, &file));
    one.open.clear();
    one.attend(&mut cluster);
    cluster.run(ms(1_500));
    assert!(is_there(&mut cluster, &file), "nor has the second");
    two.attend(&mut cluster);
    cluster.run(ms(1_500));
    assert!(is_gone(&mut cluster, &file));
}

fn what_has_no_name_is_kept_by_later_primaries(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    two.unlink(&mut cluster, "f");
    for _ in 0..2 {
        fail_over(&mut cluster);
        two.attend(&mut cluster);
        cluster.run(ms(1_500));
    }
    one.attend(&mut cluster);
    assert!(is_there(&mut cluster, &file));
}

fn locks_outlive_the_primary(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let file = one.create(&mut cluster, "f");
    assert!(matches!(one.lock(&mut cluster, file.of.inode, false), Ok(TreeDone::Locked { .. })));
    fail_over(&mut cluster);
    two.attend(&mut cluster);
    cluster.run(ms(1_000));
    let refused = two.lock(&mut cluster, file.of.inode, false);
    assert!(matches!(refused, Err(FileError::Tree(NameError::Locked { .. }))), "{refused:?}");
}

fn who_closes_a_file_closes_it_for_nobody_else(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    two.open(&mut cluster, file.of.inode);
    two.unlink(&mut cluster, "f");
    one.attend(&mut cluster);
    two.open.clear();
    two.attend(&mut cluster);
    cluster.run(ms(1_500));
    assert!(is_there(&mut cluster, &file));
}

/// It cannot reach anybody for long.
fn who_is_silent_for_long_is_ended(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    let other = two.create(&mut cluster, "g").of.inode;
    one.open(&mut cluster, other);
    one.lock(&mut cluster, other, false).unwrap();
    two.unlink(&mut cluster, "f");
    for node in 1..=3 {
        cluster.disconnect(1, node);
    }
    for _ in 0..8 {
        cluster.run(ms(1_000));
        two.attend(&mut cluster);
    }
    assert!(matches!(two.lock(&mut cluster, other, false), Ok(TreeDone::Locked { waits: None, .. })));
    let told = one.ask(&mut cluster, &FileBody::Attend(one.attendance()), None);
    let expired = |told: &Option<FileReplyBody>| {
        matches!(told, Some(FileReplyBody::Refused(FileError::Tree(NameError::Expired { .. }))))
    };
    assert!(expired(&told), "{told:?}");
    let told = one.open(&mut cluster, other);
    assert!(expired(&told), "{told:?}");
    assert!(is_gone(&mut cluster, &file), "what it held is deleted");
}

fn expired(told: &Option<FileReplyBody>) -> bool {
    matches!(told, Some(FileReplyBody::Refused(FileError::Capability(CapabilityError::Expired { .. }))))
}

/// All daemons are away for so long that what everybody shows has expired long ago when they return.
fn who_has_a_file_open_has_it_open_however_long_nobody_was_there(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    let capability = cluster.shown[&file.object].clone();
    two.open(&mut cluster, file.of.inode);
    let closed = std::mem::replace(cluster.shown.get_mut(&file.object).unwrap(), capability.clone());
    two.open.clear();
    cluster.client(3);
    for node in 1..=3 {
        cluster.kill(node);
    }
    cluster.run(CAPABILITY_LASTS * 100);
    for node in 1..=3 {
        cluster.start(node);
    }
    cluster.run(ms(6_000));
    let told = file.change(&mut cluster, write("hello again"));
    assert!(expired(&told), "{told:?}");
    one.attend(&mut cluster);
    two.attend(&mut cluster);
    let told = two.renew(&mut cluster, closed);
    assert!(expired(&told), "who has closed it since: {told:?}");
    let stranger = Program { client: 3, number: 0, stamp: 0, tenure: None, open: Vec::new() };
    let told = stranger.renew(&mut cluster, capability.clone());
    assert!(expired(&told), "who never had anything open: {told:?}");
    match one.renew(&mut cluster, capability) {
        Some(FileReplyBody::Opened { capability, .. }) => {
            cluster.shown.insert(file.object, capability);
        }
        other => panic!("{other:?}"),
    }
    file.write(&mut cluster, "hello again");
    assert!(is_there(&mut cluster, &file));
}

/// What it said before it opened the second file comes late.
fn what_is_told_late_closes_nothing_that_was_opened_since(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    let late = one.attendance();
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    one.ask(&mut cluster, &FileBody::Attend(late), None);
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    assert!(is_there(&mut cluster, &file));
}

/// What was told to the first primary comes to a later one.
fn what_an_earlier_primary_was_told_says_nothing_to_a_later_one(bug: Option<Bug>) {
    let (mut cluster, _, mut one, mut two) = used(bug);
    one.stamp += 1;
    let late = one.attendance();
    fail_over(&mut cluster);
    one.stamp = 0;
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    fail_over(&mut cluster);
    one.ask(&mut cluster, &FileBody::Attend(late), None);
    two.attend(&mut cluster);
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    one.attend(&mut cluster);
    assert!(is_there(&mut cluster, &file));
}

#[test]
fn who_waits_for_a_lock_has_it_when_the_holder_is_done_whoever_leads() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let inode = one.create(&mut cluster, "f").of.inode;
    two.open(&mut cluster, inode);
    one.lock(&mut cluster, inode, false).unwrap();
    let Ok(TreeDone::Locked { waits: Some(ticket), .. }) = two.lock(&mut cluster, inode, true) else {
        panic!("it waits")
    };
    assert_eq!(two.wish(&mut cluster, inode, ticket), Wish::Waits);
    fail_over(&mut cluster);
    assert_eq!(two.wish(&mut cluster, inode, ticket), Wish::Waits, "and waits on");
    let owner = Owner { client: ClientId { certificate: 0, program: 0 }, number: 7 };
    let unlock = TreeChange::Unlock { inode, owner, kind: LockKind::Fcntl, stretch: Stretch::ALL };
    assert!(matches!(one.change(&mut cluster, unlock), Ok(TreeDone::Unlocked { .. })));
    assert_eq!(two.wish(&mut cluster, inode, ticket), Wish::Had);
    let refused = one.lock(&mut cluster, inode, false);
    assert!(matches!(refused, Err(FileError::Tree(NameError::Locked { .. }))), "{refused:?}");
}

#[test]
fn nobody_locks_a_file_that_he_has_not_opened_for_that() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let inode = one.create(&mut cluster, "f").of.inode;
    cluster.shown.clear();
    let told = two.send(
        &mut cluster,
        op(TreeChange::Lock {
            inode,
            lock: Lock {
                owner: Owner { client: ClientId { certificate: 0, program: 0 }, number: 1 },
                kind: LockKind::Flock,
                mode: LockMode::Shared,
                stretch: Stretch::ALL,
            },
            wait: false,
        }),
        None,
    );
    assert!(matches!(told, Some(FileReplyBody::Refused(FileError::Access(_)))), "{told:?}");
}

#[test]
fn a_client_that_goes_leaves_nothing_behind() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    two.unlink(&mut cluster, "f");
    let client = ClientId { certificate: 0, program: 0 };
    let done = one.change(&mut cluster, TreeChange::Expire { client });
    assert!(matches!(done, Ok(TreeDone::Expired { more: false, .. })), "{done:?}");
    cluster.run(ms(1_500));
    assert!(is_gone(&mut cluster, &file));
    let tree = cluster.shard(primary(&cluster)).file(FILE).unwrap().machine().tree();
    let states = [1, 2].map(|program| tree.client(ClientId { certificate: 1, program }));
    assert_eq!(states, [Some(ClientState::Ended), Some(ClientState::Alive)]);
}

/// It has things in a cache, too, and was silent for longer than its session.
#[test]
fn who_has_files_open_stays_on_record_when_its_session_is_over() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    one.attend(&mut cluster);
    cluster.clients.get_mut(&1).unwrap().caches = true;
    let query = TreeQuery { who: Who::root(), ask: Ask::Attributes { inode: InodeId::ROOT } };
    one.ask(&mut cluster, &FileBody::Ask(Query::Tree(query.into())), None);
    assert!(cluster.clients[&1].answers(cluster.now, InodeId::ROOT));
    cluster.clients.get_mut(&1).unwrap().is_silent = true;
    cluster.run(ms(2_000));
    assert_eq!(cluster.shard(primary(&cluster)).session_count(), 1, "the first one's is over");
    cluster.clients.get_mut(&1).unwrap().is_silent = false;
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    one.attend(&mut cluster);
    assert!(is_there(&mut cluster, &file));
}

/// It says that it has closed the file, and opens it again before that is known to a majority.
#[test]
fn nobody_opens_what_he_is_about_to_hold_no_more() {
    let (mut cluster, _, mut one, mut two) = used(None);
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    one.open.clear();
    cluster.hold_back(|flying| matches!(flying, Flying::File { .. }));
    let node = primary(&cluster);
    cluster.ask_file(1, node, FILE, FileBody::Attend(one.attendance()));
    cluster.holds = Some(one.stamp + 1);
    let body = FileBody::Open { who: Who::root(), inode: file.of.inode, mode: OpenMode::ReadWrite };
    let again = cluster.ask_file(1, node, FILE, body);
    let told = cluster.file_reply(1, again);
    assert_eq!(told, Some(FileReplyBody::Unavailable(Unavailable::Overloaded)));
    cluster.let_go();
    cluster.run(ms(1_500));
    assert!(is_gone(&mut cluster, &file));
}

/// Too much is under way just then for an entry that says so, and nothing else reminds the primary of it.
#[test]
fn who_closes_a_file_while_the_primary_is_busy_has_closed_it() {
    let (mut cluster, _, mut one, mut two) = used_with(None, |config| {
        Arc::make_mut(&mut config.replication).uncommitted_max = 1;
    });
    let mut file = one.create(&mut cluster, "f");
    file.write(&mut cluster, "hello");
    two.unlink(&mut cluster, "f");
    cluster.run(ms(1_500));
    assert!(is_there(&mut cluster, &file));
    cluster.hold_back(|flying| matches!(flying, Flying::File { .. }));
    let (node, number) = (primary(&cluster), two.number + 1);
    let change = make("g", Make::file());
    let body = FileBody::Change { number, settled: number, level: Level::Written, under: None, change };
    cluster.ask_file(2, node, FILE, body);
    one.open.clear();
    cluster.ask_file(1, node, FILE, FileBody::Attend(one.attendance()));
    cluster.run(ms(20));
    cluster.let_go();
    cluster.run(ms(1_500));
    assert!(is_gone(&mut cluster, &file));
}

stories! {
    UntoldHoldNothing: what_is_open_when_a_primary_fails_is_kept_by_the_next;
    HoldersInMemory: what_has_no_name_is_kept_by_later_primaries;
    UntoldEnded: locks_outlive_the_primary;
    OthersReleased: who_closes_a_file_closes_it_for_nobody_else;
    SilentKept: who_is_silent_for_long_is_ended;
    LaterOpeningForgotten: what_is_told_late_closes_nothing_that_was_opened_since;
    ClosedRenewed: who_has_a_file_open_has_it_open_however_long_nobody_was_there;
    AnyTenureTold: what_an_earlier_primary_was_told_says_nothing_to_a_later_one;
}
