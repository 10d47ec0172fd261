//! A journal, content and index on one disk in memory, whose power fails.

use std::sync::Mutex;

use base::{ClusterId, Epoch, Members, NodeId, Random, Seq, WallTime};
use node::file::{Attributes, Change, Chunk, File, Op, Piece, Position};
use node::{ClusterMap, Osd, Settings};
use replication::{Body, Checkpoint, Entry, Request};

use super::*;
use crate::store::disk::tests::FakeDisk;
use crate::store::index::{Change as IndexChange, Index, RedbIndex};
use crate::store::media::fake::FakeMedia;
use crate::store::writer::{DiskDone, Job, LogWriter};
use crate::store::{Bug, Host, Owner, StoreRules, format};

pub(in crate::store) const OWNER: Owner = Owner { cluster: ClusterId([1; 16]), node: NodeId(1) };
const HOST: Host = Host { machine: [2; 16], boot: [3; 16], lock: [4, 5], is_local: true };
pub(in crate::store) const LIMITS: JournalLimits =
    JournalLimits { segment_bytes: 192 << 10, segments_max: 6, reserve_bytes: 4 << 10 };
pub(in crate::store) const FILE: ObjectId = ObjectId::new(0, 9);
pub(in crate::store) const CHUNK_LEN: usize = 64 << 10;

/// Memory that outlives processes.
#[derive(Clone, Default)]
struct FakeMemo(Arc<Mutex<Option<Memo>>>);

impl MemoSlot for FakeMemo {
    fn read(&mut self) -> io::Result<Option<Memo>> {
        Ok(*self.0.lock().unwrap())
    }

    fn write(&mut self, memo: &Memo) -> io::Result<()> {
        *self.0.lock().unwrap() = Some(*memo);
        Ok(())
    }
}

/// A machine with a disk, and what is known of what is on it.
struct Machine {
    disk: FakeDisk,
    media: FakeMedia,
    memo: FakeMemo,
    starts: u64,
    /// The data of each record, from the first one that no checkpoint has.
    records: Vec<Bytes>,
    /// What checkpoints have, by chunk.
    chunks: BTreeMap<u64, Bytes>,
    /// Records that checkpoints have, by the count of the journal, and by that of entries.
    applied: (u64, u64),
    durable: usize,
    rules: StoreRules,
}

pub(in crate::store) fn at(seq: u64) -> Position {
    Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
}

pub(crate) fn record(seq: u64, data: &Bytes) -> FileRecord {
    let change = Change::Write { offset: seq * (1 << 20), data: data.clone().into() };
    let client = base::ClientId { certificate: 1, program: 1 };
    let body = Body::Op {
        request: Request { client, number: seq, settled: 1 },
        op: Op { time: WallTime::ZERO, under: None, change },
    };
    let entries = vec![Entry { at: at(seq), lease: 0, body }];
    FileRecord { object: FILE, record: Record::Appended { after: Seq(seq - 1), entries, committed: Seq(0) } }
}

/// What a new store is opened as, and the disk that it is on.
pub(crate) fn opened() -> (OpenedFiles, FakeMedia) {
    let mut machine = Machine::new();
    (machine.open().unwrap(), machine.media)
}

fn data_of(record: &Record<File>) -> Bytes {
    let Record::Appended { entries, .. } = record else { panic!("{record:?}") };
    let [Entry { body: Body::Op { op: Op { change: Change::Write { data, .. }, .. }, .. }, .. }] =
        entries.as_slice()
    else {
        panic!("{entries:?}")
    };
    Bytes::clone(data)
}

impl Machine {
    fn new() -> Self {
        let mut disk = FakeDisk::default();
        format(&mut disk, OWNER, base::StoreId([5; 16])).unwrap();
        Self {
            disk,
            media: FakeMedia::garbling(),
            memo: FakeMemo::default(),
            starts: 0,
            records: Vec::new(),
            chunks: BTreeMap::new(),
            applied: (0, 0),
            durable: 0,
            rules: StoreRules::default(),
        }
    }

    fn open(&mut self) -> Result<OpenedFiles, FilesError> {
        self.starts += 1;
        let mut store = Store::start_on(Box::new(self.disk.clone()), OWNER, HOST, self.starts).unwrap();
        let osd = Osd { id: NodeId(1), address: "127.0.0.1:7000".into() };
        let map = ClusterMap::new(OWNER.cluster, 1, 1, Settings::default(), vec![osd]).unwrap();
        let index = RedbIndex::open(self.media.open("index").unwrap()).unwrap();
        self.media.sync().unwrap();
        let parts = FilesParts {
            media: Arc::new(self.media.clone()),
            index: Box::new(index),
            memo: Box::new(self.memo.clone()),
            limits: LIMITS,
            inline_max: crate::store::contents::INLINE_MAX,
            rules: self.rules,
            lock: None,
        };
        open(&mut store, &ShardConfig::new(Arc::new(map)), parts)
    }

    /// Opens it, and compares: all that was durable is there, and of the rest a beginning.
    fn start(&mut self) -> OpenedFiles {
        let mut opened = self.open().unwrap();
        let kept = opened.kept.remove(&FILE);
        let (checkpoint, records) = kept.map_or((None, Vec::new()), |kept| (kept.checkpoint, kept.records));
        let found: Vec<Bytes> = records.iter().map(data_of).collect();
        assert!(
            (self.durable..=self.records.len()).contains(&found.len()),
            "{} of {}",
            found.len(),
            self.durable
        );
        assert!(found == self.records[..found.len()], "it is what was written");
        (self.records, self.durable) = (found, records.len());
        let machine = checkpoint.map(|checkpoint| checkpoint.into_parts().1).unwrap_or_default();
        for (number, wanted) in &self.chunks {
            let (_, chunk) = machine.chunk(*number).expect("a checkpoint has it");
            assert!(content(&opened.contents, chunk) == *wanted, "chunk {number} is what was written");
        }
        opened
    }

    fn append(&mut self, log: &mut FileLog, number: u64, random: &mut Random) {
        let lengths = [10, CHUNK_LEN, 2 * CHUNK_LEN + 100, 3 * CHUNK_LEN];
        let seed = random.next_u64() % 251;
        let data: Bytes = (0..lengths[random.index(4)] as u64)
            .map(|at| u8::try_from((at / 5 + seed) % 251).unwrap())
            .collect();
        let seq = self.applied.1 + self.records.len() as u64 + 1;
        log.append(number, &record(seq, &data)).unwrap();
        self.records.push(data);
    }

    /// A checkpoint of the oldest records, which are durable. `number` is that of the last one there is.
    fn checkpoint(&mut self, opened: &mut OpenedFiles, number: u64, count: usize) {
        let behind = self.records.split_off(count);
        let (place, first) = (opened.log.place(number) - behind.len() as u64, self.applied.1 + 1);
        let mut chunks = Vec::new();
        for (seq, data) in (first..).zip(&self.records) {
            for (index, part) in (0..).zip(data.chunks(CHUNK_LEN)) {
                let chunk = Chunk::new(u16::MAX, vec![(0, Piece::Held(data.slice_ref(part)))]).unwrap();
                chunks.push((seq * 16 + index, Some((at(seq), chunk))));
                self.chunks.insert(seq * 16 + index, data.slice_ref(part));
            }
        }
        let last = first + self.records.len() as u64 - 1;
        let attributes = Attributes::new(last << 24, WallTime::ZERO, WallTime::ZERO).unwrap();
        let head =
            Checkpoint::first(Members::new([NodeId(1)]).unwrap(), File::kept((at(last), attributes), [], []));
        let changes = FileChanges {
            head: Some(head),
            is_new: first == 1,
            chunks,
            names: Vec::new(),
            last_write: number,
        };
        opened.contents.put(vec![Taken { object: FILE, applied: place, changes }], place).unwrap();
        opened.log.free(place);
        (self.applied, self.durable, self.records) = ((place, last), behind.len(), behind);
    }
}

/// A chunk's content, wherever it is.
fn content(contents: &Contents, chunk: &Chunk) -> Bytes {
    let [(0, piece)] = chunk.pieces().collect::<Vec<_>>()[..] else { panic!("one piece at the beginning") };
    match piece {
        Piece::Held(bytes) => bytes.clone(),
        Piece::Stored(stored) => contents.read_one(stored).unwrap(),
    }
}

/// Some records, syncs and checkpoints.
fn work(machine: &mut Machine, opened: &mut OpenedFiles, random: &mut Random) {
    let mut number = 0;
    for _ in 0..random.between(1, 8) {
        while let Some(slot) = opened.log.wanted(false) {
            opened.log.handle_made(opened.segments.make(slot).unwrap());
        }
        number += 1;
        machine.append(&mut opened.log, number, random);
        assert_eq!(opened.log.write().unwrap(), number);
        if random.chance(1, 2) {
            let upto = opened.log.sync().run().unwrap();
            assert_eq!(opened.log.handle_synced(upto).unwrap(), number);
            machine.durable = machine.records.len();
            if random.chance(1, 3) {
                let count = 1 + random.index(machine.records.len());
                machine.checkpoint(opened, number, count);
            }
        }
    }
}

/// What waits for space is needed by the checkpoint that frees it.
#[test]
fn the_journal_grows_for_a_checkpoint_that_waits_for_what_it_has_no_space_for() {
    let opened = Machine::new().start();
    let mut writer = LogWriter::new(opened.log, opened.segments);
    let last = 200;
    let data = Bytes::from(vec![7; CHUNK_LEN - 1]);
    (1..=last).for_each(|number| writer.take(Job::Append(number, record(number, &data))).unwrap());
    let written = drive(&mut writer);
    assert!(written < last, "there is no space for all of it");
    assert_eq!(drive(&mut writer), written, "and nobody frees any");
    writer.take(Job::SyncUpto(last)).unwrap();
    assert_eq!(drive(&mut writer), last);
}

/// Does all that there is to do, and returns the last record that is durable.
fn drive(writer: &mut LogWriter) -> u64 {
    let mut durable = 0;
    loop {
        writer.take(Job::Sync).unwrap();
        writer.write().unwrap();
        let synced = writer.poll_sync().unwrap().run();
        writer.take(Job::Synced(synced)).unwrap();
        let made = writer.poll_segment().map(|(segments, slot)| segments.make(slot));
        let is_over = made.is_none();
        made.into_iter().for_each(|made| writer.take(Job::Made(made)).unwrap());
        while let Some(done) = writer.poll_done() {
            durable = if let DiskDone::Durable(upto) = done { upto } else { durable };
        }
        if is_over {
            return durable;
        }
    }
}

/// Whatever the power leaves, what was durable is there, content that landed beside the journal included.
#[test]
fn what_has_landed_is_as_durable_as_the_journal() {
    let (mut lost, mut adopted) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut machine = Machine::new();
        for _ in 0..6 {
            let written = machine.records.len();
            let mut opened = machine.start();
            lost += written - machine.records.len();
            let used = opened.contents.used_bytes();
            work(&mut machine, &mut opened, &mut random);
            adopted += usize::from(opened.contents.used_bytes() > used);
            drop(opened);
            if random.chance(2, 3) {
                machine.media = machine.media.after_power_cut(&mut random);
                machine.memo = FakeMemo::default();
            } else {
                // Nothing is lost with the process.
                machine.durable = machine.records.len();
            }
        }
    }
    assert!(lost > 50 && adopted > 50, "{lost} {adopted}");
}

/// Long content is on the disk once: in its checkpoint where it landed, and nowhere once it is gone.
#[test]
fn long_content_is_written_once() {
    let mut machine = Machine::new();
    let mut opened = machine.start();
    opened.log.handle_made(opened.segments.make(opened.log.wanted(false).unwrap()).unwrap());
    let data: Bytes = vec![7; 3 * CHUNK_LEN].into();
    opened.log.append(1, &record(1, &data)).unwrap();
    machine.records.push(data);
    opened.log.write().unwrap();
    let upto = opened.log.sync().run().unwrap();
    opened.log.handle_synced(upto).unwrap();
    assert_eq!(opened.contents.used_bytes(), 3 * CHUNK_LEN as u64);
    machine.checkpoint(&mut opened, 1, 1);
    assert_eq!(opened.contents.used_bytes(), 3 * CHUNK_LEN as u64);
    drop(opened);
    let opened = machine.start();
    let gone = FileChanges { head: None, is_new: true, chunks: Vec::new(), names: Vec::new(), last_write: 1 };
    opened.contents.put(vec![Taken { object: FILE, applied: 2, changes: gone }], 2).unwrap();
    assert_eq!(opened.contents.used_bytes(), 0);
}

#[test]
fn a_store_that_was_just_made_has_forgotten_nothing() {
    let mut machine = Machine::new();
    assert_eq!(machine.start().forgot_at, None);
    machine.memo = FakeMemo::default();
    assert!(machine.start().forgot_at.is_some());
}

/// Content of a record that was durable and has rotted is damage; if it was not, it is the torn end.
#[test]
fn rotten_content_is_damage_of_the_journal() {
    for (is_synced, power_fails) in [(true, true), (true, false), (false, true)] {
        let mut machine = Machine::new();
        let mut opened = machine.start();
        opened.log.handle_made(opened.segments.make(opened.log.wanted(false).unwrap()).unwrap());
        for number in 1..3 {
            let data: Bytes = vec![7; CHUNK_LEN].into();
            opened.log.append(number, &record(number, &data)).unwrap();
            opened.log.write().unwrap();
            if is_synced {
                let upto = opened.log.sync().run().unwrap();
                opened.log.handle_synced(upto).unwrap();
            }
        }
        drop(opened);
        machine.media.edit("content", |bytes| bytes[100] ^= 1);
        if power_fails {
            machine.memo = FakeMemo::default();
        }
        let opened = machine.open();
        if is_synced {
            let error = opened.err().expect("it must not open");
            assert!(matches!(error, FilesError::Refused(StoreRefusal::Damaged { record: 1 })), "{error}");
        } else {
            assert!(opened.unwrap().kept.is_empty());
        }
    }
}

/// A disk may give back what it could not read before. By then something else may stand where that was, and what was written since
/// is not in it.
#[test]
fn what_a_start_could_not_read_no_later_one_reads() {
    let opened = twice_flipped(StoreRules::default()).unwrap();
    let (_, file) = opened.kept[&FILE].checkpoint.clone().unwrap().into_parts();
    assert!(file.chunk(16).is_none() && file.chunk(32).is_some());
    let broken = twice_flipped(StoreRules::without(Some(Bug::UnreadableComesBack)));
    assert!(matches!(broken.err(), Some(FilesError::Contents(ContentsError::Place(_)))));
}

/// What a start finds after the row of the first chunk could not be read by the one before, and can be again.
fn twice_flipped(rules: StoreRules) -> Result<OpenedFiles, FilesError> {
    let mut machine = Machine { rules, ..Machine::new() };
    let write = |machine: &mut Machine, opened: &mut OpenedFiles| {
        while let Some(slot) = opened.log.wanted(false) {
            opened.log.handle_made(opened.segments.make(slot).unwrap());
        }
        let seq = machine.applied.1 + 1;
        let data = Bytes::from(vec![u8::try_from(seq).unwrap(); CHUNK_LEN]);
        opened.log.append(1, &record(seq, &data)).unwrap();
        machine.records.push(data);
        opened.log.write().unwrap();
        let upto = opened.log.sync().run().unwrap();
        opened.log.handle_synced(upto).unwrap();
        machine.checkpoint(opened, 1, 1);
    };
    let flip = |machine: &Machine| {
        let index = RedbIndex::open(machine.media.open("index").unwrap()).unwrap();
        let key = [&b"c"[..], &0_u64.to_be_bytes(), &9_u64.to_be_bytes(), &16_u64.to_be_bytes()].concat();
        let mut row = index.get(&key).unwrap().unwrap();
        row.iter_mut().take(1).for_each(|byte| *byte ^= 1);
        index.commit(&[IndexChange::Put(key, row)]).unwrap();
    };
    let mut opened = machine.start();
    write(&mut machine, &mut opened);
    drop(opened);
    flip(&machine);
    let mut opened = machine.open()?;
    assert_eq!(opened.contents.used_bytes(), 0, "nobody knows that anything refers to it");
    write(&mut machine, &mut opened);
    drop(opened);
    flip(&machine);
    machine.open()
}
