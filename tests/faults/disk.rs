//! A disk that can be slow, and one that can be full: a file system in memory, of which the daemon's directory is a view that passes everything on,
//! at once or later.
//!
//! What is full is really full: the file system in memory is made as small as what is in it.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, Session, TimeOrNow, WriteFlags,
};
use rustix::fs::{
    AtFlags, Dir, FallocateFlags, Mode, OFlags, Stat, fallocate, fstat, fstatvfs, openat, renameat, unlinkat,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

use crate::support::until;

const BYTES: u64 = 1 << 30;
/// What somebody else puts there to make it full. A daemon takes a disk to be full when a sixteenth is left, which is more than it has in space that it uses
/// again.
const BALLAST_BYTES: u64 = 192 << 20;
/// Beyond what is in use on a disk that is nearly full.
const SPARE_BYTES: u64 = 1 << 20;
/// Attributes are asked for each time.
const VALID_FOR: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
const WRITE_BYTES_MAX: u32 = 1 << 20;
const ROOT: u64 = 1;

/// A disk that is mounted until this is dropped.
pub(crate) struct Disk {
    /// Taken only by `drop`.
    session: Option<BackgroundSession>,
    memory: PathBuf,
    pace: Arc<Pace>,
}

impl Disk {
    /// Mounts a new one on `point`. What is in it is at `memory`, where there is a folder.
    pub(crate) fn mount(memory: &Path, point: &Path) -> io::Result<Self> {
        fs::create_dir_all(point)?;
        fs::create_dir_all(memory)?;
        mount("faults", memory, "tmpfs", MountFlags::empty(), &*size(BYTES))?;
        let pace = Arc::new(Pace::default());
        let view = View::new(memory, Arc::clone(&pace))?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faults".to_owned())];
        let session = Session::new(view, point, &config)?.spawn()?;
        Ok(Self { session: Some(session), memory: memory.to_owned(), pace })
    }

    /// From now on each write and each sync takes so much longer.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.pace.set(|state| state.delay = delay);
    }

    /// From now on none is done, or all are.
    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.pace.set(|state| state.is_stuck = is_stuck);
    }

    /// How many writes and syncs were late so far.
    pub(crate) fn late(&self) -> u64 {
        self.pace.late.load(Ordering::Relaxed)
    }

    /// There is hardly any space from now on.
    pub(crate) fn fill(&self) {
        let ballast = File::create(self.ballast()).unwrap();
        fallocate(ballast, FallocateFlags::empty(), 0, BALLAST_BYTES).unwrap();
        self.shrink(SPARE_BYTES);
    }

    /// There is none at all.
    pub(crate) fn fill_to_the_brim(&self) {
        self.shrink(0);
    }

    /// There is space again.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
        mount_remount(&self.memory, MountFlags::empty(), &*size(BYTES)).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.memory.join("ballast")
    }

    fn shrink(&self, spare: u64) {
        until("the disk has no space", || {
            let disk = rustix::fs::statvfs(&self.memory).unwrap();
            let used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize;
            // Somebody may have written meanwhile.
            mount_remount(&self.memory, MountFlags::empty(), &*size(used + spare)).is_ok()
        });
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.pace.set(|state| *state = Speed::default());
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
        let _ = unmount(&self.memory, UnmountFlags::DETACH);
    }
}

fn size(bytes: u64) -> CString {
    CString::new(format!("size={bytes}")).expect("a number has no zeros")
}

/// How fast a disk is.
#[derive(Default)]
struct Pace {
    speed: Mutex<Speed>,
    changed: Condvar,
    late: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Speed {
    delay: Duration,
    is_stuck: bool,
}

impl Pace {
    fn set(&self, change: impl FnOnce(&mut Speed)) {
        change(&mut self.speed.lock().unwrap());
        self.changed.notify_all();
    }

    /// Does something when the disk comes to it.
    fn act(self: &Arc<Self>, act: impl FnOnce() + Send + 'static) {
        let speed = *self.speed.lock().unwrap();
        if !speed.is_stuck && speed.delay.is_zero() {
            return act();
        }
        let pace = Arc::clone(self);
        thread::spawn(move || {
            let speed = pace.speed.lock().unwrap();
            let delay = pace.changed.wait_while(speed, |speed| speed.is_stuck).unwrap().delay;
            thread::sleep(delay);
            pace.late.fetch_add(1, Ordering::Relaxed);
            act();
        });
    }
}

/// Passes everything on to a directory.
struct View {
    pace: Arc<Pace>,
    /// What the kernel knows, and how often it was told of it.
    inodes: Mutex<BTreeMap<u64, (Arc<OwnedFd>, u64)>>,
    files: Mutex<BTreeMap<u64, Arc<File>>>,
    opened: AtomicU64,
}

impl View {
    fn new(root: &Path, pace: Arc<Pace>) -> io::Result<Self> {
        let root = Arc::new(OwnedFd::from(File::open(root)?));
        let inodes = Mutex::new(BTreeMap::from([(ROOT, (root, 1))]));
        Ok(Self { pace, inodes, files: Mutex::default(), opened: AtomicU64::new(0) })
    }

    fn inode(&self, inode: INodeNo) -> io::Result<Arc<OwnedFd>> {
        let inodes = self.inodes.lock().unwrap();
        inodes.get(&inode.0).map(|(found, _)| Arc::clone(found)).ok_or(io::ErrorKind::NotFound.into())
    }

    fn look(&self, dir: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(self.inode(dir)?, name, flags, Mode::empty())?;
        let attributes = attributes(&fstat(&found)?);
        let mut inodes = self.inodes.lock().unwrap();
        inodes.entry(attributes.ino.0).or_insert_with(|| (Arc::new(found), 0)).1 += 1;
        Ok(attributes)
    }

    fn make_dir(&self, dir: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        rustix::fs::mkdirat(self.inode(dir)?, name, Mode::RWXU)?;
        self.look(dir, name)
    }

    fn open_inode(&self, inode: INodeNo) -> io::Result<FileHandle> {
        let path = format!("/proc/self/fd/{}", self.inode(inode)?.as_raw_fd());
        Ok(self.keep(File::options().read(true).write(true).open(path)?))
    }

    fn create_file(&self, dir: INodeNo, name: &OsStr) -> io::Result<(FileAttr, FileHandle)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(self.inode(dir)?, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok((self.look(dir, name)?, self.keep(file.into())))
    }

    fn keep(&self, file: File) -> FileHandle {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.files.lock().unwrap().insert(number, Arc::new(file));
        FileHandle(number)
    }

    fn file(&self, number: FileHandle) -> Arc<File> {
        Arc::clone(&self.files.lock().unwrap()[&number.0])
    }

    fn resize(&self, inode: INodeNo, size: Option<u64>) -> io::Result<FileAttr> {
        if let Some(size) = size {
            let handle = self.open_inode(inode)?;
            let file = self.files.lock().unwrap().remove(&handle.0);
            file.expect("it was just opened").set_len(size)?;
        }
        Ok(attributes(&fstat(self.inode(inode)?)?))
    }

    fn list(&self, inode: INodeNo, from: u64, reply: &mut ReplyDirectory) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = Dir::new(openat(self.inode(inode)?, ".", flags, Mode::empty())?)?;
        for (next, entry) in (1..).zip(dir).skip(usize::try_from(from).unwrap()) {
            let entry = entry?;
            let kind = if entry.file_type().is_dir() { FileType::Directory } else { FileType::RegularFile };
            let name = OsStr::new(entry.file_name().to_str().map_err(io::Error::other)?);
            if reply.add(INodeNo(entry.ino()), next, kind, name) {
                break;
            }
        }
        Ok(())
    }
}

fn attributes(stat: &Stat) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size.unsigned_abs(),
        blocks: stat.st_blocks.unsigned_abs(),
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: if is_dir { FileType::Directory } else { FileType::RegularFile },
        perm: u16::try_from(stat.st_mode & 0o7777).expect("twelve bits"),
        nlink: 1,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4_096,
        flags: 0,
    }
}

fn done(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

fn entry(found: io::Result<FileAttr>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&VALID_FOR, &found, GENERATION),
        Err(error) => reply.error(error.into()),
    }
}

fn attribute(found: io::Result<FileAttr>, reply: ReplyAttr) {
    match found {
        Ok(found) => reply.attr(&VALID_FOR, &found),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for View {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config.set_max_write(WRITE_BYTES_MAX).map(drop).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.look(parent, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        let mut inodes = self.inodes.lock().unwrap();
        let Some((_, left)) = inodes.get_mut(&inode.0).filter(|_| inode.0 != ROOT) else { return };
        *left -= lookups;
        if *left == 0 {
            inodes.remove(&inode.0);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attribute(self.resize(inode, None), reply);
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
        attribute(self.resize(inode, size), reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        entry(self.make_dir(parent, name), reply);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.create_file(parent, name) {
            Ok((new, handle)) => reply.created(&VALID_FOR, &new, GENERATION, handle, FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_inode(inode) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.lock().unwrap().remove(&handle.0);
        reply.ok();
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.inode(parent).and_then(|dir| Ok(unlinkat(dir, name, AtFlags::empty())?)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.inode(parent).and_then(|dir| Ok(unlinkat(dir, name, AtFlags::REMOVEDIR)?)), reply);
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
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let dirs = self.inode(parent).and_then(|from| Ok((from, self.inode(new_parent)?)));
        done(dirs.and_then(|(from, to)| Ok(renameat(from, name, to, new_name)?)), reply);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        match self.file(handle).read_at(&mut data, offset) {
            Ok(length) => reply.data(&data[..length]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (file, data) = (self.file(handle), data.to_vec());
        self.pace.act(move || match file.write_at(&data, offset) {
            Ok(length) => reply.written(u32::try_from(length).expect("writes are bounded")),
            Err(error) => reply.error(error.into()),
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let file = self.file(handle);
        self.pace.act(move || done(file.sync_data(), reply));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.pace.act(move || reply.ok());
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(inode, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn statfs(&self, _: &Request, inode: INodeNo, reply: ReplyStatfs) {
        match self.inode(inode).and_then(|inode| Ok(fstatvfs(inode)?)) {
            Ok(disk) => {
                let block = u32::try_from(disk.f_frsize).expect("blocks are short");
                let (all, free, files) = (disk.f_blocks, disk.f_bfree, disk.f_ffree);
                reply.statfs(all, free, disk.f_bavail, disk.f_files, files, block, 255, block);
            }
            Err(error) => reply.error(error.into()),
        }
    }
}
