//! Stores that start again, are lost, copied, damaged, or run out of space.

use std::fs;
use std::io;
use std::path::PathBuf;

use base::ClusterId;
use node::StartRefusal;

use super::disk::tests::{FakeDisk, Fault};
use super::record::Kind;
use super::*;

const OWNER: Owner = Owner { cluster: ClusterId([1; 16]), node: NodeId(1) };
const PEER: NodeId = NodeId(2);
const STORE: StoreId = StoreId([5; 16]);
const HOST: Host = Host { machine: [2; 16], boot: [3; 16], lock: [4, 5], is_local: true };
const REBOOTED: Host = Host { boot: [4; 16], ..HOST };

fn met(store: StoreId, start: StartId) -> Met {
    Met { store, start }
}

fn start_id(incarnation: u32, nonce: u64) -> StartId {
    StartId { incarnation: Incarnation(incarnation), nonce }
}

fn formatted() -> FakeDisk {
    let mut disk = FakeDisk::default();
    format(&mut disk, OWNER, STORE).unwrap();
    disk
}

fn started(disk: &FakeDisk, nonce: u64) -> Store {
    Store::start_on(Box::new(disk.clone()), OWNER, HOST, nonce).unwrap()
}

/// A folder in which a data directory can be made, and that directory's path.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    (folder, path)
}

fn refusal(opened: Result<Store, OpenError>) -> OpenError {
    opened.err().expect("the store must not open")
}

fn wall(micros: u64) -> WallTime {
    WallTime::from_micros(micros)
}

fn mono(micros: u64) -> MonoTime {
    MonoTime::from_micros(micros)
}

#[test]
fn every_start_has_a_higher_incarnation_and_knows_the_one_before() {
    let disk = formatted();
    let mut first = started(&disk, 10);
    assert_eq!((first.start(), first.start_id()), (Start::Fresh, start_id(1, 10)));
    first.stop(wall(1), mono(1)).unwrap();
    let second = started(&disk, 11);
    let previous = Previous { incarnation: Incarnation(1), is_proven_dead: true, stopped_cleanly: true };
    assert_eq!((second.start(), second.start_id()), (Start::Again(previous), start_id(2, 11)));

    let third = Store::start_on(Box::new(disk), OWNER, REBOOTED, 12).unwrap();
    let previous = Previous { incarnation: Incarnation(2), is_proven_dead: false, stopped_cleanly: false };
    assert_eq!(third.start(), Start::Again(previous));
}

#[test]
fn a_start_that_crashed_while_it_was_noted_is_no_start_or_a_whole_one() {
    for at in 0..3 {
        for (took_effect, renames_survive) in [(false, false), (false, true), (true, false), (true, true)] {
            let disk = formatted();
            started(&disk, 10);
            disk.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect }));
            refusal(Store::start_on(Box::new(disk.clone()), OWNER, HOST, 11));
            let after = started(&disk.after_crash(renames_survive), 12).start_id();
            assert!([start_id(2, 12), start_id(3, 12)].contains(&after), "{after:?}");
        }
    }
}

#[test]
fn a_format_that_crashed_leaves_no_store() {
    let mut disk = FakeDisk::default();
    format(&mut disk, OWNER, STORE).unwrap();
    let calls = disk.calls();
    for at in 0..calls - 2 {
        let mut disk = FakeDisk::default();
        disk.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect: false }));
        format(&mut disk, OWNER, STORE).unwrap_err();
        let after = disk.after_crash(true);
        let error = refusal(Store::start_on(Box::new(after), OWNER, HOST, 1));
        assert!(matches!(error, OpenError::Damaged { damage: Damage::Missing, .. }), "{error}");
    }
}

#[test]
fn a_peer_is_admitted_durably_and_only_forward() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    let theirs = StoreId([6; 16]);
    store.admit_peer(PEER, met(theirs, start_id(3, 30))).unwrap();
    let mut store = started(&disk.after_crash(false), 2);
    store.admit_peer(PEER, met(theirs, start_id(3, 30))).unwrap();
    store.admit_peer(PEER, met(theirs, start_id(5, 50))).unwrap();

    let other = StoreId([7; 16]);
    let refused = |result| match result {
        Err(PeerRefusal::Start(StartRefusal::OtherStore { .. })) => "other store",
        Err(PeerRefusal::Start(StartRefusal::Outdated { .. })) => "outdated",
        Err(PeerRefusal::Start(StartRefusal::Copy { .. })) => "copy",
        Err(PeerRefusal::Ourselves { .. }) => "ourselves",
        _ => "admitted",
    };
    assert_eq!(refused(store.admit_peer(PEER, met(other, start_id(6, 60)))), "other store");
    assert_eq!(refused(store.admit_peer(PEER, met(theirs, start_id(4, 40)))), "outdated");
    assert_eq!(refused(store.admit_peer(PEER, met(theirs, start_id(5, 51)))), "copy");
    assert_eq!(refused(store.admit_peer(OWNER.node, met(theirs, start_id(1, 1)))), "ourselves");
    assert_eq!(store.peer(PEER), Some(met(theirs, start_id(5, 50))));
}

#[test]
fn a_known_start_of_a_peer_costs_no_write() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    store.admit_peer(PEER, met(StoreId([6; 16]), start_id(3, 30))).unwrap();
    disk.set_fault(None);
    store.admit_peer(PEER, met(StoreId([6; 16]), start_id(3, 30))).unwrap();
    assert_eq!(disk.calls(), 0);
}

#[test]
fn a_table_full_of_peers_takes_no_more() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    let peer = met(STORE, start_id(1, 1));
    store.peers.0 = (10..).take(PEERS_MAX).map(|node| (NodeId(node), peer)).collect();
    let refused = store.admit_peer(PEER, met(STORE, start_id(1, 1))).unwrap_err();
    assert!(matches!(refused, PeerRefusal::TooMany), "{refused}");
    store.admit_peer(NodeId(10), met(STORE, start_id(2, 2))).unwrap();
    assert_eq!(started(&disk, 2).peers.0.len(), PEERS_MAX);
}

#[test]
fn a_line_of_starts_goes_on_until_a_death_is_not_proven() {
    let disk = formatted();
    let lines = [(10, HOST), (11, HOST), (12, REBOOTED), (13, REBOOTED), (14, HOST)]
        .map(|(nonce, host)| Store::start_on(Box::new(disk.clone()), OWNER, host, nonce).unwrap().line());
    let [first, second, third] = [start_id(1, 10), start_id(3, 12), start_id(5, 14)];
    assert_eq!(lines, [first, first, second, second, third]);
}

#[test]
fn a_directory_restored_from_a_copy_is_noticed() {
    let disk = formatted();
    started(&disk, 10);
    let copy = disk.after_crash(false);
    started(&disk, 11);
    let newest = started(&disk, 12);
    newest.check_own_chain(start_id(1, 10)).unwrap();
    newest.check_own_chain(start_id(3, 12)).unwrap();

    let known = newest.start_id();
    // Also when its counter has climbed to and past what the peer has seen.
    for nonce in 20..23 {
        let restored = started(&copy, nonce);
        let error = restored.check_own_chain(known).unwrap_err();
        assert_eq!(error, RestoredCopy { known: Incarnation(3), ours: restored.start_id().incarnation });
        restored.check_own_chain(start_id(1, 10)).unwrap();
    }
    newest.check_own_chain(start_id(0, 0)).unwrap_err();
    newest.check_own_chain(start_id(u32::MAX, 0)).unwrap_err();
}

#[test]
fn an_emptied_directory_is_another_store_to_its_peers() {
    let (_folder, path) = place();
    let disk = formatted();
    let mut peer = started(&disk, 1);
    let first = Store::open(&path, OWNER).unwrap();
    peer.admit_peer(PEER, met(first.id(), first.start_id())).unwrap();
    drop(first);
    fs::remove_dir_all(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let emptied = Store::open(&path, OWNER).unwrap();
    assert_eq!(emptied.start(), Start::Fresh);
    let refused = peer.admit_peer(PEER, met(emptied.id(), emptied.start_id())).unwrap_err();
    assert!(matches!(refused, PeerRefusal::Start(StartRefusal::OtherStore { .. })), "{refused}");
}

#[test]
fn the_ceiling_survives_and_rises_in_blocks() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    assert_eq!(store.epoch_ceiling(), 0);
    store.raise_ceiling(5).unwrap();
    disk.set_fault(None);
    store.raise_ceiling(CEILING_BLOCK).unwrap();
    assert_eq!(disk.calls(), 0, "a number of the block costs nothing");
    store.raise_ceiling(CEILING_BLOCK + 1).unwrap();
    assert_eq!(started(&disk.after_crash(false), 2).epoch_ceiling(), 2 * CEILING_BLOCK);
    store.raise_ceiling(u64::MAX).unwrap();
    assert_eq!(started(&disk.after_crash(false), 2).epoch_ceiling(), u64::MAX);
}

#[test]
fn time_goes_on_exactly_under_the_same_kernel_and_from_the_mark_under_another() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    assert_eq!(store.time_floor(mono(7)), WallTime::ZERO);
    store.mark_time(wall(1_000), mono(50)).unwrap();
    assert_eq!(store.time_mark(), wall(1_000) + MARK_LEAD);

    let crashed = disk.after_crash(false);
    let again = started(&crashed, 2);
    assert_eq!(again.time_floor(mono(80)), wall(1_030));
    assert_eq!(again.time_floor(mono(49)), wall(1_000) + MARK_LEAD, "another clock since boot");
    let rebooted = Store::start_on(Box::new(crashed), OWNER, REBOOTED, 3).unwrap();
    assert_eq!(rebooted.time_floor(mono(80)), wall(1_000) + MARK_LEAD);

    store.stop(wall(2_000), mono(1_050)).unwrap();
    let rebooted = Store::start_on(Box::new(disk), OWNER, REBOOTED, 3).unwrap();
    assert_eq!(rebooted.time_floor(mono(80)), wall(2_000));
}

#[test]
fn a_full_disk_changes_nothing_and_is_survived() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    store.raise_ceiling(1).unwrap();
    let known = met(STORE, start_id(1, 1));
    for _ in 0..2 {
        disk.set_fault(Some(Fault { at: 0, kind: io::ErrorKind::StorageFull, took_effect: false }));
        let error = store.admit_peer(PEER, known).unwrap_err();
        assert!(error.to_string().contains("disk is full"), "{error}");
        assert_eq!(store.peer(PEER), None);
        // A file system that writes elsewhere may lack space for what is there already.
        disk.set_fault(Some(Fault { at: 0, kind: io::ErrorKind::StorageFull, took_effect: false }));
        let error = store.raise_ceiling(CEILING_BLOCK + 1).unwrap_err();
        assert!(error.to_string().contains("disk is full"), "{error}");
        assert_eq!(store.epoch_ceiling(), CEILING_BLOCK);
        assert!(started(&disk.after_crash(true), 2).epoch_ceiling() >= CEILING_BLOCK);
    }
    disk.set_fault(None);
    store.raise_ceiling(CEILING_BLOCK + 1).unwrap();
    assert_eq!(store.epoch_ceiling(), 2 * CEILING_BLOCK);
    store.admit_peer(PEER, known).unwrap();
}

/// A crash comes between two copies, and then one of them is damaged: what somebody counts on does not go back.
#[test]
fn what_one_copy_says_is_in_both_before_anybody_counts_on_it() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    store.raise_ceiling(1).unwrap();
    disk.set_fault(Some(Fault { at: 0, kind: io::ErrorKind::Other, took_effect: true }));
    store.raise_ceiling(CEILING_BLOCK + 1).unwrap_err();
    disk.set_fault(None);
    assert_eq!(started(&disk, 2).epoch_ceiling(), 2 * CEILING_BLOCK);
    disk.edit("ceiling", |bytes| bytes[40] ^= 1);
    assert_eq!(started(&disk, 3).epoch_ceiling(), 2 * CEILING_BLOCK);
}

/// A process is killed between writing and syncing a copy, the next one counts on what it reads, and the power fails while it overwrites the other.
#[test]
fn what_is_read_is_durable_before_anybody_counts_on_it() {
    for at in 0..2 {
        let disk = formatted();
        let mut store = started(&disk, 1);
        store.raise_ceiling(1).unwrap();
        disk.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect: false }));
        store.raise_ceiling(CEILING_BLOCK + 1).unwrap_err();
        disk.set_fault(None);
        let mut next = started(&disk, 2);
        let counted_on = next.epoch_ceiling();
        disk.set_fault(Some(Fault { at: 0, kind: io::ErrorKind::Other, took_effect: false }));
        next.raise_ceiling(2 * CEILING_BLOCK + 1).unwrap_err();
        let found = started(&disk.after_crash(false), 3).epoch_ceiling();
        assert!(found >= counted_on, "{found} after {counted_on}, call {at}");
    }
}

/// The power fails while a start mends what the last power failure has torn.
#[test]
fn a_crash_while_a_copy_is_mended_leaves_one() {
    for torn in 0..2 {
        let disk = formatted();
        let mut store = started(&disk, 1);
        store.raise_ceiling(1).unwrap();
        disk.set_fault(Some(Fault { at: torn, kind: io::ErrorKind::Other, took_effect: false }));
        store.raise_ceiling(CEILING_BLOCK + 1).unwrap_err();
        let after = disk.after_crash(false);
        for at in 0..5 {
            let again = after.after_crash(false);
            again.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect: false }));
            refusal(Store::start_on(Box::new(again.clone()), OWNER, HOST, 2));
            let found = started(&again.after_crash(false), 3).epoch_ceiling();
            assert!(found >= CEILING_BLOCK, "{found}, copy {torn} and then call {at}");
        }
    }
}

#[test]
fn after_an_error_of_the_disk_the_store_is_closed() {
    for at in 0..2 {
        let disk = formatted();
        let mut store = started(&disk, 1);
        disk.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect: at > 0 }));
        assert!(matches!(store.raise_ceiling(1), Err(WriteError::Io { .. })));
        let peer = store.admit_peer(PEER, met(STORE, start_id(1, 1)));
        assert!(matches!(peer, Err(PeerRefusal::Write(WriteError::Closed))));
        assert!(matches!(store.mark_time(wall(1), mono(1)), Err(WriteError::Closed)));
        assert_eq!(disk.calls(), at + 1, "nothing reaches the disk any more");
        assert_eq!((store.epoch_ceiling(), store.peer(PEER)), (0, None));
    }
}

#[test]
fn every_damaged_byte_and_every_missing_file_is_noticed() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    store.admit_peer(PEER, met(STORE, start_id(1, 1))).unwrap();
    store.mark_time(wall(1), mono(1)).unwrap();
    drop(store);
    for file in [Kind::Identity, Kind::Starts, Kind::Peers].map(Kind::file) {
        let refused = |change: &dyn Fn(&FakeDisk)| {
            let damaged = disk.after_crash(false);
            change(&damaged);
            let error = refusal(Store::start_on(Box::new(damaged), OWNER, HOST, 2));
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
            assert!(error.to_string().starts_with(file), "{error}");
        };
        for at in 0..disk.bytes(file).len() {
            refused(&|disk| disk.edit(file, |bytes| bytes[at] ^= 0x10));
            refused(&|disk| disk.edit(file, |bytes| bytes.truncate(at)));
        }
        refused(&|disk| disk.edit(file, |bytes| bytes.push(0)));
        refused(&|disk| disk.remove(file));
    }
}

#[test]
fn a_damaged_copy_is_mended_and_two_are_noticed() {
    let disk = formatted();
    let mut store = started(&disk, 1);
    store.raise_ceiling(1).unwrap();
    store.mark_time(wall(1), mono(1)).unwrap();
    store.note_forgotten(Some(3)).unwrap();
    drop(store);
    for file in [Kind::Time, Kind::Ceiling, Kind::Losses].map(Kind::file) {
        let opened = |change: &dyn Fn(&mut Vec<u8>)| {
            let damaged = disk.after_crash(false);
            damaged.edit(file, change);
            Store::start_on(Box::new(damaged.clone()), OWNER, HOST, 2).map(|_| damaged.bytes(file))
        };
        let whole = disk.bytes(file);
        let copy_bytes = whole.len() - 4_096;
        for at in (0..copy_bytes).chain(4_096..whole.len()) {
            assert_eq!(opened(&|bytes| bytes[at] ^= 0x10).unwrap(), whole, "byte {at}");
            assert_eq!(opened(&|bytes| bytes.truncate(at)).ok(), (at >= copy_bytes).then(|| whole.clone()));
            let error = opened(&|bytes| {
                bytes[at % 4_096] ^= 0x10;
                bytes[at % 4_096 + 4_096] ^= 0x10;
            });
            let error = error.unwrap_err();
            assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
            assert!(error.to_string().starts_with(file), "{error}");
        }
        opened(&|bytes| bytes.push(0)).unwrap_err();
        opened(&|bytes| *bytes = disk.bytes("starts")).unwrap_err();
    }
}

#[test]
fn a_file_of_another_store_is_noticed() {
    let (ours, mut theirs) = (formatted(), FakeDisk::default());
    format(&mut theirs, OWNER, StoreId([8; 16])).unwrap();
    ours.edit("peers", |bytes| *bytes = theirs.bytes("peers"));
    let error = refusal(Store::start_on(Box::new(ours), OWNER, HOST, 1));
    assert!(matches!(error, OpenError::Damaged { damage: Damage::Foreign, .. }), "{error}");
}

#[test]
fn another_format_says_so() {
    // Format 2 had other ids of objects.
    for format in [2, FORMAT + 1] {
        let disk = formatted();
        disk.edit("identity", |bytes| {
            bytes.truncate(bytes.len() - 4);
            bytes[8..10].copy_from_slice(&format.to_le_bytes());
            bytes.extend(crc32c::crc32c(bytes).to_le_bytes());
        });
        let error = refusal(Store::start_on(Box::new(disk), OWNER, HOST, 1)).to_string();
        assert!(error.contains(&format!("is of format {format}")), "{error}");
        assert!(error.contains("install the program again that wrote it"), "{error}");
    }
}

#[test]
fn another_nodes_and_another_clusters_directory_are_refused() {
    let (_folder, path) = place();
    drop(Store::open(&path, OWNER).unwrap());
    for wanted in [Owner { node: PEER, ..OWNER }, Owner { cluster: ClusterId([9; 16]), ..OWNER }] {
        let error = refusal(Store::open(&path, wanted));
        assert!(matches!(error, OpenError::Owner { found: OWNER, .. }), "{error}");
    }
    let again = Store::open(&path, OWNER).unwrap();
    assert_eq!(again.start_id().incarnation, Incarnation(2), "a refused start leaves no trace");
}

#[test]
fn a_pipe_in_place_of_a_file_holds_no_start_up() {
    for name in Kind::ALL.iter().map(|kind| kind.file()).chain(["lock"]) {
        let (_folder, path) = place();
        Store::open(&path, OWNER).unwrap().note_drained(true).unwrap();
        fs::remove_file(path.join(name)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join(name), rustix::fs::Mode::RWXU).unwrap();
        let error = refusal(Store::open(&path, OWNER)).to_string();
        let expected = format!("{} is a named pipe and has to be a regular file", path.join(name).display());
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_second_daemon_is_told_who_has_the_directory() {
    let (_folder, path) = place();
    let first = Store::open(&path, OWNER).unwrap();
    let error = refusal(Store::open(&path, OWNER));
    let own_id = std::process::id();
    assert!(matches!(error, OpenError::Locked { holder: Some(id), .. } if id == own_id), "{error}");
    // Threads of the first one may still write to its files.
    let lock = first.lock().unwrap();
    drop(first);
    assert!(matches!(refusal(Store::open(&path, OWNER)), OpenError::Locked { .. }));
    drop(lock);
    assert_eq!(Store::open(&path, OWNER).unwrap().start_id().incarnation, Incarnation(2));
}

#[test]
fn of_many_that_open_a_new_directory_one_wins() {
    let (_folder, path) = place();
    let barrier = std::sync::Barrier::new(8);
    let opened: Vec<Result<Store, OpenError>> = std::thread::scope(|scope| {
        let open = || {
            barrier.wait();
            Store::open(&path, OWNER)
        };
        let openers: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    let winners: Vec<Start> = opened.iter().flatten().map(Store::start).collect();
    assert_eq!(winners, [Start::Fresh]);
    for error in opened.iter().filter_map(|opened| opened.as_ref().err()) {
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    }
    let names: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["data"], "nothing stays behind");
}

#[test]
fn something_else_in_the_way_is_left_alone() {
    let (folder, path) = place();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("thesis.txt"), "years of work").unwrap();
    let error = refusal(Store::open(&path, OWNER));
    assert!(matches!(&error, OpenError::NotAStore { entry, .. } if entry == "thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);

    let error = refusal(Store::open(&path.join("thesis.txt"), OWNER));
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    let error = refusal(Store::open(&folder.path().join("no parent/data"), OWNER));
    assert!(error.to_string().contains("check that its parent exists"), "{error}");
}

#[test]
fn what_a_crashed_format_left_behind_is_taken_over() {
    let (folder, path) = place();
    let left = folder.path().join(".data.new");
    fs::create_dir(&left).unwrap();
    for name in ["lock", "starts", "time.new"] {
        fs::write(left.join(name), "torn").unwrap();
    }
    assert_eq!(Store::open(&path, OWNER).unwrap().start(), Start::Fresh);
    assert!(!left.exists());

    fs::create_dir(&left).unwrap();
    fs::write(left.join("thesis.txt"), "years of work").unwrap();
    fs::remove_dir_all(&path).unwrap();
    let error = refusal(Store::open(&path, OWNER));
    assert!(matches!(&error, OpenError::NotAStore { entry, .. } if entry == "thesis.txt"), "{error}");
    assert!(left.join("thesis.txt").exists());
}

#[test]
fn a_link_to_an_empty_directory_stays_a_link() {
    let (folder, path) = place();
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    Store::open(&path, OWNER).unwrap();
    assert!(path.is_symlink() && real.join("identity").exists());
}

#[test]
fn a_damaged_file_is_named_with_its_path() {
    let (_folder, path) = place();
    drop(Store::open(&path, OWNER).unwrap());
    fs::write(path.join("ceiling"), "").unwrap();
    let message = refusal(Store::open(&path, OWNER)).to_string();
    assert!(message.contains(&path.join("ceiling").display().to_string()), "{message}");
}

#[test]
fn a_copy_on_the_same_machine_proves_nothing() {
    let (folder, path) = place();
    let original = Store::open(&path, OWNER).unwrap();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let copied = Store::open(&copy, OWNER).unwrap();
    let Start::Again(previous) = copied.start() else { panic!("{:?}", copied.start()) };
    assert_eq!(previous.incarnation, original.start_id().incarnation);
    assert!(!previous.is_proven_dead, "it runs");
}

#[test]
fn this_machine_proves_the_death_of_a_start_on_a_disk_of_its_own() {
    let (_folder, path) = place();
    drop(Store::open(&path, OWNER).unwrap());
    let again = Store::open(&path, OWNER).unwrap();
    let Start::Again(previous) = again.start() else { panic!("{:?}", again.start()) };
    let is_certain = again.host.is_local && again.host.machine != [0; 16];
    assert_eq!(previous.is_proven_dead, is_certain);
}
