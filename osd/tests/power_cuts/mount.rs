//! The recorder as a file system that is mounted: what the kernel asks is translated and noted, and nothing is delayed or put together, since
//! the kernel is told to keep no write back.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite, Request, Session, TimeOrNow,
    WriteFlags,
};
use tempfile::TempDir;

use crate::tree::{Inode, Node, Op, ROOT, Recorder, Recording};

/// The kernel may believe all that it is told: nobody else changes the tree.
const VALID_FOR: Duration = Duration::from_secs(600);
const GENERATION: Generation = Generation(0);
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// A recorder that is mounted on a temporary directory until it is dropped.
pub(crate) struct Mount {
    /// Taken only by `drop`.
    session: Option<BackgroundSession>,
    // Dropped last: the directory can only go when nothing is mounted on it.
    point: TempDir,
}

impl Mount {
    pub(crate) fn new(recorder: &Arc<Recorder>) -> io::Result<Self> {
        let point = tempfile::Builder::new().prefix("fleasefs-cuts-").tempdir()?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("fleasefs-cuts".to_owned())];
        let session = Session::new(Translator(Arc::clone(recorder)), point.path(), &config)?.spawn()?;
        Ok(Self { session: Some(session), point })
    }

    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // Who still has a file open closes it soon: threads of an index that was dropped.
            let _ = session.umount_and_join();
        }
    }
}

struct Translator(Arc<Recorder>);

fn attributes(recording: &Recording, inode: Inode) -> Result<FileAttr, Errno> {
    let (kind, perm, size) = match recording.tree.nodes.get(&inode).ok_or(Errno::ENOENT)? {
        Node::File(content) => (FileType::RegularFile, 0o600, content.len() as u64),
        Node::Dir(_) => (FileType::Directory, 0o700, 0),
    };
    let epoch = SystemTime::UNIX_EPOCH;
    Ok(FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: size.div_ceil(512),
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind,
        perm,
        nlink: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        rdev: 0,
        blksize: 4_096,
        flags: 0,
    })
}

fn named(recording: &Recording, dir: INodeNo, name: &OsStr) -> Result<Inode, Errno> {
    let names = recording.tree.names(dir.0).ok_or(Errno::ENOTDIR)?;
    names.get(&*name.to_string_lossy()).copied().ok_or(Errno::ENOENT)
}

impl Translator {
    fn create(&self, dir: INodeNo, name: &OsStr, is_dir: bool) -> Result<FileAttr, Errno> {
        let mut recording = self.0.lock();
        let inode = match named(&recording, dir, name) {
            Ok(_) if is_dir => return Err(Errno::EEXIST),
            Ok(inode) => inode,
            Err(_) => recording.create(dir.0, name.to_string_lossy().into_owned(), is_dir),
        };
        attributes(&recording, inode)
    }

    fn remove(&self, dir: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let mut recording = self.0.lock();
        let inode = named(&recording, dir, name)?;
        if recording.tree.names(inode).is_some_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        recording.note(Op::Remove { dir: dir.0, name: name.to_string_lossy().into_owned() });
        Ok(())
    }

    fn rename_in(&self, dir: INodeNo, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let mut recording = self.0.lock();
        named(&recording, dir, from)?;
        let taken = named(&recording, dir, to).ok();
        if taken.and_then(|taken| recording.tree.names(taken)).is_some_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        let name = |name: &OsStr| name.to_string_lossy().into_owned();
        recording.note(Op::Rename { dir: dir.0, from: name(from), to: name(to) });
        Ok(())
    }
}

fn done(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn entry(found: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&VALID_FOR, &found, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Translator {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config.set_max_write(WRITE_BYTES_MAX).map(drop).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let recording = self.0.lock();
        entry(named(&recording, parent, name).and_then(|inode| attributes(&recording, inode)), reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match attributes(&self.0.lock(), inode.0) {
            Ok(found) => reply.attr(&VALID_FOR, &found),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut recording = self.0.lock();
        if let Some(size) = size {
            recording.note(Op::Resize { file: inode.0, bytes: length(size) });
        }
        match attributes(&recording, inode.0) {
            Ok(found) => reply.attr(&VALID_FOR, &found),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        entry(Self::create(self, parent, name, true), reply);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match Self::create(self, parent, name, false) {
            Ok(new) => reply.created(&VALID_FOR, &new, GENERATION, FileHandle(0), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.remove(parent, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.remove(parent, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if parent == new_parent && flags.is_empty() {
            done(self.rename_in(parent, name, new_name), reply);
        } else {
            reply.error(Errno::EXDEV);
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.lock().tree.nodes.get(&inode.0) {
            Some(Node::File(content)) => {
                let from = length(offset).min(content.len());
                reply.data(&content[from..content.len().min(from + size as usize)]);
            }
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = Bytes::copy_from_slice(data);
        self.0.lock().note(Op::Write { file: inode.0, at: length(offset), bytes });
        reply.written(u32::try_from(data.len()).expect("writes are bounded"));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.lock().note(Op::Sync { node: inode.0 });
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.lock().note(Op::Sync { node: inode.0 });
        reply.ok();
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let recording = self.0.lock();
        let names = recording.tree.names(inode.0).into_iter().flatten();
        for (next, (name, inode)) in (1..).zip(names).skip(length(offset)) {
            let is_dir = recording.tree.names(*inode).is_some();
            let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(*inode), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

/// A length of something that is in memory.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("files are in memory")
}

const _: () = assert!(ROOT == 1, "the kernel's number of the root");
