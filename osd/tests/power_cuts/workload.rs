//! A process with a store, as the daemon puts it together, and what it does: records of a few files, syncs, checkpoints, and the small files
//! now and then. What was handed over is history, and what the store has said of it is known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{
    ClientId, ClusterId, Epoch, Incarnation, Members, MonoTime, NodeId, ObjectId, Random, Seq, Span, StartId,
    StoreId, WallTime,
};
use bytes::Bytes;
use namespace::{
    Change as TreeChange, InodeId, Make, Name, Op as TreeOp, RenameHow, Root, Site, Who, XattrHow, XattrName,
};
use node::file::{Change, File, Key, Op, Part, Position};
use node::{ClusterMap, FileChanges, KeptFile, Met, Osd, Settings, ShardConfig};
use osd::store::check::FILES_DIR;
use osd::store::contents::{Contents, INLINE_MAX, Put, Taken};
use osd::store::files::{self, FilesParts, OpenedFiles};
use osd::store::index::Engine;
use osd::store::journal::{JournalLimits, Sync};
use osd::store::media::{Media, RealMedia};
use osd::store::memo::MemoFile;
use osd::store::writer::{DiskDone, Job, LogWriter};
use osd::store::{Owner, Store, StoreRules};
use replication::{Body, Checkpoint, Entry, Machine, Record, Request};
use wire::FileRecord;

pub(crate) const OWNER: Owner = Owner { cluster: ClusterId([1; 16]), node: NodeId(1) };
/// Segments so short that they are used again and again.
const LIMITS: JournalLimits =
    JournalLimits { segment_bytes: 32 << 10, segments_max: 4, reserve_bytes: 4 << 10 };
const CHUNK: u64 = 64 << 10;
const OBJECTS: u64 = 6;
/// Some others are trees.
const TREES: u64 = 2;

/// What the store has said, and what it was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The nonces of its starts.
    pub(crate) starts: Vec<u64>,
    /// The epoch ceiling, and the one that was asked for.
    pub(crate) ceiling: u64,
    pub(crate) ceiling_asked: u64,
    /// Peers that were admitted, and asked to be.
    pub(crate) peers: u32,
    pub(crate) peers_asked: u32,
    /// Records that were handed over, and those that are durable.
    pub(crate) handed: u64,
    pub(crate) durable: u64,
    /// The last checkpoint that was put, and one that is being put.
    pub(crate) applied: u64,
    pub(crate) putting: Option<u64>,
}

/// All records, by their place in the journal, from 1.
#[derive(Clone, Default)]
pub(crate) struct History(pub(crate) Vec<FileRecord>);

impl History {
    /// All records up to this one.
    pub(crate) fn before(&self, last: u64) -> Self {
        Self(self.0[..usize::try_from(last).expect("history is short")].to_vec())
    }
}

/// How a store is opened.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    /// The folder that has, or gets, the data directory.
    pub(crate) folder: &'a Path,
    /// The folder of the memo.
    pub(crate) memo: &'a Path,
    pub(crate) engine: Engine,
    pub(crate) rules: StoreRules,
}

/// A file as far as it is known: what has taken effect, and the last entry, which has not.
#[derive(Clone, Default)]
pub(crate) struct Replica {
    pub(crate) file: File,
    pub(crate) at: Position,
    pub(crate) entries: Vec<Entry<Op>>,
}

/// The files after some records.
pub(crate) type Replicas = BTreeMap<ObjectId, Replica>;

/// A process with an open store.
pub(crate) struct Process<'a> {
    pub(crate) store: Store,
    pub(crate) contents: Arc<Contents>,
    pub(crate) known: Known,
    writer: LogWriter,
    syncing: Option<Sync>,
    before: u64,
    replicas: Replicas,
    /// What the index has: the chunks of each file.
    kept: BTreeMap<ObjectId, BTreeMap<Key, Position>>,
    changed: BTreeSet<ObjectId>,
    is_half_full: bool,
    /// Is told of what is known.
    says: Box<dyn Fn(&Known) + 'a>,
}

/// What a start finds.
pub(crate) struct Found {
    pub(crate) kept: BTreeMap<ObjectId, KeptFile>,
    pub(crate) forgot: bool,
    pub(crate) damaged: Vec<ObjectId>,
    /// The last record.
    pub(crate) last: u64,
}

pub(crate) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Adds a record to the files.
pub(crate) fn take(replicas: &mut Replicas, FileRecord { object, record }: &FileRecord) {
    match record {
        Record::Appended { entries, .. } => {
            let replica = replicas.entry(*object).or_default();
            entries.iter().for_each(|entry| replica.take(entry));
        }
        Record::Buried(_) => _ = replicas.remove(object),
        record => panic!("{record:?} is nothing that is written here"),
    }
}

impl Replica {
    fn take(&mut self, entry: &Entry<Op>) {
        for entry in self.entries.drain(..) {
            let Body::Op { op, .. } = &entry.body else { continue };
            // What is refused changes nothing.
            let _ = self.file.apply(entry.at, op);
            self.at = entry.at;
        }
        self.entries.push(entry.clone());
    }

    fn next(&self) -> u64 {
        self.entries.last().map_or(self.at, |entry| entry.at).seq.0 + 1
    }

    fn versions(&self) -> BTreeMap<Key, Position> {
        let versions = self.file.versions(None, usize::MAX).into_iter();
        versions.filter(|(key, _)| *key != Key::Attributes).collect()
    }

    fn changes(&self, kept: Option<&BTreeMap<Key, Position>>, last_write: u64) -> FileChanges {
        let (empty, now) = (BTreeMap::new(), self.versions());
        let before = kept.unwrap_or(&empty);
        let keys: BTreeSet<Key> = before.keys().chain(now.keys()).cloned().collect();
        let (mut chunks, mut names) = (Vec::new(), Vec::new());
        for key in keys.into_iter().filter(|key| before.get(key) != now.get(key)) {
            match key {
                Key::Chunk(number) => chunks.push((number, self.file.chunk(number).cloned())),
                Key::Tree(name) => {
                    let part = self.file.tree().part(&name);
                    let at = now.get(&Key::Tree(name.clone())).copied();
                    names.push((name, at.zip(part)));
                }
                Key::Attributes => {}
            }
        }
        let members = Members::new([NodeId(1)]).unwrap();
        let (mut head, machine) =
            Checkpoint::first(members, File::kept(self.file.attributes(), [], [])).into_parts();
        (head.rest.at, head.base, head.entries) = (self.at, self.at, self.entries.clone());
        let head = Some(Checkpoint::from_parts(head, machine));
        FileChanges { head, is_new: kept.is_none(), chunks, names, last_write }
    }
}

impl<'a> Process<'a> {
    /// Opens the store as the daemon does.
    pub(crate) fn open(
        how: How<'_>,
        mut known: Known,
        says: impl Fn(&Known) + 'a,
    ) -> Result<(Self, Found), String> {
        let mut store = Store::open(&data(how.folder), OWNER).map_err(|error| format!("{error:?}"))?;
        known.starts = store.chain().nonces().to_vec();
        says(&known);
        let dir = data(how.folder).join(FILES_DIR);
        let media: Arc<dyn Media> =
            Arc::new(RealMedia::open(dir.clone()).map_err(|error| error.to_string())?);
        let engine = how.engine.choose(&*media, store.has_served());
        let index = engine.and_then(|engine| engine.open(&*media, &dir));
        let parts = FilesParts {
            index: index.map_err(|error| format!("the index: {error:?}"))?,
            media,
            memo: Box::new(MemoFile::open(how.memo, store.id()).map_err(|error| error.to_string())?),
            limits: LIMITS,
            inline_max: INLINE_MAX,
            rules: how.rules,
            lock: None,
        };
        let osd = Osd { id: NodeId(1), address: "127.0.0.1:7000".into() };
        let map = ClusterMap::new(OWNER.cluster, 1, 1, Settings::default(), vec![osd]).unwrap();
        let opened = files::open(&mut store, &ShardConfig::new(Arc::new(map)), parts);
        let opened = opened.map_err(|error| format!("{error:?}"))?;
        let OpenedFiles { log, segments, contents, kept, forgot_at, damaged } = opened;
        let before = log.place(0);
        known.applied = contents.applied();
        let process = Self {
            store,
            contents,
            known,
            writer: LogWriter::new(log, segments),
            syncing: None,
            before,
            replicas: Replicas::new(),
            kept: BTreeMap::new(),
            changed: BTreeSet::new(),
            is_half_full: false,
            says: Box::new(says),
        };
        Ok((process, Found { kept, forgot: forgot_at.is_some(), damaged, last: before }))
    }

    /// Goes on with what was found.
    pub(crate) fn begin(&mut self, found: Found) {
        for (object, KeptFile { checkpoint, records }) in found.kept {
            if let Some(checkpoint) = checkpoint {
                let (head, file) = checkpoint.into_parts();
                let replica = Replica { file, at: head.rest.at, entries: head.entries };
                self.kept.insert(object, replica.versions());
                self.replicas.insert(object, replica);
            }
            for record in records {
                self.follow(&FileRecord { object, record });
            }
        }
        let known = &mut self.known;
        (known.handed, known.durable, known.putting) = (self.before, self.before, None);
        let now = MonoTime::from_micros(self.before);
        self.store.mark_time(WallTime::from_micros(self.before), now).unwrap();
        self.say();
    }

    /// Ends as a process does, of which nothing stays open: threads of sled may have its file for a moment longer.
    pub(crate) fn end(self, how: How<'_>) -> Known {
        let known = self.known.clone();
        drop(self);
        if let Ok(file) = std::fs::File::open(data(how.folder).join(FILES_DIR).join("index.sled/db")) {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        }
        known
    }

    fn say(&self) {
        (self.says)(&self.known);
    }

    fn follow(&mut self, record: &FileRecord) {
        take(&mut self.replicas, record);
        self.changed.insert(record.object);
        if !self.replicas.contains_key(&record.object) {
            self.kept.remove(&record.object);
        }
    }

    /// Some records, and what belongs to that.
    pub(crate) fn step(&mut self, history: &mut History, random: &mut Random) {
        for _ in 0..=random.index(3) {
            let record = self.draw(random);
            self.known.handed += 1;
            self.say();
            history.0.push(record.clone());
            self.follow(&record);
            self.job(Job::Append(self.known.handed - self.before, record));
        }
        self.turn();
        if random.chance(1, 2) {
            self.job(Job::Sync);
            self.turn();
        }
        // What is written while a sync is under way is not covered by it.
        if random.chance(1, 2) {
            self.end_sync();
        }
        if self.is_half_full || random.chance(1, 14) {
            self.checkpoint();
        }
        if random.chance(1, 16) {
            self.note(random);
        }
    }

    fn job(&mut self, job: Job) {
        self.writer.take(job).unwrap();
    }

    /// What a thread of the journal does in a turn.
    fn turn(&mut self) {
        self.writer.write().unwrap();
        while let Some(done) = self.writer.poll_done() {
            match done {
                DiskDone::Durable(number) => {
                    self.known.durable = self.before + number;
                    self.say();
                }
                DiskDone::Used(used, bytes_max) => self.is_half_full = used > bytes_max / 2,
                DiskDone::Written(_) => {}
                DiskDone::Failed(error) => panic!("{error}"),
            }
        }
        if let Some(sync) = self.writer.poll_sync() {
            self.syncing = Some(sync);
        }
        if let Some((segments, slot)) = self.writer.poll_segment() {
            self.job(Job::Made(segments.make(slot)));
            self.turn();
        }
    }

    fn end_sync(&mut self) {
        if let Some(sync) = self.syncing.take() {
            self.job(Job::Synced(sync.run()));
            self.turn();
        }
    }

    /// All that was handed over is durable.
    pub(crate) fn sync(&mut self) {
        for _ in 0..8 {
            if self.known.durable == self.known.handed {
                return;
            }
            self.job(Job::Sync);
            self.turn();
            self.end_sync();
        }
        panic!("there is no room for {} of {}", self.known.durable, self.known.handed);
    }

    fn checkpoint(&mut self) {
        self.sync();
        let (place, number) = (self.known.handed, self.known.handed - self.before);
        let taken = std::mem::take(&mut self.changed).into_iter().map(|object| {
            let none = FileChanges {
                head: None,
                is_new: true,
                chunks: Vec::new(),
                names: Vec::new(),
                last_write: number,
            };
            let replica = self.replicas.get(&object);
            let changes = replica.map_or(none, |replica| replica.changes(self.kept.get(&object), number));
            Taken { object, applied: place, changes }
        });
        let taken = taken.collect();
        self.known.putting = Some(place);
        self.say();
        for Put { object, chunks } in self.contents.put(taken, place).unwrap() {
            let Some(replica) = self.replicas.get_mut(&object) else { continue };
            for (number, at, chunk) in chunks {
                replica.file.place(Key::Chunk(number), Some((at, Part::Chunk(chunk))));
            }
            self.kept.insert(object, replica.versions());
        }
        (self.known.applied, self.known.putting) = (place, None);
        self.say();
        self.job(Job::Free(place));
        self.turn();
    }

    /// Something for the small files.
    fn note(&mut self, random: &mut Random) {
        if random.chance(1, 2) {
            self.known.ceiling_asked = self.known.ceiling + 4_096;
            self.say();
            self.store.raise_ceiling(self.known.ceiling_asked).unwrap();
            self.known.ceiling = self.store.epoch_ceiling();
        } else {
            self.known.peers_asked = self.known.peers + 1;
            self.say();
            let start = StartId { incarnation: Incarnation(1), nonce: 7 };
            self.store.admit_peer(peer(self.known.peers), Met { store: StoreId([9; 16]), start }).unwrap();
            self.known.peers += 1;
        }
        self.say();
    }

    fn draw(&self, random: &mut Random) -> FileRecord {
        let is_tree = random.chance(1, 4);
        let low = if is_tree { OBJECTS + random.below(TREES) } else { random.below(OBJECTS) };
        let object = ObjectId::new(0, low);
        let replica = self.replicas.get(&object).cloned().unwrap_or_default();
        if random.chance(1, 30) && self.replicas.contains_key(&object) {
            return FileRecord { object, record: Record::Buried(None) };
        }
        let change = if is_tree { draw_tree_change(&replica.file, random) } else { draw_change(random) };
        // A node leads some of the files; the others are led elsewhere.
        let node = NodeId(1 + u32::from(low.is_multiple_of(2)));
        let seq = replica.next();
        let at = Position { epoch: Epoch { number: 1, node }, seq: Seq(seq) };
        let request = Request { client: ClientId { certificate: 1, program: 1 }, number: seq, settled: 1 };
        let time = WallTime::ZERO + Span::from_micros(self.known.handed);
        let body = Body::Op { request, op: Op { time, under: None, change } };
        let entries = vec![Entry { at, lease: 0, body }];
        let record = Record::Appended { after: Seq(seq - 1), entries, committed: Seq(0) };
        FileRecord { object, record }
    }
}

/// The peers that are admitted, in this order.
pub(crate) const fn peer(number: u32) -> NodeId {
    NodeId(10 + number)
}

fn draw_change(random: &mut Random) -> Change {
    let chunk = random.below(5) * CHUNK;
    let within = chunk + random.below(CHUNK);
    let mut data = |length: u64| bytes(length, random);
    match data(1)[0] % 32 {
        0..12 => Change::Write { offset: within, data: data(1 + within % 200).into() },
        12..18 => Change::Write { offset: within, data: data(1_000 + within % 4_000).into() },
        18..23 => Change::Write { offset: chunk, data: data(CHUNK).into() },
        23..25 => Change::Write { offset: chunk, data: data(2 * CHUNK + 100).into() },
        25..27 => Change::Truncate { size: within },
        27..29 => Change::Punch { offset: within, length: 10_000 },
        29 => Change::Remove,
        _ => Change::Begin,
    }
}

/// Something done to a tree, or that makes one.
fn draw_tree_change(file: &File, random: &mut Random) -> Change {
    if file.tree().versions(None, 1).is_empty() {
        let root = Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o755, name: "home".parse().unwrap() };
        return if random.chance(1, 2) { Change::Begin } else { Change::Plant(root) };
    }
    let (dir, holders) = (InodeId::ROOT, Vec::new());
    let mut name = || {
        let letter = b'a' + u8::try_from(random.below(4)).expect("it is a letter");
        // Some rows are long.
        let length = if random.chance(1, 4) { 200 } else { 1 };
        Name::new(&vec![letter; length]).expect("it is one")
    };
    let (one, other) = (name(), name());
    let value = bytes(1 + random.below(6_000), random);
    let make = if random.chance(1, 2) { Make::file() } else { Make::Directory };
    let doomed = file.tree().doomed(1).first().copied();
    let change = match (random.below(20), doomed) {
        (0..7, _) => TreeChange::Create {
            dir,
            name: one,
            make,
            mode: 0o755,
            umask: 0,
            is_exclusive: true,
            lends: false,
        },
        (7..11, _) => TreeChange::Unlink { site: Site::new(dir, one), holders, removed: None },
        (11..13, _) => TreeChange::RemoveDirectory { site: Site::new(dir, one), holders },
        (13..15, _) => {
            let (from, to) = (Site::new(dir, one), Site::new(dir, other));
            TreeChange::Rename { from, to, how: RenameHow::Replace, holders }
        }
        (15..19, Some(inode)) => TreeChange::Deleted { inode },
        (19, _) => return Change::Remove,
        _ => {
            let name = XattrName::new(b"user.a").expect("it is one");
            TreeChange::SetXattr { inode: dir, name, value, how: XattrHow::Any }
        }
    };
    Change::Tree(Arc::new(TreeOp::wanted(Who::root(), change)))
}

fn bytes(length: u64, random: &mut Random) -> Bytes {
    let words = (0..length.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(usize::try_from(length).unwrap()).collect()
}
