//! What is mounted on this machine and who uses it, as the kernel tells in `/proc`; and taking a mount away.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Gid, Pid, PidfdFlags, Uid, pidfd_open};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::point::{How, try_unmount};

/// What the kernel calls a mount of a volume behind the dot: `fuse.fleasefs`.
pub(crate) const SUBTYPE: &str = "fleasefs";
const KIND: &str = "fuse.fleasefs";

/// By this name the root of a mount says which process serves it. The kernel passes on questions for `system.` without looking whether they are allowed,
/// for which it may have to ask for attributes, and so daemons.
pub(crate) const PROCESS_XATTR: &str = "system.fleasefs.process";
/// No number of a process is longer.
const PROCESS_BYTES: usize = 16;
/// How long that process may take to write what programs have written, once it is unmounted.
const WRITTEN_AFTER: Duration = Duration::from_secs(60);

/// A mount of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// Of what: the cluster's folder and the volume's name with a colon between.
    pub source: OsString,
    /// Whose process serves it.
    owner: Option<(u32, u32)>,
}

/// A process that has something of a mount open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its id.
    pub process: u32,
    /// What it is called.
    pub name: String,
}

/// Why a mount stays.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// There is none.
    #[error("no volume is mounted at {}; `findmnt -t {KIND}` shows where some are", .0.display())]
    NotMounted(PathBuf),
    /// Somebody uses it.
    #[error("{} is in use{}; end that, or leave the folder, and try again", .point.display(), list(.users))]
    InUse {
        /// Where.
        point: PathBuf,
        /// By whom, as far as this process may know.
        users: Vec<User>,
    },
    /// Anything else that the system has against it.
    #[error("{} cannot be unmounted: {source}", .point.display())]
    Refused {
        /// Where.
        point: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is unmounted, and there is more to write than that takes.
    #[error(
        "{} is unmounted, but process {process} still writes to the daemons what programs have written; `fleasefs status` says whether they \
         are there. Until it ends do not stop them",
        .point.display()
    )]
    StillWriting {
        /// Where it was.
        point: PathBuf,
        /// Who writes.
        process: u32,
    },
    /// What is mounted is not known.
    #[error("cannot read what is mounted: {0}")]
    Unknown(#[from] io::Error),
}

/// What was done about a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// It is gone, and all that was written through it is with the daemons.
    Done,
    /// Its process had gone before. What is left of it in the tree is gone now, too.
    Recovered,
}

/// The mounts of volumes, in the order in which they were made.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Takes the mount at `path` away, unless somebody uses it. One whose process has gone is taken away in any case.
pub fn unmount(path: &Path) -> Result<Unmount, UnmountError> {
    let point = resolved(path);
    if !mounts()?.iter().any(|mount| mount.point == point) {
        return Err(UnmountError::NotMounted(point));
    }
    let is_dead = is_dead(&point);
    let process = if is_dead { None } else { process_of(&point) };
    match try_unmount(&point, if is_dead { How::Lazily } else { How::Now }) {
        Ok(()) if is_dead => Ok(Unmount::Recovered),
        Ok(()) => match process {
            Some((process, handle)) if !has_ended(&handle, WRITTEN_AFTER)? => {
                Err(UnmountError::StillWriting { point, process })
            }
            _ => Ok(Unmount::Done),
        },
        Err(Errno::BUSY) => Err(UnmountError::InUse { users: users_of(&point), point }),
        Err(errno) => Err(UnmountError::Refused { point, source: errno.into() }),
    }
}

/// The process that serves a mount, if that is another one than this.
fn process_of(point: &Path) -> Option<(u32, OwnedFd)> {
    let process = ask_process(point).ok()??;
    let id = Pid::from_raw(process.try_into().ok()?).filter(|_| process != std::process::id())?;
    // It has answered just now, so that is its id.
    Some((process, pidfd_open(id, PidfdFlags::empty()).ok()?))
}

/// What the mount there says of who serves it, if it is one of a volume.
fn ask_process(point: &Path) -> Result<Option<u32>, Errno> {
    let ask = || {
        let mut text = [0; PROCESS_BYTES];
        let length = rustix::fs::getxattr(point, PROCESS_XATTR, &mut text)?;
        Ok(str::from_utf8(&text[..length]).ok().and_then(|text| text.parse().ok()))
    };
    match ask() {
        // The kernel lets none but its owner ask a mount that is not for others, not even root.
        Err(Errno::ACCESS) => as_owner_of(point, ask).unwrap_or(Err(Errno::ACCESS)),
        answer => answer,
    }
}

/// Does something as whoever has made the mount there, in a thread, because only a thread changes its user and nobody else's. None if this process may not do
/// that.
fn as_owner_of<T: Send>(point: &Path, act: impl FnOnce() -> T + Send) -> Option<T> {
    let (user, group) = mounts().ok()?.into_iter().rev().find(|mount| mount.point == point)?.owner?;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    let as_owner = || {
        set_thread_res_gid(group, group, group).ok()?;
        set_thread_res_uid(user, user, user).ok()?;
        Some(act())
    };
    thread::scope(|scope| scope.spawn(as_owner).join().ok()?)
}

/// Whether a process has ended, or does so in time.
fn has_ended(process: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let patience = Timespec::try_from(patience).map_err(|_| io::ErrorKind::InvalidInput)?;
    let ended = retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)))?;
    Ok(ended > 0)
}

/// Whether a mount is here whose process has gone. One that lives answers without asking daemons, which may be away.
pub fn is_dead(point: &Path) -> bool {
    // It may go while it is asked.
    matches!(ask_process(point), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// The path without links in it. The last part is not looked into: it may be dead, or its daemons away.
pub fn resolved(path: &Path) -> PathBuf {
    // With a slash behind it the last part would be looked into.
    let path: &Path = &path.components().collect::<PathBuf>();
    if let Ok(whole) = path.canonicalize() {
        return whole;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    path.file_name().map_or(folder.clone(), |name| folder.join(name))
}

/// Whoever has a file or a folder of a mount open, or works in one. Of other users' processes only root is told.
pub(crate) fn users_of(point: &Path) -> Vec<User> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|process| uses(*process, point))
        .map(|process| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            User { process, name: name.trim().to_owned() }
        })
        .collect()
}

fn uses(process: u32, point: &Path) -> bool {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let open = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let links = ["cwd", "root", "exe"].map(|link| folder.join(link)).into_iter().chain(open);
    links.filter_map(|link| fs::read_link(link).ok()).any(|target| target.starts_with(point))
}

fn list(users: &[User]) -> String {
    let names: Vec<String> =
        users.iter().take(5).map(|user| format!("{} (process {})", user.name, user.process)).collect();
    match users.len() {
        0 => String::new(),
        1..=5 => format!(" by {}", names.join(", ")),
        count => format!(" by {} and {} more", names.join(", "), count - 5),
    }
}

/// The lines of `mountinfo` are fields with spaces between, some of them optional, and those of the file system behind a dash.
fn parse(table: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = unescaped(fields.nth(4)?);
        let mut kind_and_source = fields.skip_while(|field| *field != b"-").skip(1);
        let is_ours = kind_and_source.next()? == KIND.as_bytes();
        let source = unescaped(kind_and_source.next()?);
        let owner = kind_and_source.next().and_then(owner);
        is_ours.then(|| Mount { point: PathBuf::from(point), source, owner })
    };
    table.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// The user and the group that are among the options of a FUSE file system.
fn owner(options: &[u8]) -> Option<(u32, u32)> {
    let id = |name: &str| {
        let mut options = str::from_utf8(options).ok()?.split(',');
        options.find_map(|option| option.strip_prefix(name))?.parse().ok()
    };
    Some((id("user_id=")?, id("group_id=")?))
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

impl Mount {
    /// Whether it is of a volume of the cluster in this folder, which is written without links.
    pub fn is_of(&self, cluster: &Path) -> bool {
        let rest = self.source.as_bytes().strip_prefix(cluster.as_os_str().as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), Some(b':' | b'/')))
    }

    /// The source of a mount.
    pub fn source_of(cluster: &Path, volume: &str) -> String {
        format!("{}:{volume}", OsStr::new(cluster).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            90 22 0:50 / /mnt/a\\040b rw,nosuid shared:7 master:2 - fuse.fleasefs /srv/my\\040cluster:home rw\n\
            91 22 0:51 / /mnt/c rw - fuse.fleasefs /srv/other/client:home rw,user_id=4001,group_id=4002,default_permissions\n\
            92 22 0:52 / /mnt/d rw - fuse.sshfs host: rw\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].point, Path::new("/mnt/a b"));
        assert_eq!((mounts[0].owner, mounts[1].owner), (None, Some((4001, 4002))));
        assert!(mounts[0].is_of(Path::new("/srv/my cluster")) && !mounts[0].is_of(Path::new("/srv/my")));
        assert!(mounts[1].is_of(Path::new("/srv/other")));
        assert_eq!(mounts[0].source, OsString::from(Mount::source_of(Path::new("/srv/my cluster"), "home")));
    }

    #[test]
    fn a_path_is_resolved_though_its_last_part_is_not_there() {
        assert_eq!(resolved(Path::new("/proc/../tmp/no-such-thing")), Path::new("/tmp/no-such-thing"));
    }

    #[test]
    fn who_works_in_a_folder_uses_it() {
        let folder = std::env::current_dir().unwrap();
        assert!(users_of(&folder).iter().any(|user| user.process == std::process::id()));
    }
}
