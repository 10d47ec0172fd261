//! Why a store cannot be opened, or somebody cannot be trusted to remember.

use std::io;
use std::path::{Path, PathBuf};

use base::NodeId;
use node::StartRefusal;

use super::disk::{WriteError, is_full};
use super::record::Damage;
use super::tables::{Owner, STARTS_MAX};

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by {}; one data directory serves one daemon, so stop the other one or give this one its own", dir.display(), process(*holder))]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// The other process, if known.
        holder: Option<u32>,
    },
    /// Something else is in it.
    #[error("{} holds `{entry}` but no store; name an empty or a new directory, or restore the store's files", dir.display())]
    NotAStore {
        /// The directory.
        dir: PathBuf,
        /// One of the things in it.
        entry: String,
    },
    /// A directory that cannot be renamed.
    #[error("{} is a mount point, and a data directory has to be renamed when it is made; name a directory below it", dir.display())]
    MountPoint {
        /// The directory.
        dir: PathBuf,
    },
    /// It is made and removed faster than we can look.
    #[error("{} keeps changing; start one daemon at a time on it", dir.display())]
    Contended {
        /// The directory.
        dir: PathBuf,
    },
    /// It belongs to somebody else.
    #[error("the data directory belongs to node {} of cluster {}, and this is node {} of cluster {}; correct the path of the data directory, or the id of the node", found.node, found.cluster, wanted.node, wanted.cluster)]
    Owner {
        /// Whose it is.
        found: Owner,
        /// Who wants it.
        wanted: Owner,
    },
    /// A newer or an older program wrote it.
    #[error("{} {damage}; install the program again that wrote it", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// Which format it has.
        damage: Damage,
    },
    /// A file of it is not as it was written.
    #[error("{} {damage}, so this node no longer knows what it promised; check the disk, then take the node out of the cluster map and add it under a new id with an empty data directory", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        damage: Damage,
    },
    /// Something that is no file has the name of one.
    #[error("{} is {what} and has to be a regular file; move it away and put the file back", path.display())]
    NotAFile {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It was opened as often as can be noted.
    #[error(
        "the data directory was opened {STARTS_MAX} times, which is all it can count; give the node a new id and an empty data directory"
    )]
    Exhausted,
    /// The system has no random numbers.
    #[error("the system gave no random numbers; check that getrandom is allowed")]
    Random(#[source] io::Error),
    /// A file or directory cannot be read or made.
    #[error("cannot use {}; check that its parent exists and that this user may write there", path.display())]
    Io {
        /// What was to be used.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This start could not be noted.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Why a peer is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum PeerRefusal {
    /// It claims to be this node.
    #[error("a peer calls itself node {node}, as this one does; give each daemon its own certificate")]
    Ourselves {
        /// The id of both.
        node: NodeId,
    },
    /// It is not what it was.
    #[error(transparent)]
    Start(#[from] StartRefusal),
    /// The table is full.
    #[error("too many nodes have been admitted to this store; nodes that left the cluster map count too")]
    TooMany,
    /// The peer's start could not be noted.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl OpenError {
    /// Whether there was no space on the disk.
    pub fn lacks_space(&self) -> bool {
        match self {
            Self::Write(error) => matches!(error, WriteError::Full { .. }),
            Self::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    pub(super) fn damaged(file: &str, damage: Damage) -> Self {
        let file = PathBuf::from(file);
        match damage {
            Damage::Newer(_) | Damage::Older(_) => Self::Format { file, damage },
            damage => Self::Damaged { file, damage },
        }
    }

    /// The same, with the name of the file as the user knows it.
    pub(super) fn within(self, dir: &Path) -> Self {
        match self {
            Self::Format { file, damage } => Self::Format { file: dir.join(file), damage },
            Self::Damaged { file, damage } => Self::Damaged { file: dir.join(file), damage },
            Self::Io { path, source } => Self::Io { path: dir.join(path), source },
            other => other,
        }
    }
}

fn process(id: Option<u32>) -> String {
    id.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
}
