//! A file as its users see it, as simple as can be: a row of bytes.
//!
//! Written for the checker alone, so that it shares no mistake with what is checked. It is meant for small files: every
//! state that a search remembers holds all bytes. Times are not modelled.

use std::fmt::Write as _;

use super::Specification;

/// What a file holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Content {
    /// Its bytes: none if it was removed.
    pub bytes: Vec<u8>,
    /// Whether it was removed, and was not begun anew.
    pub is_removed: bool,
}

/// Files of at most so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileModel {
    /// What would make the file longer is refused.
    pub size_max: usize,
}

/// No file of a cluster that is simulated is longer.
impl Default for FileModel {
    fn default() -> Self {
        Self { size_max: 1 << 20 }
    }
}

/// What can be done to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOp {
    /// Puts data at an offset.
    Write {
        /// Where.
        offset: usize,
        /// What.
        data: Vec<u8>,
    },
    /// Puts data at the end.
    Append {
        /// What.
        data: Vec<u8>,
    },
    /// Sets the size.
    Truncate {
        /// To this.
        size: usize,
    },
    /// Makes zeros of what there is.
    Punch {
        /// Where.
        offset: usize,
        /// How many.
        length: usize,
    },
    /// Asks for what stands there.
    Read {
        /// Where.
        offset: usize,
        /// How much.
        length: usize,
    },
    /// Asks for the size.
    Stat,
    /// Takes the file away with what it holds.
    Remove,
    /// Begins it anew, empty, if it was removed.
    Begin,
    /// Does nothing, and can always be done.
    Nothing,
}

/// What can come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOutcome {
    /// It is done; if it is an append, who did it does not know where.
    Done,
    /// The data was appended behind so many bytes.
    Appended(usize),
    /// This was read.
    Data(Vec<u8>),
    /// This is the size.
    Size(usize),
    /// The file would become too long.
    Refused,
    /// The file was removed.
    Removed,
    /// The disks were full. Nothing has changed.
    NoSpace,
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), is_removed: false }
    }
}

impl Specification for FileModel {
    type State = Content;
    type Op = FileOp;
    type Outcome = FileOutcome;

    fn start(&self) -> Content {
        Content::default()
    }

    fn step(&self, before: &Content, op: &FileOp, outcome: Option<&FileOutcome>) -> Option<Content> {
        if outcome == Some(&FileOutcome::NoSpace) {
            return (!self.is_query(op) && !before.is_removed).then(|| before.clone());
        }
        let (after, expected) = self.run(before, op);
        let is_placed = matches!(expected, FileOutcome::Appended(_));
        let fits = |outcome: &FileOutcome| *outcome == expected || is_placed && *outcome == FileOutcome::Done;
        let is_right = outcome.is_none_or(fits);
        is_right.then(|| after.unwrap_or_else(|| before.clone()))
    }

    fn describe(&self, op: &FileOp, outcome: Option<&FileOutcome>) -> String {
        let mut line = match op {
            FileOp::Write { offset, data } => {
                format!("write {offset}..{} {}", offset + data.len(), shown(data))
            }
            FileOp::Append { data } => format!("append {}", shown(data)),
            FileOp::Truncate { size } => format!("truncate to {size}"),
            FileOp::Punch { offset, length } => format!("punch {offset}..{}", offset.saturating_add(*length)),
            FileOp::Read { offset, length } => format!("read {offset}..{}", offset.saturating_add(*length)),
            FileOp::Stat => "stat".to_owned(),
            FileOp::Remove => "remove".to_owned(),
            FileOp::Begin => "begin".to_owned(),
            FileOp::Nothing => "nothing".to_owned(),
        };
        let _ = match outcome {
            None | Some(FileOutcome::Done) => Ok(()),
            Some(FileOutcome::Appended(offset)) => write!(line, " at {offset}"),
            Some(FileOutcome::Data(data)) => write!(line, " = {}", shown(data)),
            Some(FileOutcome::Size(size)) => write!(line, " = {size} bytes"),
            Some(FileOutcome::Refused) => write!(line, ": refused"),
            Some(FileOutcome::Removed) => write!(line, ": the file was removed"),
            Some(FileOutcome::NoSpace) => write!(line, ": no space"),
        };
        line
    }

    fn is_query(&self, op: &FileOp) -> bool {
        matches!(op, FileOp::Read { .. } | FileOp::Stat | FileOp::Nothing)
    }

    fn may_matter(&self, one: &FileOp, other: &FileOp) -> bool {
        may_matter(one, other)
    }

    fn is_hopeless(&self, state: &Content, op: (&FileOp, &FileOutcome), others: &[&FileOp]) -> bool {
        let may_come = |what: &FileOp| others.contains(&what);
        let is_of_any = matches!(op.0, FileOp::Begin | FileOp::Nothing);
        let is_of_removed = op.1 == &FileOutcome::Removed;
        if is_of_removed && !state.is_removed && !may_come(&FileOp::Remove)
            || !is_of_removed && !is_of_any && state.is_removed && !may_come(&FileOp::Begin)
        {
            return true;
        }
        let state = &state.bytes;
        match op {
            (FileOp::Append { .. }, FileOutcome::Appended(size)) | (_, FileOutcome::Size(size)) => {
                !can_be_of_size(state, (*size, *size), others)
            }
            (&FileOp::Read { offset, length }, FileOutcome::Data(data)) => {
                let end = offset.saturating_add(data.len());
                let sizes = match data.len() {
                    0 if length == 0 => return false,
                    0 => (0, offset),
                    len if len < length => (end, end),
                    _ => (end, usize::MAX),
                };
                !can_be_of_size(state, sizes, others) || !can_hold(state, offset, data, others)
            }
            _ => false,
        }
    }
}

impl FileModel {
    /// What `op` makes of `before`, if anything else, and what comes of it.
    fn run(&self, before: &Content, op: &FileOp) -> (Option<Content>, FileOutcome) {
        match op {
            FileOp::Nothing => (None, FileOutcome::Done),
            FileOp::Begin if before.is_removed => (Some(Content::default()), FileOutcome::Done),
            _ if before.is_removed => (None, FileOutcome::Removed),
            FileOp::Begin => (None, FileOutcome::Done),
            FileOp::Remove => (Some(Content { bytes: Vec::new(), is_removed: true }), FileOutcome::Done),
            _ => {
                let (after, outcome) = self.change(&before.bytes, op);
                (after.map(|bytes| Content { bytes, is_removed: false }), outcome)
            }
        }
    }

    /// What `op` makes of a file that holds this, if anything else, and what comes of it.
    fn change(&self, before: &[u8], op: &FileOp) -> (Option<Vec<u8>>, FileOutcome) {
        let size = before.len();
        let put = |offset: usize, data: &[u8], outcome: FileOutcome| {
            let end = offset.saturating_add(data.len());
            if end > self.size_max {
                return (None, FileOutcome::Refused);
            }
            let mut after = before.to_vec();
            if !data.is_empty() {
                after.resize(size.max(end), 0);
                after[offset..end].copy_from_slice(data);
            }
            (Some(after), outcome)
        };
        match *op {
            FileOp::Write { offset, ref data } => put(offset, data, FileOutcome::Done),
            FileOp::Append { ref data } => put(size, data, FileOutcome::Appended(size)),
            FileOp::Truncate { size } if size > self.size_max => (None, FileOutcome::Refused),
            FileOp::Truncate { size } => {
                let mut after = before.to_vec();
                after.resize(size, 0);
                (Some(after), FileOutcome::Done)
            }
            FileOp::Punch { offset, length } if offset.saturating_add(length) > self.size_max => {
                (None, FileOutcome::Refused)
            }
            FileOp::Punch { offset, length } => {
                let mut after = before.to_vec();
                after[offset.min(size)..offset.saturating_add(length).min(size)].fill(0);
                (Some(after), FileOutcome::Done)
            }
            FileOp::Read { offset, length } => {
                let range = offset.min(size)..offset.saturating_add(length).min(size);
                (None, FileOutcome::Data(before[range].to_vec()))
            }
            FileOp::Stat => (None, FileOutcome::Size(size)),
            FileOp::Remove | FileOp::Begin | FileOp::Nothing => (None, FileOutcome::Done),
        }
    }
}

/// Whether the order of the two may matter.
fn may_matter(one: &FileOp, other: &FileOp) -> bool {
    use FileOp::{Append, Begin, Nothing, Punch, Read, Remove, Stat, Truncate, Write};
    let meet = |(a, len): (usize, usize), (b, width): (usize, usize)| {
        a < b.saturating_add(width) && b < a.saturating_add(len)
    };
    match (one, other) {
        (Nothing, _) | (_, Nothing) | (Read { .. } | Stat, Read { .. } | Stat) => false,
        // These keep the size, and one makes zeros of what the other makes zeros of or cuts.
        (Punch { .. }, Punch { .. } | Truncate { .. } | Stat) => false,
        (&Punch { offset, length }, &Read { offset: start, length: width }) => {
            meet((offset, length), (start, width))
        }
        (&Punch { offset, length }, Write { offset: start, data }) => {
            meet((offset, length), (*start, data.len()))
        }
        (Write { offset, data }, Write { offset: start, data: other }) => {
            meet((*offset, data.len()), (*start, other.len()))
        }
        // What ends there or before is not cut, and changes neither how long the file is then nor what is behind.
        (Write { offset, data }, &Truncate { size }) => offset + data.len() > size,
        // If the file ends before what is read, it still does.
        (Write { offset, data }, Read { offset: start, .. }) => offset + data.len() > *start,
        (Read { .. } | Stat | Truncate { .. } | Write { .. }, Punch { .. })
        | (Read { .. } | Truncate { .. }, Write { .. }) => may_matter(other, one),
        (Append { .. } | Truncate { .. } | Stat | Remove | Begin, _)
        | (_, Append { .. } | Truncate { .. } | Stat | Remove | Begin) => true,
    }
}

/// Whether some of `others` could make the file so long.
fn can_be_of_size(state: &[u8], (least, most): (usize, usize), others: &[&FileOp]) -> bool {
    let cuts = others.iter().any(|op| match op {
        FileOp::Truncate { size } => *size <= most,
        FileOp::Remove => true,
        _ => false,
    });
    if state.len() > most && !cuts {
        return false;
    }
    let grown = others.iter().fold((state.len(), 0_usize), |(end, added), op| match op {
        FileOp::Write { offset, data } => (end.max(offset + data.len()), added),
        FileOp::Truncate { size } => (end.max(*size), added),
        FileOp::Append { data } => (end, added + data.len()),
        _ => (end, added),
    });
    grown.0 + grown.1 >= least
}

/// Whether some of `others` could put each byte into place that is not there.
fn can_hold(state: &[u8], offset: usize, data: &[u8], others: &[&FileOp]) -> bool {
    let cuts = others.iter().any(|op| matches!(op, FileOp::Truncate { .. } | FileOp::Remove));
    let can_put = |op: &FileOp, at: usize, byte: u8| {
        // Where the file does not reach, growing makes zeros.
        let is_behind = cuts || at >= state.len();
        match op {
            FileOp::Write { offset, data } if at >= *offset && at - offset < data.len() => {
                data[at - offset] == byte
            }
            FileOp::Write { .. } | FileOp::Truncate { .. } => byte == 0 && is_behind,
            FileOp::Append { data } => is_behind && (byte == 0 || data.contains(&byte)),
            FileOp::Punch { offset, length } => byte == 0 && at >= *offset && at - offset < *length,
            FileOp::Read { .. } | FileOp::Stat | FileOp::Remove | FileOp::Begin | FileOp::Nothing => false,
        }
    };
    (offset..)
        .zip(data)
        .all(|(at, byte)| state.get(at) == Some(byte) || others.iter().any(|op| can_put(op, at, *byte)))
}

/// Bytes for people: their values, and how often where they repeat.
fn shown(data: &[u8]) -> String {
    let runs: Vec<String> = data
        .chunk_by(|a, b| a == b)
        .map(|run| match run {
            [byte] => format!("{byte:02x}"),
            [byte, ..] => format!("{byte:02x}×{}", run.len()),
            [] => String::new(),
        })
        .collect();
    if runs.is_empty() { "nothing".to_owned() } else { runs.join(" ") }
}
