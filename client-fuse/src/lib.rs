//! The mount: a file system in this process, reached by others through the kernel's `/dev/fuse`.
//!
//! ```text
//! fs       what the files and names are; knows no FUSE
//! fuse     translates between fs and the fuser crate, and is the only place that names it
//! mount    the mount's life: its directory, its kernel settings, and that nothing of it stays behind
//! ```
//!
//! So far there is only a [`NullMount`], a file system that does nothing. It shows what FUSE itself costs on this
//! machine.

mod device;
mod fs;
mod fuse;
mod mount;
mod point;

pub use fs::{BIG_FILE_BYTES, BIG_FILE_NAME};
pub use mount::{MountError, NullMount};
pub use point::{SignalError, unmount_on_signals};
