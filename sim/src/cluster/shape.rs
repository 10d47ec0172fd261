//! What users do to files, in the offsets of a small model and in those of the real file.
//!
//! A *dense* file is used from its beginning on, as it is. A *wide* one has many chunks, of each of which only a short row
//! is used: so its state has many parts, and the model stays small. A row's last byte is never written, and nothing is
//! appended, so that a size in the one means exactly one in the other. Of a *bulky* one each byte of the model is many, all
//! alike: so its writes are large.

use base::Random;
use bytes::Bytes;
use node::file::{
    Answer, CHUNK_BYTES, Change, Data, Done, File, FileError, Query, READ_BYTES_MAX, WRITE_BYTES_MAX,
};
use replication::Machine;

use crate::check::file::{Content, FileOp, FileOutcome};

/// How much of a dense file is used.
const DENSE: usize = 160;
/// How much of a wide file's chunk is used, and of how many.
const ROW: usize = 32;
const ROWS: usize = 4;
/// No write is longer.
const DATA_MAX: usize = 24;
/// As many bytes of a bulky file are one of the model.
const UNIT: usize = 16 << 10;
/// So many are read at a time.
const UNITS_READ: usize = 64;

const _: () =
    assert!((DATA_MAX * UNIT) as u64 <= WRITE_BYTES_MAX && (UNITS_READ * UNIT) as u64 <= READ_BYTES_MAX);

/// How a file is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Dense,
    Wide,
    Bulky,
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
            (0..22, Self::Dense | Self::Bulky) => {
                FileOp::Append { data: data(number, 1 + random.index(DATA_MAX)) }
            }
            (0..45, _) => self.draw_write(number, random),
            (45..52, _) => FileOp::Truncate { size: random.index(self.size() + 1) },
            (52..60, _) => {
                let offset = random.index(self.size());
                FileOp::Punch { offset, length: 1 + random.index(self.size() - offset) }
            }
            (60..90, Self::Dense | Self::Bulky) => {
                let offset = random.index(DENSE) / 2;
                FileOp::Read { offset, length: 1 + random.index(2 * DENSE).min(self.read_max() - 1) }
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
            Self::Dense | Self::Bulky => {
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
        FileOp::Read { offset: 0, length: self.read_max() }
    }

    /// No question asks for more.
    const fn read_max(self) -> usize {
        match self {
            Self::Dense => 64 * DENSE,
            Self::Wide => ROW,
            Self::Bulky => UNITS_READ,
        }
    }

    /// How many bytes are one of the model.
    const fn unit(self) -> usize {
        match self {
            Self::Dense | Self::Wide => 1,
            Self::Bulky => UNIT,
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::Dense | Self::Bulky => DENSE,
            Self::Wide => ROW * ROWS,
        }
    }

    /// The same in the real file.
    pub(super) fn to_real(self, op: &FileOp) -> Wanted {
        match *op {
            FileOp::Write { offset, ref data } => {
                Wanted::Change(Change::Write { offset: self.real(offset), data: self.bytes(data).into() })
            }
            FileOp::Append { ref data } => Wanted::Change(Change::Append { data: self.bytes(data).into() }),
            FileOp::Truncate { size } => Wanted::Change(Change::Truncate { size: self.real(size) }),
            FileOp::Punch { offset, length } => {
                let (start, end) = (self.real(offset), self.real(offset + length));
                Wanted::Change(Change::Punch { offset: start, length: end - start })
            }
            FileOp::Read { offset, length } => Wanted::Ask(Query::Read {
                offset: self.real(offset),
                length: (length * self.unit()) as u64,
                under: None,
            }),
            FileOp::Stat => Wanted::Ask(Query::Stat),
            FileOp::Remove => Wanted::Change(Change::Remove),
            FileOp::Begin | FileOp::Nothing => Wanted::Change(Change::Begin),
        }
    }

    /// Where and what is written, if anything is: at the end if nowhere else.
    pub(super) fn to_bytes(self, op: &FileOp) -> Option<(Option<u64>, Bytes)> {
        match op {
            FileOp::Write { offset, data } => Some((Some(self.real(*offset)), self.bytes(data))),
            FileOp::Append { data } => Some((None, self.bytes(data))),
            _ => None,
        }
    }

    /// What was read, in the model.
    pub(super) fn read(self, data: &Bytes) -> FileOutcome {
        self.units(data).map_or(FileOutcome::Size(usize::MAX), FileOutcome::Data)
    }

    /// What came of a change, in the model.
    pub(super) fn changed(self, op: &FileOp, outcome: &Result<Done, FileError>) -> FileOutcome {
        match (op, outcome) {
            (_, Err(error)) => refusal(*error),
            (FileOp::Append { .. }, Ok(Done::Written { offset, .. })) => {
                FileOutcome::Appended(self.model(*offset))
            }
            _ => FileOutcome::Done,
        }
    }

    /// What was answered, in the model.
    pub(super) fn answered(self, answer: &Result<Answer, FileError>) -> FileOutcome {
        match answer {
            Err(error) => refusal(*error),
            Ok(Answer::Data(data)) => {
                // What nothing of the model can be is not taken for something that can.
                self.data(data).map_or(FileOutcome::Size(usize::MAX), FileOutcome::Data)
            }
            Ok(Answer::Stat(stat)) => FileOutcome::Size(self.model(stat.size)),
            // Nor is a tree, which no file here has.
            Ok(Answer::Extent(_) | Answer::Tree(_)) => FileOutcome::Size(usize::MAX),
        }
    }

    /// What the model holds if the file is like this.
    pub(super) fn content(self, file: &File) -> Content {
        let size = self.model(file.stat().size);
        let mut bytes = vec![0; size];
        for offset in (0..size).step_by(self.read_max()) {
            let length = self.read_max().min(size - offset) * self.unit();
            let query = Query::Read { offset: self.real(offset), length: length as u64, under: None };
            if let Ok(Answer::Data(data)) = file.answer(&query)
                && let Some(data) = self.data(&data)
            {
                bytes[offset..offset + data.len()].copy_from_slice(&data);
            }
        }
        let is_removed = matches!(file.answer(&Query::Stat), Err(FileError::Removed));
        Content { bytes, is_removed }
    }

    /// The same data in the real file.
    fn bytes(self, data: &[u8]) -> Bytes {
        data.iter().flat_map(|&byte| std::iter::repeat_n(byte, self.unit())).collect()
    }

    /// The same data in the model, if it is something there.
    fn data(self, data: &Data) -> Option<Vec<u8>> {
        self.units(&data.to_bytes()?)
    }

    fn units(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let units = bytes.chunks(self.unit());
        let one = |unit: &[u8]| {
            let is_one = unit.len() == self.unit() && unit.iter().all(|byte| *byte == unit[0]);
            is_one.then_some(unit[0])
        };
        units.map(one).collect()
    }

    const fn real(self, offset: usize) -> u64 {
        match self {
            Self::Dense | Self::Bulky => (offset * self.unit()) as u64,
            Self::Wide => (offset / ROW) as u64 * CHUNK_BYTES + (offset % ROW) as u64,
        }
    }

    /// An offset that nothing of the model can be at is not taken for one that is.
    pub(super) fn model(self, offset: u64) -> usize {
        let place = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        match self {
            Self::Dense => place(offset),
            Self::Bulky if offset.is_multiple_of(UNIT as u64) => place(offset / UNIT as u64),
            Self::Wide if offset % CHUNK_BYTES < ROW as u64 => {
                place(offset / CHUNK_BYTES) * ROW + place(offset % CHUNK_BYTES)
            }
            Self::Wide | Self::Bulky => usize::MAX,
        }
    }
}

const fn refusal(error: FileError) -> FileOutcome {
    match error {
        FileError::Removed => FileOutcome::Removed,
        FileError::NoSpace => FileOutcome::NoSpace,
        _ => FileOutcome::Refused,
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
        for shape in [Shape::Dense, Shape::Wide, Shape::Bulky] {
            let (mut file, mut random) = (File::default(), Random::new(5));
            let mut content = Content::default();
            for number in 1..2_000 {
                let op = match random.below(40) {
                    0 => FileOp::Remove,
                    1..5 => FileOp::Begin,
                    _ => shape.draw(number, &mut random),
                };
                let at = Position { epoch: Epoch { number, node: NodeId(1) }, seq: Seq(number) };
                let outcome = match shape.to_real(&op) {
                    Wanted::Change(change) => {
                        shape.changed(&op, &file.apply(at, &Op { time: WallTime::ZERO, under: None, change }))
                    }
                    Wanted::Ask(query) => shape.answered(&file.answer(&query)),
                };
                let after = FileModel { size_max: 1 << 20 }.step(&content, &op, Some(&outcome));
                content = after.unwrap_or_else(|| panic!("{op:?} gave {outcome:?} with {content:?}"));
                assert_eq!(shape.content(&file), content, "after {op:?}");
            }
        }
    }
}
