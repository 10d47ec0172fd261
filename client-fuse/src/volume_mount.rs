//! The life of a mounted volume: from a directory that is there to a mount that answers, and to the end of it.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::{Client, Volume};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::runtime::Handle;

use crate::device;
use crate::fs::{Connect, Fs};
use crate::fuse::{self, Mounted};
use crate::mount::{MountError, explain};
use crate::mounts::{is_dead, mounts, resolved};
use crate::options::Options;
use crate::point::{How, unattended, unmount_served};

pub use crate::fuse::{Parting, Served};

/// A mounted volume.
pub struct VolumeMount {
    mounted: Mounted,
    point: PathBuf,
}

/// Where a volume is mounted, for whoever ends it.
#[derive(Clone, Debug)]
pub struct Point(PathBuf);

/// Somebody may kill `sync` so often before it is said that nothing was written.
const WRITE_BACK_TRIES: u32 = 3;

/// `sync` could not be run, or was killed: programs may have written through mappings what no daemon has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`sync` could not be run, so what was written through mappings may be lost")]
pub struct NotWritten;

/// How the end of a mount went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It is gone.
    Unmounted,
    /// Nobody finds it any more. Whoever has something of it open may go on for as long as this process serves it.
    InUse,
}

impl VolumeMount {
    /// Mounts a volume on a directory, and serves it with tasks of the runtime. If the daemons take the mount for dead, it connects anew.
    /// Returns once it can be used. It waits for the kernel, so it is no task's to call.
    pub fn new(
        (connected, connect): ((Client, Volume), Connect),
        point: &Path,
        options: &Options,
        runtime: &Handle,
    ) -> Result<Self, MountError> {
        let point = checked(point)?;
        device::opens()?;
        let fs = Fs::new(connected, connect);
        // Whoever asks when daemons are away is told what was known.
        let _ = runtime.block_on(fs.room());
        let mounted = fuse::mount(fs, &point, options, runtime.clone())
            .map_err(|error| explain(&error, geteuid().is_root()))?;
        let mount = Self { mounted, point };
        // A mount with other settings is slower and otherwise as good.
        let _ = device::raise_read_ahead(&mount.point);
        device::let_writers_go_on(&mount.point);
        Ok(mount)
    }

    /// Where it is.
    pub fn point(&self) -> Point {
        Point(self.point.clone())
    }

    /// For whoever ends it although it is used.
    pub fn parting(&self) -> Parting {
        self.mounted.parting()
    }

    /// Waits until it is unmounted and nothing of it is open any more.
    pub fn wait(self) -> Served {
        self.mounted.join()
    }
}

impl Point {
    /// Has everything written to the daemons that the kernel still has, and takes the mount out of the tree. Whoever serves it may end meanwhile: other
    /// processes do that.
    pub fn end(&self) -> (Ended, Result<(), NotWritten>) {
        let written = self.write_back();
        self.unmount(How::Now);
        // Whoever unmounted it before has done the same.
        if !self.is_mounted() {
            return (Ended::Unmounted, written);
        }
        self.unmount(How::Lazily);
        (Ended::InUse, written)
    }

    /// Takes the mount out of the tree, whatever the kernel still has of it and whoever uses it.
    pub fn detach(&self) {
        // Should that fail, a dead mount is left, which says how to take it away.
        self.unmount(How::Lazily);
    }

    fn unmount(&self, how: How) {
        // What came of it is seen at the mount.
        let _ = unmount_served(&self.0, how).and_then(|mut helper| helper.wait());
    }

    fn is_mounted(&self) -> bool {
        mounts().map_or(true, |all| all.iter().any(|mount| mount.point == self.0))
    }

    /// What programs have written through mappings is in the kernel until somebody asks for it.
    fn write_back(&self) -> Result<(), NotWritten> {
        let mut sync = Command::new("sync");
        unattended(sync.arg("--file-system").arg("--").arg(&self.0));
        for _ in 0..WRITE_BACK_TRIES {
            // What cannot be written was told to whoever wrote it, or is told when that is synced. But it has to have been tried.
            if sync.status().map_err(|_| NotWritten)?.signal().is_none() {
                return Ok(());
            }
        }
        Err(NotWritten)
    }
}

/// That there is a directory to mount on, and nothing of ours on it.
fn checked(point: &Path) -> Result<PathBuf, MountError> {
    let path = resolved(point);
    if is_dead(&path) {
        return Err(MountError::Dead(path));
    }
    let refused = |errno| match errno {
        Errno::NOENT => MountError::NoPoint(path.clone()),
        Errno::ACCESS => MountError::NoRight(path.clone()),
        errno => MountError::Refused(errno.into()),
    };
    // Of what is mounted nothing is asked that daemons might have to answer.
    if let Some(mount) = mounts().map_err(MountError::Refused)?.into_iter().find(|mount| mount.point == path)
    {
        return Err(MountError::Busy { point: path, source_name: mount.source.display().to_string() });
    }
    let found = rustix::fs::stat(&path).map_err(refused)?;
    if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
        return Err(MountError::NotDirectory(path));
    }
    // Who mounts has to be able to look at what is below, and who does it with help to change it.
    let rights = if geteuid().is_root() { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
    rustix::fs::access(&path, rights).map_err(refused)?;
    Ok(path)
}
