//! Stores that are sound, and stores that are damaged in every way, all of which a check leaves as they are.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use base::{Members, NodeId, WallTime};
use bytes::Bytes;
use node::file::{Attributes, Chunk, File, Piece};
use node::{ClusterMap, FileChanges, Osd, Settings, ShardConfig, StoreRefusal};
use replication::Checkpoint;
use tempfile::TempDir;

use super::*;
use crate::store::contents::{INLINE_MAX, Taken};
use crate::store::files::tests::{CHUNK_LEN, FILE, LIMITS, OWNER, at, record};
use crate::store::files::{self, FileLog, FilesError, FilesParts, OpenedFiles};
use crate::store::{Store, StoreRules};

/// A data directory of which no process is left, and its memo.
struct Kept {
    folder: TempDir,
    memo: TempDir,
}

/// The records that are in the index.
const IN_INDEX: u64 = 3;
/// Those that a sync has confirmed.
const SYNCED: u64 = 6;
/// Those that were written.
const WRITTEN: u64 = 9;

impl Kept {
    /// What a process leaves that was killed between two syncs.
    fn new(engine: Engine) -> Self {
        let kept = Self { folder: tempfile::tempdir().unwrap(), memo: TempDir::new_in("/dev/shm").unwrap() };
        let (mut store, opened) = kept.open(engine);
        let OpenedFiles { mut log, segments, contents, .. } = opened.unwrap();
        store.mark_time(WallTime::from_micros(7), base::MonoTime::from_micros(7)).unwrap();
        let mut held = Vec::new();
        for number in 1..=WRITTEN {
            while let Some(slot) = log.wanted(false) {
                log.handle_made(segments.make(slot).unwrap());
            }
            held.push(data(number));
            log.append(number, &record(number, &data(number))).unwrap();
            log.write().unwrap();
            if number == IN_INDEX || number == SYNCED {
                sync(&mut log);
            }
            if number == IN_INDEX {
                let changes = changes(&held);
                contents.put(vec![Taken { object: FILE, applied: number, changes }], number).unwrap();
                log.free(number);
            }
        }
        kept
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data().join(name)
    }

    fn open(&self, engine: Engine) -> (Store, Result<OpenedFiles, FilesError>) {
        let mut store = Store::open(&self.data(), OWNER).unwrap();
        let dir = self.file(FILES_DIR);
        let media: Arc<dyn Media> = Arc::new(RealMedia::open(dir.clone()).unwrap());
        let osd = Osd { id: NodeId(1), address: "127.0.0.1:7000".into() };
        let map = ClusterMap::new(OWNER.cluster, 1, 1, Settings::default(), vec![osd]).unwrap();
        let parts = FilesParts {
            index: engine.open(&*media, &dir).unwrap(),
            media,
            memo: Box::new(MemoFile::open(self.memo.path(), store.id()).unwrap()),
            limits: LIMITS,
            inline_max: INLINE_MAX,
            rules: StoreRules::default(),
            lock: None,
        };
        let opened = files::open(&mut store, &ShardConfig::new(Arc::new(map)), parts);
        (store, opened)
    }

    /// Checks it, which changes nothing.
    fn try_check(&self) -> Result<Report, CheckError> {
        let before = self.look();
        let checked = check(&self.data(), self.memo.path(), Some(OWNER), &mut |_| {});
        assert!(self.look() == before, "the check has changed something");
        checked
    }

    fn check(&self) -> Report {
        self.try_check().unwrap()
    }

    /// Every file and directory: what it holds, how long it is, and when it was changed.
    fn look(&self) -> BTreeMap<PathBuf, (u64, i64, i64, u64, u64)> {
        let mut seen = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned(), self.memo.path().to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            for path in entries.chain([folder.clone()]) {
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() && path != folder {
                    folders.push(path.clone());
                }
                let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                let sum = bytes
                    .iter()
                    .fold(0_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
                let times = meta.mtime() << 20 ^ meta.mtime_nsec();
                seen.insert(path, (sum, times, meta.ctime_nsec(), meta.len(), meta.ino()));
            }
        }
        seen
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(name)).unwrap();
        change(&mut bytes);
        fs::write(self.file(name), bytes).unwrap();
    }

    /// Flips a bit of the first place where a file holds this.
    fn flip(&self, name: &str, what: &[u8]) {
        self.edit(name, |bytes| {
            let at = bytes.windows(what.len()).position(|window| window == what).expect("it is there");
            bytes[at + what.len() / 2] ^= 4;
        });
    }

    fn lose_power(&self) {
        let memos: Vec<PathBuf> =
            fs::read_dir(self.memo.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        memos.iter().for_each(|memo| fs::remove_file(memo).unwrap());
    }
}

fn sync(log: &mut FileLog) {
    let upto = log.sync().run().unwrap();
    log.handle_synced(upto).unwrap();
}

/// What the first records have written, as a checkpoint has it. Some of it stands in the index.
fn changes(held: &[Bytes]) -> FileChanges {
    let chunk = |(seq, data): (u64, &Bytes)| {
        let chunk = Chunk::new(u16::MAX, vec![(0, Piece::Held(data.slice(..data.len().min(CHUNK_LEN))))]);
        (seq * 16, Some((at(seq), chunk.unwrap())))
    };
    let last = held.len() as u64;
    let attributes = Attributes::new(last << 24, WallTime::ZERO, WallTime::ZERO).unwrap();
    let file = File::kept((at(last), attributes), [], []);
    let head = Checkpoint::first(Members::new([NodeId(1)]).unwrap(), file);
    FileChanges {
        head: Some(head),
        is_new: true,
        chunks: (1..).zip(held).map(chunk).collect(),
        names: Vec::new(),
        last_write: last,
    }
}

/// The data of a record: a short one, and one that stands as content, in turns.
fn data(number: u64) -> Bytes {
    let length = if number.is_multiple_of(2) { CHUNK_LEN } else { 200 };
    marker(number).into_iter().cycle().take(length).collect()
}

/// Bytes that only this record has.
fn marker(number: u64) -> Vec<u8> {
    format!("<record {number}>").into_bytes()
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.problem.code()).collect()
}

#[track_caller]
fn assert_finds(report: &Report, wanted: &[(&str, &str)], worst: Severity) {
    let found: Vec<(&str, &str)> =
        report.findings.iter().map(|finding| (finding.file.as_str(), finding.problem.code())).collect();
    assert_eq!((found.as_slice(), report.worst()), (wanted, Some(worst)), "{:?}", report.findings);
}

#[test]
fn what_a_killed_process_leaves_is_sound() {
    for engine in [Engine::Redb, Engine::Sled] {
        let kept = Kept::new(engine);
        let report = kept.check();
        assert_eq!((codes(&report), report.worst()), (vec![], None), "{:?}", report.findings);
        assert_eq!((report.files, report.chunks, report.records), (1, IN_INDEX, WRITTEN - IN_INDEX));
        // One is in the index, the others are behind it.
        assert_eq!(report.content_bytes, WRITTEN / 2 * CHUNK_LEN as u64);
        assert_eq!((report.engine, report.starts, report.stopped_cleanly), (Some(engine), 1, false));
        let (_store, opened) = kept.open(engine);
        assert_eq!(
            opened.unwrap().kept[&FILE].records.len() as u64,
            WRITTEN - IN_INDEX,
            "it opens as was said"
        );
    }
}

#[test]
fn a_directory_that_was_just_made_is_sound() {
    let kept = Kept { folder: tempfile::tempdir().unwrap(), memo: TempDir::new_in("/dev/shm").unwrap() };
    drop(Store::open(&kept.data(), OWNER).unwrap());
    assert_eq!(kept.check().worst(), None);
    fs::create_dir(kept.file(FILES_DIR)).unwrap();
    assert!(kept.check().findings.iter().all(|finding| finding.problem.severity() == Severity::Note));
}

#[test]
fn what_the_power_has_taken_is_no_damage() {
    let kept = Kept::new(Engine::Redb);
    kept.lose_power();
    assert_finds(&kept.check(), &[("files/journal", "forgotten")], Severity::Note);
    kept.flip("files/journal-0", &marker(SYNCED + 1));
    let wanted = [("files/journal-0", "torn"), ("files/journal", "forgotten")];
    assert_finds(&kept.check(), &wanted, Severity::Note);
    let (_store, opened) = kept.open(Engine::Redb);
    assert_eq!(opened.unwrap().kept[&FILE].records.len() as u64, SYNCED - IN_INDEX);
}

#[test]
fn damage_of_the_journal_is_found_at_its_start_in_the_middle_and_at_its_end() {
    for number in [IN_INDEX + 2, SYNCED + 1] {
        let kept = Kept::new(Engine::Redb);
        kept.flip("files/journal-0", &marker(number));
        let report = kept.check();
        assert_finds(&report, &[("files/journal-0", "refused")], Severity::Fatal);
        let refused = |problem: &Problem| match problem {
            Problem::Refused { refusal, .. } => *refusal,
            problem => panic!("{problem}"),
        };
        assert_eq!(refused(&report.findings[0].problem), StoreRefusal::Damaged { record: number });
        let (_store, opened) = kept.open(Engine::Redb);
        let error = opened.err().expect("it must not open");
        assert!(
            matches!(error, FilesError::Refused(StoreRefusal::Damaged { record }) if record == number),
            "{error}"
        );
    }
}

/// What was written last and not synced is given back by other members: the node says that it has forgotten it.
#[test]
fn a_damaged_last_record_is_damage_that_others_mend() {
    let kept = Kept::new(Engine::Redb);
    kept.flip("files/journal-0", &marker(WRITTEN));
    assert_finds(&kept.check(), &[("files/journal", "lost")], Severity::Damage);
    assert!(kept.open(Engine::Redb).1.unwrap().forgot_at.is_some());
}

/// Of what a sync has confirmed nothing may be missing, whatever became of the power.
#[test]
fn content_that_a_record_lacks_is_damage_of_the_journal() {
    for (number, power_fails) in [(4, false), (4, true), (WRITTEN - 1, false)] {
        let kept = Kept::new(Engine::Redb);
        kept.flip("files/content", &marker(number));
        if power_fails {
            kept.lose_power();
        }
        let report = kept.check();
        assert_eq!(report.worst(), Some(Severity::Fatal), "{:?}", report.findings);
        assert_eq!(codes(&report), ["content", "refused"]);
        assert_eq!(report.findings[0].object, Some(FILE));
        assert!(kept.open(Engine::Redb).1.is_err());
    }
}

#[test]
fn damaged_content_is_found_with_its_chunk() {
    for engine in [Engine::Redb, Engine::Sled] {
        let kept = Kept::new(engine);
        kept.flip("files/content", &marker(2));
        let report = kept.check();
        assert_finds(&report, &[("files/content", "content")], Severity::Damage);
        assert_eq!((report.findings[0].object, report.findings[0].chunk), (Some(FILE), Some(2 * 16)));
    }
}

#[test]
fn content_that_is_cut_off_or_gone_is_found() {
    let kept = Kept::new(Engine::Redb);
    kept.edit("files/content", |bytes| bytes.truncate(CHUNK_LEN / 2));
    let report = kept.check();
    assert_eq!(codes(&report), ["cut_off", "refused", "cut_off"]);
    fs::remove_file(kept.file("files/content")).unwrap();
    assert_eq!(codes(&kept.check()), ["cut_off", "refused", "cut_off"]);
}

/// A bit that is turned is found, or belongs to nothing. A start finds it, too.
#[test]
fn turned_bits_of_the_index_are_found() {
    let kept = Kept::new(Engine::Redb);
    let whole = fs::read(kept.file("files/index.redb")).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let (mut found, mut tried) = (0, 0);
    for at in used.iter().step_by(used.len() / 150 + 1) {
        let mut bytes = whole.clone();
        bytes[*at] ^= 1;
        fs::write(kept.file("files/index.redb"), &bytes).unwrap();
        let report = kept.check();
        tried += 1;
        if report.worst() == Some(Severity::Fatal) {
            found += 1;
        } else {
            assert_eq!((report.worst(), report.files, report.chunks), (None, 1, IN_INDEX), "byte {at}");
        }
        let media = RealMedia::open(kept.file(FILES_DIR)).unwrap();
        let opened = RedbIndex::open(media.open("index.redb").unwrap());
        assert_eq!(opened.is_ok(), report.worst().is_none(), "byte {at}");
    }
    // Most of the file is pages that were in use before.
    assert!(found > 10 && tried > 100, "{found} of {tried}");
}

#[test]
fn what_is_missing_is_found_and_keeps_a_start_out() {
    for name in ["files/index.redb", "files/journal-0", "files"] {
        let kept = Kept::new(Engine::Redb);
        // Without the memo nothing else would know.
        kept.lose_power();
        let path = kept.file(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap();
        let _ = fs::remove_file(kept.file("files/journal-1"));
        let report = kept.check();
        assert_eq!(codes(&report), ["missing"], "{name}: {:?}", report.findings);
        let store = Store::open(&kept.data(), OWNER).unwrap();
        let media = RealMedia::open(kept.file(FILES_DIR)).unwrap();
        let chosen = Engine::Redb.choose(&media, store.has_served());
        drop(store);
        let missing = match chosen {
            Err(IndexError::Missing) => "files/index.redb",
            Ok(_) => match kept.open(Engine::Redb).1 {
                Err(FilesError::JournalMissing) => "files/journal-0",
                other => panic!("{:?}", other.err()),
            },
            Err(error) => panic!("{error}"),
        };
        assert!(missing.starts_with(name), "{name}: {missing}");
    }
}

#[test]
fn damaged_and_missing_small_files_are_found() {
    for kind in Kind::ALL {
        let kept = Kept::new(Engine::Redb);
        Store::open(&kept.data(), OWNER).unwrap().note_drained(true).unwrap();
        kept.edit(kind.file(), |bytes| (20..bytes.len()).step_by(4_096).for_each(|at| bytes[at] ^= 1));
        assert_finds(&kept.check(), &[(kind.file(), "small_file")], Severity::Fatal);
        kept.edit(kind.file(), |bytes| bytes[20] ^= 1);
        if [Kind::Time, Kind::Ceiling, Kind::Losses].contains(&kind) {
            assert_finds(&kept.check(), &[(kind.file(), "one_copy")], Severity::Note);
        }
        fs::remove_file(kept.file(kind.file())).unwrap();
        if kind != Kind::Orders {
            assert_finds(&kept.check(), &[(kind.file(), "small_file")], Severity::Fatal);
        }
    }
}

#[test]
fn a_store_that_has_failed_is_no_good() {
    let kept = Kept::new(Engine::Redb);
    let mut store = Store::open(&kept.data(), OWNER).unwrap();
    store.note_failed().unwrap();
    drop(store);
    assert_eq!(codes(&kept.check()), ["refused"]);
}

#[test]
fn what_does_not_belong_there_is_noted() {
    let kept = Kept::new(Engine::Redb);
    fs::write(kept.file("notes.txt"), "hello").unwrap();
    fs::write(kept.file("time.new"), "half").unwrap();
    fs::write(kept.file("files/index.redb.new"), "half").unwrap();
    let wanted = [("notes.txt", "stranger"), ("time.new", "leftover"), ("files/index.redb.new", "leftover")];
    assert_finds(&kept.check(), &wanted, Severity::Note);
    fs::create_dir(kept.file("files/index.sled")).unwrap();
    assert_eq!(kept.check().worst(), Some(Severity::Fatal));
    let media = RealMedia::open(kept.file(FILES_DIR)).unwrap();
    assert!(matches!(Engine::Redb.choose(&media, true), Err(IndexError::Two)));
}

#[test]
fn a_pipe_in_place_of_content_holds_nothing_up() {
    let kept = Kept::new(Engine::Redb);
    fs::remove_file(kept.file("files/content")).unwrap();
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        kept.file("files/content"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    );
    made.unwrap();
    assert_finds(&kept.check(), &[("files/content", "not_a_file")], Severity::Fatal);
}

#[test]
fn what_cannot_be_checked_is_told() {
    let kept = Kept::new(Engine::Redb);
    let store = Store::open(&kept.data(), OWNER).unwrap();
    let error = kept.try_check().unwrap_err();
    let ours = Some(std::process::id());
    assert!(matches!(error, CheckError::InUse { holder, .. } if holder == ours), "{error}");
    drop(store);

    let other = Owner { node: NodeId(2), ..OWNER };
    let error = check(&kept.data(), kept.memo.path(), Some(other), &mut |_| {}).unwrap_err();
    assert!(matches!(error, CheckError::Open(OpenError::Owner { .. })), "{error}");
    let error = check(&kept.file("nothing"), kept.memo.path(), None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, CheckError::Nothing(_)), "{error}");
    let error = check(&kept.file(FILES_DIR), kept.memo.path(), None, &mut |_| {}).unwrap_err();
    assert!(matches!(error, CheckError::NotAStore { .. }), "{error}");

    kept.edit("peers", |bytes| {
        bytes.truncate(bytes.len() - 4);
        bytes[8] += 1;
        let sum = crc32c::crc32c(bytes);
        bytes.extend(sum.to_le_bytes());
    });
    let error = kept.try_check().unwrap_err();
    assert!(matches!(error, CheckError::Open(OpenError::Format { .. })), "{error}");
}

/// While it is looked at no daemon starts.
#[test]
fn a_check_keeps_daemons_away() {
    let kept = Kept::new(Engine::Redb);
    let mut refused = 0;
    let data = kept.data();
    check(&data, kept.memo.path(), None, &mut |_| {
        refused += usize::from(matches!(Store::open(&data, OWNER), Err(OpenError::Locked { .. })));
    })
    .unwrap();
    assert!(refused > 3);
}
