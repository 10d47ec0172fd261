//! Whether what a start finds is what the store has said.

use std::collections::BTreeSet;

use base::ObjectId;
use node::KeptFile;
use node::file::{Chunk, Key, Piece};
use osd::store::check::{Severity, check};
use osd::store::contents::Contents;
use replication::Machine;

use crate::workload::{Found, History, How, Known, OWNER, Process, Replica, Replicas, data, peer, take};

const CHUNK_BYTES: usize = 64 << 10;

/// Opens a store after a power cut, and compares. The memo is empty.
pub(crate) fn open(
    how: How<'_>,
    known: &Known,
    history: &History,
) -> Result<(Process<'static>, Found), String> {
    let (process, found) = Process::open(how, known.clone(), |_| {})?;
    small_files(&process, known)?;
    files(&process.contents, &found, known, history)?;
    let has_run = !known.starts.is_empty();
    if has_run && !found.forgot {
        return Err("it has not noticed that the power was cut".into());
    }
    Ok((process, found))
}

/// The offline check finds nothing wrong.
pub(crate) fn look(how: How<'_>) -> Result<(), String> {
    let report =
        check(&data(how.folder), how.memo, Some(OWNER), &mut |_| {}).map_err(|error| error.to_string())?;
    let is_sound = report.worst().is_none_or(|worst| worst < Severity::Damage);
    if is_sound { Ok(()) } else { Err(format!("the check finds {:?}", report.findings)) }
}

fn small_files(process: &Process<'_>, known: &Known) -> Result<(), String> {
    let store = &process.store;
    if !store.chain().nonces().starts_with(&known.starts) {
        return Err(format!("{:?} are not behind {:?}", store.chain().nonces(), known.starts));
    }
    let ceiling = store.epoch_ceiling();
    if ceiling != known.ceiling && ceiling != known.ceiling_asked {
        return Err(format!("a ceiling of {ceiling}, after {} and {}", known.ceiling, known.ceiling_asked));
    }
    let there = (0..).take_while(|number| store.peer(peer(*number)).is_some()).count();
    let wanted = [known.peers, known.peers_asked];
    if wanted.iter().all(|wanted| *wanted as usize != there) {
        return Err(format!("{there} peers, after {wanted:?}"));
    }
    Ok(())
}

/// All files are as they were after some record, which is none before the last durable one.
pub(crate) fn files(
    contents: &Contents,
    found: &Found,
    known: &Known,
    history: &History,
) -> Result<(), String> {
    let (applied, last) = (contents.applied(), found.last);
    if last < known.durable || last > known.handed {
        return Err(format!("{last} records, after {} were durable of {}", known.durable, known.handed));
    }
    if applied != known.applied && Some(applied) != known.putting {
        return Err(format!("a checkpoint of {applied}, after {} and {:?}", known.applied, known.putting));
    }
    if !found.damaged.is_empty() {
        return Err(format!("{:?} cannot be read", found.damaged));
    }
    let (indexed, behind) = history.0[..index(last)].split_at(index(applied));
    let mut wanted = Replicas::new();
    indexed.iter().for_each(|record| take(&mut wanted, record));
    let objects: BTreeSet<&ObjectId> =
        found.kept.keys().chain(wanted.keys()).chain(behind.iter().map(|record| &record.object)).collect();
    for object in objects {
        let none = || KeptFile { checkpoint: None, records: Vec::new() };
        let kept = found.kept.get(object).cloned().unwrap_or_else(none);
        let records = behind.iter().filter(|record| record.object == *object);
        if !records.map(|record| &record.record).eq(&kept.records) {
            return Err(format!("other records of {object:?} behind {applied} up to {last}"));
        }
        let wrong = |what| format!("{object:?} in the checkpoint of {applied}: {what}");
        match (kept.checkpoint, wanted.get(object)) {
            (None, None) => {}
            (Some(checkpoint), Some(wanted)) => {
                let (head, file) = checkpoint.into_parts();
                let found = Replica { file, at: head.rest.at, entries: head.entries };
                same(contents, &found, wanted).map_err(wrong)?;
            }
            (None, Some(_)) => return Err(wrong("it is missing".into())),
            (Some(_), None) => return Err(wrong("it should be gone".into())),
        }
    }
    Ok(())
}

fn same(contents: &Contents, found: &Replica, wanted: &Replica) -> Result<(), String> {
    if (found.at, &found.entries) != (wanted.at, &wanted.entries) {
        return Err(format!("another log at {:?}", found.at));
    }
    if found.file.attributes() != wanted.file.attributes() {
        return Err("other attributes".into());
    }
    let versions = wanted.file.versions(None, usize::MAX);
    if found.file.versions(None, usize::MAX) != versions {
        return Err("other parts".into());
    }
    if found.file.tree() != wanted.file.tree() {
        return Err("another tree".into());
    }
    for (key, _) in versions {
        let Key::Chunk(number) = key else { continue };
        let chunks = found.file.chunk(number).zip(wanted.file.chunk(number));
        let ((_, found), (_, wanted)) = chunks.ok_or("a chunk is missing")?;
        let is_same =
            found.blocks() == wanted.blocks() && content(contents, found)? == content(contents, wanted)?;
        if !is_same {
            return Err(format!("chunk {number} is not what was written"));
        }
    }
    Ok(())
}

/// A chunk's content, wherever it is.
fn content(contents: &Contents, chunk: &Chunk) -> Result<Vec<u8>, String> {
    let mut content = vec![0; CHUNK_BYTES];
    for (at, piece) in chunk.pieces() {
        let bytes = match piece {
            Piece::Held(bytes) => bytes.clone(),
            Piece::Stored(stored) => contents.read_one(stored).map_err(|error| error.to_string())?,
        };
        content[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(content)
}

fn index(place: u64) -> usize {
    usize::try_from(place).expect("history is short")
}
