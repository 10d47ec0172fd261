//! What a disk does to the production store: bytes that change by themselves, and rows of the index.

use base::{ObjectId, Random};
use lease::Algorithm;
use node::StoreFound;
use node::file::{File, Key, Position, Stored};
use osd::store::index::{Change, Engine};
use osd::store::journal::Search;
use replication::{Machine, Replica};
use wire::encode_name_key;

use super::medium::Medium;
use super::{RealDisk, place_of};
use crate::Violation;
use crate::cluster::machine::DaemonMachine;
use crate::cluster::world::World;

/// So many places of the journal are tried.
const TRIES: usize = 12;
/// What a byte of a row is changed by.
const FLIP: u8 = 0x10;

impl<A: Algorithm> World<'_, A> {
    /// Something on a disk changes by itself that its store has to notice at the next start. False if nothing was found.
    pub(in crate::cluster) fn damage_really(&mut self, daemon: usize) -> bool {
        let Some(files) = &self.daemons[daemon].files else { return false };
        let applied = files.contents.applied();
        let Some(disk) = &mut self.daemons[daemon].directory.real else { return false };
        if self.dice.disks.chance(1, 3) {
            return disk.damage_journal(applied, &mut self.dice.disks);
        }
        let Some(&object) = self.dice.disks.pick(&self.files) else { return false };
        // What another node got back may not be on its disk yet.
        let others = self.daemons.iter().enumerate().filter(|&(other, _)| other != daemon);
        if others.into_iter().any(|(_, other)| other.damaged_files.contains(&object)) {
            return false;
        }
        self.crash_some_daemon(daemon);
        let is_spoilt = self.spoil(daemon, &key_of(b'h', object));
        if is_spoilt {
            self.daemons[daemon].damaged_files.insert(object);
        }
        is_spoilt
    }

    /// Parts of a file cannot be read at the next start. False if none of them is in the index.
    pub(in crate::cluster) fn rot_rows(&mut self, daemon: usize, object: ObjectId, keys: &[Key]) -> bool {
        let mut has_rotten = false;
        for key in keys {
            let row = match key {
                Key::Chunk(number) => [key_of(b'c', object), number.to_be_bytes().to_vec()].concat(),
                Key::Tree(name) => [key_of(b'n', object), encode_name_key(name)].concat(),
                Key::Attributes => continue,
            };
            has_rotten |= self.spoil(daemon, &row);
        }
        has_rotten
    }

    fn spoil(&mut self, daemon: usize, key: &[u8]) -> bool {
        let Some(disk) = &mut self.daemons[daemon].directory.real else { return false };
        let is_spoilt = disk.spoil(key).unwrap_or(false);
        disk.has_rotten_rows |= is_spoilt;
        is_spoilt
    }

    /// Content of these parts changes on the disk, and is read. Returns those that are not on the disk by themselves.
    pub(in crate::cluster) fn rot_content(
        &mut self,
        daemon: usize,
        object: ObjectId,
        parts: Vec<(Key, Position)>,
    ) -> Result<Vec<(Key, Position)>, Violation> {
        let mut others = Vec::new();
        for (key, at) in parts {
            let stored = self.stored_of(daemon, object, &key);
            let machine = &mut self.daemons[daemon];
            let (Some(disk), Some(files)) = (&machine.directory.real, &machine.files) else { continue };
            let Some(stored) = stored.filter(|stored| disk.rot_stretch(stored, &mut self.dice.disks)) else {
                others.push((key, at));
                continue;
            };
            let stored = [stored];
            let read = files.contents.read(&stored);
            self.check_read(daemon, &stored, &read)?;
            if let Err(unreadable) = read {
                self.call(daemon, |shard, _| shard.handle_unreadable(object, unreadable))?;
            }
        }
        Ok(others)
    }

    /// Somebody reads all that daemons have of a file on their disks: what has rotted unnoticed is noticed.
    pub(in crate::cluster) fn notice_rot(&mut self, object: ObjectId) -> Result<(), Violation> {
        for daemon in 0..self.daemons.len() {
            let machine = &self.daemons[daemon];
            let replica = machine.shard.as_ref().and_then(|shard| shard.file(object));
            let Some(replica) = replica.filter(|replica| machine.has_rotten_content(replica)) else {
                continue;
            };
            let stored: Vec<Stored> = stored_in(replica.machine()).cloned().collect();
            for stored in stored {
                let Some(files) = &self.daemons[daemon].files else { continue };
                if let Err(unreadable) = files.contents.read(&[stored]) {
                    self.call(daemon, |shard, _| shard.handle_unreadable(object, unreadable))?;
                }
            }
        }
        Ok(())
    }

    /// Where a part is on the disk.
    fn stored_of(&self, daemon: usize, object: ObjectId, key: &Key) -> Option<Stored> {
        let Key::Chunk(number) = *key else { return None };
        let replica = self.daemons[daemon].shard.as_ref()?.file(object)?;
        let (_, chunk) = replica.machine().chunk(number)?;
        chunk.stored().next().cloned()
    }

    /// Content of a replica as it is on its disk.
    pub(in crate::cluster) fn read_all(
        &self,
        node: base::NodeId,
        stored: &[Stored],
    ) -> Option<Vec<bytes::Bytes>> {
        self.daemons[node.0 as usize].files.as_ref()?.contents.read(stored).ok()
    }
}

impl<A: Algorithm> DaemonMachine<A> {
    /// Whether content of a replica has rotted on its disk, noticed or not: a process may end before it has noted what it found.
    pub(in crate::cluster) fn has_rotten_content(&self, replica: &Replica<File>) -> bool {
        let Some(disk) = &self.directory.real else { return false };
        stored_in(replica.machine()).any(|stored| {
            let (from, length) = place_of(stored.place.words());
            disk.medium.is_rotten("content", from, from + length)
        })
    }
}

/// What of a file is on the disk alone.
fn stored_in(file: &File) -> impl Iterator<Item = &Stored> {
    let chunks = file.versions(None, usize::MAX).into_iter().filter_map(|(key, _)| match key {
        Key::Chunk(number) => file.chunk(number),
        Key::Attributes | Key::Tree(_) => None,
    });
    chunks.flat_map(|(_, chunk)| chunk.stored())
}

fn key_of(kind: u8, object: ObjectId) -> Vec<u8> {
    [vec![kind], object.high.to_be_bytes().to_vec(), object.low.to_be_bytes().to_vec()].concat()
}

impl RealDisk {
    /// A row of the index is not what it was, or is so again. False if nothing can be read there anyhow. No process runs.
    fn spoil(&self, key: &[u8]) -> Option<bool> {
        let handle = self.medium.begin();
        let index = Engine::Redb.open(&handle, std::path::Path::new("")).ok()?;
        let mut row = index.get(key).ok()?.unwrap_or_default();
        let middle = row.len() / 2;
        let byte = row.get_mut(middle);
        let is_there = byte.is_some();
        if let Some(byte) = byte {
            *byte ^= FLIP;
            index.commit(&[Change::Put(key.to_vec(), row)]).ok()?;
        }
        drop(index);
        self.medium.end();
        Some(is_there)
    }

    /// A byte of the journal changes of which something on the disk says that it was durable.
    fn damage_journal(&self, applied: u64, random: &mut Random) -> bool {
        let files = self.medium.lengths();
        let segments: Vec<_> = files.into_iter().filter(|(name, _)| name.starts_with("journal-")).collect();
        for _ in 0..TRIES {
            let Some((name, length)) = random.pick(&segments) else { return false };
            // Most segments have their batches near the beginning.
            let reach = (*length).min(1 << (6 + random.index(13)));
            let at = random.index(reach);
            let copy = self.medium.clone();
            if copy.rot(name, at) && self.is_noticed(&copy, applied) {
                return self.medium.rot(name, at);
            }
        }
        false
    }

    /// Whether a start gives the store up, whatever else becomes of the disk.
    fn is_noticed(&self, copy: &Medium, applied: u64) -> bool {
        copy.lose_all();
        let Ok(search) = Search::of(&copy.begin(), (self.store, applied), |_| Ok(true)) else { return false };
        let found =
            StoreFound { memo: None, is_failed: false, journal: search.found(), ceiling: 0, forgot_at: None };
        found.open(node::Rules::default()).is_err()
    }

    /// A byte of a stretch of content changes. False if it is not on the disk yet.
    fn rot_stretch(&self, stored: &Stored, random: &mut Random) -> bool {
        let from = place_of(stored.place.words()).0 + stored.from as usize;
        self.medium.rot("content", from + random.index(stored.len as usize))
    }
}

/// Whether a file has the same content as another, wherever it is.
pub(in crate::cluster) fn has_same_content(
    file: &File,
    other: &File,
    read: impl Fn(&[Stored]) -> Option<Vec<bytes::Bytes>>,
) -> bool {
    let of = |file: &File| -> Option<Vec<_>> {
        let keys = file.versions(None, usize::MAX).into_iter();
        let chunks = keys.filter_map(|(key, at)| match key {
            Key::Chunk(number) => Some((number, at)),
            Key::Attributes | Key::Tree(_) => None,
        });
        chunks.map(|(number, at)| Some((number, at, bytes_of(file, number, &read)?))).collect()
    };
    file.attributes() == other.attributes()
        && file.tree() == other.tree()
        && of(file).is_some_and(|of_file| Some(of_file) == of(other))
}

/// The blocks of a chunk, and all its bytes up to the last that is not zero.
fn bytes_of(
    file: &File,
    number: u64,
    read: impl Fn(&[Stored]) -> Option<Vec<bytes::Bytes>>,
) -> Option<(u16, Vec<u8>)> {
    let Some((_, chunk)) = file.chunk(number) else { return Some((0, Vec::new())) };
    let mut chunk = chunk.clone();
    let stored: Vec<Stored> = chunk.stored().cloned().collect();
    chunk.fetched(&mut read(&stored)?.into_iter());
    let mut all = Vec::new();
    for (start, piece) in chunk.pieces() {
        if let node::file::Piece::Held(bytes) = piece {
            all.resize(start as usize, 0);
            all.extend_from_slice(bytes);
        }
    }
    while all.last() == Some(&0) {
        all.pop();
    }
    Some((chunk.blocks(), all))
}
