//! The life of a mounted volume: from a directory that is there to a mount that answers, and to the end of it.

use std::path::{Path, PathBuf};

use client::{Client, Volume};
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::device;
use crate::fs::{Connect, Fs};
use crate::fuse::{self, Mounted};
use crate::mount::{DEVICE, MountError, explain};
use crate::mounts::{is_dead, mounts, resolved};
use crate::options::Options;
use crate::point::{How, try_unmount};

pub use crate::fuse::{Parting, Served};

/// A mounted volume.
pub struct VolumeMount {
    mounted: Mounted,
    point: PathBuf,
}

/// Where a volume is mounted, for whoever ends it.
#[derive(Clone, Debug)]
pub struct Point(PathBuf);

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
    /// Returns once it answers. It waits for that, so it is no task's to call.
    pub fn new(
        (connected, connect): ((Client, Volume), Connect),
        point: &Path,
        options: &Options,
        runtime: &Handle,
    ) -> Result<Self, MountError> {
        let point = checked(point)?;
        let fs = Fs::new(connected, connect);
        let mounted = fuse::mount(fs, &point, options, runtime.clone())
            .map_err(|error| explain(error, Path::new(DEVICE).exists()))?;
        let mount = Self { mounted, point };
        if let Err(errno) = rustix::fs::stat(&mount.point) {
            let _ = try_unmount(&mount.point, How::Lazily);
            return Err(MountError::Silent(errno.into()));
        }
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
    /// Has everything written to the daemons that the kernel still has, and takes the mount out of the tree.
    pub fn end(&self) -> Ended {
        self.write_back();
        match try_unmount(&self.0, How::Now) {
            Ok(()) => Ended::Unmounted,
            // Whoever unmounted it before has done the same.
            Err(Errno::INVAL | Errno::NOENT) => Ended::Unmounted,
            Err(_) => {
                let _ = try_unmount(&self.0, How::Lazily);
                Ended::InUse
            }
        }
    }

    /// What programs have written through mappings is in the kernel until somebody asks for it.
    fn write_back(&self) {
        let open =
            rustix::fs::open(&self.0, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        if let Ok(dir) = open {
            // What cannot be written was told to whoever wrote it, or is told when that is synced.
            let _ = rustix::fs::syncfs(dir);
        }
    }
}

/// That there is a directory to mount on, and nothing of ours on it.
fn checked(point: &Path) -> Result<PathBuf, MountError> {
    let path = resolved(point);
    if is_dead(&path) {
        return Err(MountError::Dead(path));
    }
    match rustix::fs::stat(&path) {
        Err(Errno::NOENT) => return Err(MountError::NoPoint(path)),
        Err(errno) => return Err(MountError::Refused(errno.into())),
        Ok(found) if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() => {
            return Err(MountError::NotDirectory(path));
        }
        Ok(_) => {}
    }
    // Who mounts has to be able to look at what is below.
    rustix::fs::access(&path, Access::READ_OK).map_err(|errno| MountError::Refused(errno.into()))?;
    match mounts().map_err(MountError::Refused)?.into_iter().find(|mount| mount.point == path) {
        Some(mount) => Err(MountError::Busy { point: path, source_name: mount.source.display().to_string() }),
        None => Ok(path),
    }
}
