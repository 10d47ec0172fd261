//! The mount: a file system in this process, reached by others through the kernel's `/dev/fuse`.
//!
//! ```text
//! fs            the files and names of a volume; knows no FUSE
//! fuse          translates between fs and the fuser crate, and is the only place that names it
//! caller        who asks for something
//! clock         by which the kernel counts
//! volume_mount  the life of a mounted volume
//! mounts        what is mounted here, and by whom it is used
//! null          a file system that does nothing, by which FUSE itself is measured, and mount, its life
//! point         directories to mount on, and that nothing of a mount stays behind
//! device        the kernel's settings of a mount
//! ```

mod caller;
mod clock;
mod device;
mod fs;
mod fuse;
mod mount;
mod mounts;
mod null;
mod options;
mod point;
mod volume_mount;

pub use fs::{Connect, Connecting};
pub use mount::{MountError, NullMount};
pub(crate) use mounts::SUBTYPE;
pub use mounts::{Mount, Unmount, UnmountError, User, is_dead, mounts, resolved, unmount};
pub use null::{BIG_FILE_BYTES, BIG_FILE_NAME};
pub use options::{NoSuchOption, Options};
pub use point::{SignalError, unmount_on_signals};
pub use volume_mount::{Ended, NotWritten, Parting, Point, Served, VolumeMount};
