//! The same for [`crate::null`], which answers at once. Which error becomes which errno is decided in one place, [`errno`].

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session,
    TimeOrNow, WriteFlags,
};

use crate::null::{Attributes, FsError, IO_BYTES_MAX, Inode, Kind, NullFs};

/// What the kernel may believe without asking. Nobody else changes this tree.
const VALID_FOR: Duration = Duration::from_secs(60);

/// Requests that may wait in the kernel's queue without a caller waiting: read-ahead above all.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Inode numbers are never used again.
const GENERATION: Generation = Generation(0);

/// The unit that `stat` counts blocks in, whatever the file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// A mounted file system and the threads that serve it.
pub(crate) struct Mounted(BackgroundSession);

/// Mounts `fs` at `point` and serves it with `threads` threads, each with its own queue in the kernel.
pub(crate) fn mount(fs: NullFs, point: &Path, threads: usize) -> io::Result<Mounted> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("fleasefs-null".to_owned()),
        MountOption::Subtype("fleasefs".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
    ];
    config.n_threads = Some(threads);
    config.clone_fd = true;
    Ok(Mounted(Session::new(Translator(fs), point, &config)?.spawn()?))
}

impl Mounted {
    /// Waits until the threads have ended, which they do once nothing is mounted and no file is open any more.
    ///
    /// A session that is dropped instead ends as well, but when it wants to.
    pub(crate) fn join(self) {
        // A thread that ended with an error has nobody left to serve.
        let _ = self.0.join();
    }
}

struct Translator(NullFs);

impl Filesystem for Translator {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config.set_max_write(IO_BYTES_MAX).map_err(|_| io::ErrorKind::Unsupported)?;
        config.set_max_background(BACKGROUND_REQUESTS_MAX).map_err(|_| io::ErrorKind::Unsupported)?;
        // A kernel without it serves a directory's operations one by one: slower, not wrong.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.lookup(name) {
            Ok(found) => reply.entry(&VALID_FOR, &file_attr(found), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        answer_attributes(self.0.attributes(Inode(inode.0)), reply);
    }

    /// Only the size can change; the rest of the attributes is fixed, and setting it is quietly without effect.
    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let inode = Inode(inode.0);
        answer_attributes(
            match size {
                Some(size_bytes) => self.0.resize(inode, size_bytes),
                None => self.0.attributes(inode),
            },
            reply,
        );
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.0.create(name) {
            Ok(new) => {
                reply.created(&VALID_FOR, &file_attr(new), GENERATION, FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_done(self.0.unlink(name), reply);
    }

    fn open(&self, _request: &Request, _inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = match flags.acc_mode() {
            // Who only reads leaves nothing to flush, so `close` need not ask.
            OpenAccMode::O_RDONLY => FopenFlags::FOPEN_NOFLUSH,
            OpenAccMode::O_WRONLY | OpenAccMode::O_RDWR => FopenFlags::empty(),
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(Inode(inode.0), offset, size) {
            Ok(data) => reply.data(data),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.0.write(Inode(inode.0), offset, length) {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // The kernel hands back the offset of the last entry it took, so an entry's offset is its successor's index.
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (name, inode)) in (1_u64..).zip(self.0.names()).skip(first) {
            if reply.add(INodeNo(inode.0), next, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}

fn answer_attributes(answer: Result<Attributes, FsError>, reply: ReplyAttr) {
    match answer {
        Ok(attributes) => reply.attr(&VALID_FOR, &file_attr(attributes)),
        Err(error) => reply.error(errno(error)),
    }
}

fn answer_done(answer: Result<(), FsError>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn errno(error: FsError) -> Errno {
    match error {
        FsError::NoEntry => Errno::ENOENT,
        FsError::IsDirectory => Errno::EISDIR,
    }
}

fn file_attr(attributes: Attributes) -> FileAttr {
    let (kind, perm) = match attributes.kind {
        Kind::Directory => (FileType::Directory, 0o700),
        Kind::File => (FileType::RegularFile, 0o600),
    };
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(attributes.inode.0),
        size: attributes.size_bytes,
        blocks: attributes.size_bytes.div_ceil(STAT_BLOCK_BYTES),
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
        blksize: IO_BYTES_MAX,
        flags: 0,
    }
}
