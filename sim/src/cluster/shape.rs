//! What users do to files, in the offsets of a small model and in those of the real file.
//!
//! A *dense* file is used from its beginning on, as it is. A *wide* one has many chunks, of each of which only a short row
//! is used: so its state has many parts, and the model stays small. A row's last byte is never written, and nothing is
//! appended, so that a size in the one means exactly one in the other.

use base::Random;
use bytes::Bytes;
use node::file::{Answer, CHUNK_BYTES, Change, Done, File, Query};
use replication::Machine;

use crate::check::file::{FileOp, FileOutcome};

/// How much of a dense file is used.
const DENSE: usize = 160;
/// How much of a wide file's chunk is used, and of how many.
const ROW: usize = 32;
const ROWS: usize = 4;
/// No write is longer.
const DATA_MAX: usize = 24;

/// How a file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Dense,
    Wide,
}

/// What a user wants of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Change(Change),
    Ask(Query),
}

impl Shape {
    /// Something to do; its data is unlike that of any other `number`.
    pub(super) fn draw(self, number: u64, random: &mut Random) -> FileOp {
        match (random.below(100), self) {
            (0..22, Self::Dense) => FileOp::Append { data: data(number, 1 + random.index(DATA_MAX)) },
            (0..45, _) => self.draw_write(number, random),
            (45..52, _) => FileOp::Truncate { size: random.index(self.size() + 1) },
            (52..60, _) => {
                let offset = random.index(self.size());
                FileOp::Punch { offset, length: 1 + random.index(self.size() - offset) }
            }
            (60..90, Self::Dense) => {
                let offset = random.index(DENSE) / 2;
                FileOp::Read { offset, length: 1 + random.index(2 * DENSE) }
            }
            (60..90, Self::Wide) => {
                let within = random.index(ROW / 4);
                let offset = random.index(ROWS) * ROW + within;
                FileOp::Read { offset, length: 1 + random.index(ROW - within) }
            }
            _ => FileOp::Stat,
        }
    }

    /// A write, unlike that of any other `number`.
    pub(super) fn draw_write(self, number: u64, random: &mut Random) -> FileOp {
        match self {
            Self::Dense => {
                let offset = random.index(DENSE - DATA_MAX);
                FileOp::Write { offset, data: data(number, 1 + random.index(DATA_MAX)) }
            }
            Self::Wide => {
                let within = random.index(ROW - 1);
                let data = data(number, 1 + random.index(DATA_MAX.min(ROW - 1 - within)));
                FileOp::Write { offset: random.index(ROWS) * ROW + within, data }
            }
        }
    }

    /// All there is, as far as one question reaches.
    pub(super) const fn read_all(self) -> FileOp {
        let length = match self {
            Self::Dense => 64 * DENSE,
            Self::Wide => ROW,
        };
        FileOp::Read { offset: 0, length }
    }

    const fn size(self) -> usize {
        match self {
            Self::Dense => DENSE,
            Self::Wide => ROW * ROWS,
        }
    }

    /// The same in the real file.
    pub(super) fn to_real(self, op: &FileOp) -> Wanted {
        match *op {
            FileOp::Write { offset, ref data } => {
                let data = Bytes::copy_from_slice(data);
                Wanted::Change(Change::Write { offset: self.real(offset), data: data.into() })
            }
            FileOp::Append { ref data } => {
                Wanted::Change(Change::Append { data: Bytes::copy_from_slice(data).into() })
            }
            FileOp::Truncate { size } => Wanted::Change(Change::Truncate { size: self.real(size) }),
            FileOp::Punch { offset, length } => {
                let (start, end) = (self.real(offset), self.real(offset + length));
                Wanted::Change(Change::Punch { offset: start, length: end - start })
            }
            FileOp::Read { offset, length } => {
                Wanted::Ask(Query::Read { offset: self.real(offset), length: length as u64 })
            }
            FileOp::Stat => Wanted::Ask(Query::Stat),
        }
    }

    /// What came of a change, in the model.
    pub(super) fn changed(self, op: &FileOp, done: &Done) -> FileOutcome {
        match (op, done) {
            (FileOp::Append { .. }, Done::Written { offset, .. }) => {
                FileOutcome::Appended(self.model(*offset))
            }
            _ => FileOutcome::Done,
        }
    }

    /// What was answered, in the model.
    pub(super) fn answered(self, answer: &Answer) -> FileOutcome {
        match answer {
            Answer::Data(data) => FileOutcome::Data(data.to_bytes().expect("it was fetched").to_vec()),
            Answer::Stat(stat) => FileOutcome::Size(self.model(stat.size)),
        }
    }

    /// What the model holds if the file is like this.
    pub(super) fn content(self, file: &File) -> Vec<u8> {
        let size = self.model(file.stat().size);
        let mut content = vec![0; size];
        let width = if self == Self::Wide { ROW } else { size.max(1) };
        for offset in (0..size).step_by(width) {
            let query = Query::Read { offset: self.real(offset), length: width.min(size - offset) as u64 };
            if let Ok(Answer::Data(data)) = file.answer(&query)
                && let Some(data) = data.to_bytes()
            {
                content[offset..offset + data.len()].copy_from_slice(&data);
            }
        }
        content
    }

    const fn real(self, offset: usize) -> u64 {
        match self {
            Self::Dense => offset as u64,
            Self::Wide => (offset / ROW) as u64 * CHUNK_BYTES + (offset % ROW) as u64,
        }
    }

    /// An offset that nothing of the model can be at is not taken for one that is.
    fn model(self, offset: u64) -> usize {
        let place = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        match self {
            Self::Dense => place(offset),
            Self::Wide if offset % CHUNK_BYTES < ROW as u64 => {
                place(offset / CHUNK_BYTES) * ROW + place(offset % CHUNK_BYTES)
            }
            Self::Wide => usize::MAX,
        }
    }
}

/// Two bytes that say which number, again and again.
fn data(number: u64, length: usize) -> Vec<u8> {
    let [low, high, ..] = number.to_le_bytes();
    [low, high | 0x80].into_iter().cycle().take(length).collect()
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, Seq, WallTime};
    use node::file::Op;
    use replication::Position;

    use super::*;
    use crate::check::Specification;
    use crate::check::file::FileModel;

    /// What is done to the real file and to the model comes to the same.
    #[test]
    fn the_model_is_like_the_file() {
        for shape in [Shape::Dense, Shape::Wide] {
            let (mut file, mut random) = (File::default(), Random::new(5));
            let mut content = Vec::new();
            for number in 1..2_000 {
                let op = shape.draw(number, &mut random);
                let at = Position { epoch: Epoch { number, node: NodeId(1) }, seq: Seq(number) };
                let outcome = match shape.to_real(&op) {
                    Wanted::Change(change) => {
                        let done = file.apply(at, &Op { time: WallTime::ZERO, change }).unwrap();
                        shape.changed(&op, &done)
                    }
                    Wanted::Ask(query) => shape.answered(&file.answer(&query).unwrap()),
                };
                let after = FileModel { size_max: 1 << 20 }.step(&content, &op, Some(&outcome));
                content = after.unwrap_or_else(|| panic!("{op:?} gave {outcome:?} with {content:?}"));
                assert_eq!(shape.content(&file), content, "after {op:?}");
            }
        }
    }
}
