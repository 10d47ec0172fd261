//! What a check finds, where, and what to do about it.

use base::ObjectId;
use node::StoreRefusal;

use super::super::index::IndexError;
use super::super::record::Damage;

/// Something that is not as a clean stop leaves it.
#[derive(Debug)]
pub struct Finding {
    /// Which file of the directory.
    pub file: String,
    /// Which file of the cluster, if it is known.
    pub object: Option<ObjectId>,
    /// Which of its chunks.
    pub chunk: Option<u64>,
    /// Which record of the journal.
    pub record: Option<u64>,
    /// What it is.
    pub problem: Problem,
}

/// What a finding is.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A small file is not as it was written.
    #[error("{0}")]
    Small(Damage),
    /// What has the name of a file is none.
    #[error("is no regular file")]
    NotAFile,
    /// Something that was there, or has to be.
    #[error("is missing, and this store has been used")]
    Missing,
    /// The system says no.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// No store puts that there.
    #[error("is nothing that a store has")]
    Stranger,
    /// What a crash leaves.
    #[error("was left by a process that ended while it made it")]
    Leftover,
    /// Only one of two copies.
    #[error("has two copies that differ: a crash came between them, or one is damaged")]
    OneCopy,
    /// Two indexes.
    #[error("is a second index; a store has one")]
    SecondIndex,
    /// The engine does not take it.
    #[error(transparent)]
    Index(IndexError),
    /// The key or the row of the mark.
    #[error("does not say up to which record it has the journal")]
    Mark,
    /// A key that nobody writes.
    #[error("has a row whose key makes no sense")]
    Key,
    /// A row of a file.
    #[error("has a row of this file that is not what was written")]
    Head,
    /// A row of a chunk.
    #[error("has a row of this chunk that is not what was written")]
    Chunk,
    /// A row of a volume's tree.
    #[error("has a row of this volume's names that is not what was written")]
    Name,
    /// Parts of a file that is not there.
    #[error("has parts of this file and not the file")]
    Headless,
    /// More than there is.
    #[error("has this file up to record {of_file}, and all files up to {of_all} only")]
    Ahead {
        /// Up to where the file goes.
        of_file: u64,
        /// Up to where all go.
        of_all: u64,
    },
    /// A place that cannot be.
    #[error("is said to have content at {offset} in a way that cannot be")]
    Place {
        /// Where.
        offset: u64,
    },
    /// Space that has two contents.
    #[error("has two contents in one place, at {offset}")]
    Shared {
        /// Where.
        offset: u64,
    },
    /// The end of the file is gone.
    #[error("ends before the content that belongs at {offset}")]
    CutOff {
        /// Where.
        offset: u64,
    },
    /// Not what was written.
    #[error("has at {offset} not what was written there")]
    Content {
        /// Where.
        offset: u64,
    },
    /// It must not open.
    #[error("{refusal} (what can be read ends in {end})")]
    Refused {
        /// Why.
        refusal: StoreRefusal,
        /// Where reading ended.
        end: String,
    },
    /// A record is whole, and nobody can read it.
    #[error("has a record that makes no sense: {0}")]
    Record(wire::DecodeError),
    /// The end is torn, as the power leaves it.
    #[error("ends with {records} records that no sync has confirmed and that the power has taken")]
    Torn {
        /// How many, at least.
        records: u64,
    },
    /// The end is gone, and the power has not failed.
    #[error(
        "lacks the last records, from {first} to {last}, which were written and which no sync has confirmed"
    )]
    Lost {
        /// The first of them.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// Nothing remembers what was written and not synced.
    #[error(
        "is not vouched for by this machine's memory: the power has failed, or the directory was moved; what no sync has confirmed may \
         be lost"
    )]
    Forgotten,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing is wrong.
    Note,
    /// Something is lost here that other members have.
    Damage,
    /// The store does not open.
    Fatal,
}

impl Problem {
    /// A name for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Small(_) => "small_file",
            Self::NotAFile => "not_a_file",
            Self::Missing => "missing",
            Self::Unreadable(_) => "unreadable",
            Self::Stranger => "stranger",
            Self::Leftover => "leftover",
            Self::OneCopy => "one_copy",
            Self::SecondIndex => "second_index",
            Self::Index(_) => "index",
            Self::Mark => "mark",
            Self::Key => "key",
            Self::Head => "head",
            Self::Chunk => "chunk",
            Self::Name => "name",
            Self::Headless => "headless",
            Self::Ahead { .. } => "ahead",
            Self::Place { .. } => "place",
            Self::Shared { .. } => "shared",
            Self::CutOff { .. } => "cut_off",
            Self::Content { .. } => "content",
            Self::Refused { .. } => "refused",
            Self::Record(_) => "record",
            Self::Torn { .. } => "torn",
            Self::Lost { .. } => "lost",
            Self::Forgotten => "forgotten",
        }
    }

    /// How bad it is.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Stranger | Self::Leftover | Self::OneCopy | Self::Torn { .. } | Self::Forgotten => {
                Severity::Note
            }
            Self::Head
            | Self::Chunk
            | Self::Name
            | Self::Headless
            | Self::CutOff { .. }
            | Self::Content { .. }
            | Self::Lost { .. } => Severity::Damage,
            Self::Small(_)
            | Self::NotAFile
            | Self::Missing
            | Self::Unreadable(_)
            | Self::SecondIndex
            | Self::Index(_)
            | Self::Mark
            | Self::Key
            | Self::Ahead { .. }
            | Self::Place { .. }
            | Self::Shared { .. }
            | Self::Refused { .. }
            | Self::Record(_) => Severity::Fatal,
        }
    }

    /// What to do.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Small(Damage::Newer(_) | Damage::Older(_)) => "install the program again that wrote it",
            Self::OneCopy => "nothing: the next start writes both anew",
            Self::Stranger => "move it away if it is not needed; the daemon does not look at it",
            Self::Leftover | Self::Torn { .. } => "nothing: the next start cleans it up",
            Self::Forgotten => "nothing if that is so: the daemon gets it from the other members",
            Self::NotAFile => "move it away, and put the file back",
            Self::SecondIndex => "move away the one that was copied here",
            Self::Unreadable(_) => "check the disk, and whether this user may read it",
            _ => match self.severity() {
                Severity::Damage => {
                    "check the disk; the running daemon gets it back from the other members when it is needed"
                }
                _ => {
                    "put it back if it was moved; else check the disk, take the node out of the cluster map, and add it under a new \
                     id with an empty data directory"
                }
            },
        }
    }
}

impl Finding {
    /// About a file of the directory.
    pub(super) fn of(file: impl Into<String>, problem: Problem) -> Self {
        Self { file: file.into(), object: None, chunk: None, record: None, problem }
    }
}
