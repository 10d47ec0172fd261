//! Translation between [`crate::fs`] and the fuser crate, and nothing else: no decision is made here.
//!
//! A callback turns the kernel's numbers into ours, begins what is wanted, and answers if that is all: to wake another thread for it would take
//! longer than most of it does. Everything else it hands over, with the reply, to a task, which waits for the file system and turns its answer
//! back. So no thread that takes requests in waits for the network. What is under way is bounded: a thread takes in no more while as much is, and
//! the rest waits in the kernel.

mod answers;
mod lock;
mod mounted;
mod notify;
pub(crate) mod null;
mod values;

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use bytes::Bytes;
use client::FileLock;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use namespace::{Lock, RenameHow, XattrHow};
use rustix::fs::{FileType as Type, XattrFlags};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::answers::{
    NO_TIME, answer_data, answer_done, answer_entry, answer_found, answer_list, answer_room, answer_shown,
    answer_sought, answer_xattr, errno,
};
use self::lock::Passed;
use self::values::{
    allocate_how, caller, file_attr, generation, mode_bits, open_how, sought, time, write_how,
};
use crate::caller::Caller;
use crate::fs::{Fs, FsError, IO_BYTES_MAX, Make, OpenHow, Wanted};

pub(crate) use self::mounted::{Mounted, mount};
pub use self::mounted::{Parting, Served};

/// Requests that may wait in the kernel's queue without a caller waiting: read-ahead above all.
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// Requests under way, each counted by its data, with something for itself.
const UNDER_WAY_BYTES_MAX: u32 = 64 << 20;
const REQUEST_BYTES: u32 = 64 << 10;

/// So many programs may wait for locks.
const LOCK_WAITS_MAX: usize = 4_096;

struct Translator {
    fs: Arc<Fs>,
    runtime: Handle,
    under_way: Arc<Semaphore>,
    /// Who waits for locks.
    lock_waits: Arc<Semaphore>,
    /// The kernel keeps nothing of files' content but what is mapped.
    is_direct: bool,
}

impl Translator {
    /// Where the end is of what is appended to, no kernel knows.
    fn fopen_flags(&self, how: OpenHow) -> FopenFlags {
        if self.is_direct || how.append { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() }
    }

    /// Does something, in a task as soon as it waits, and answers with what came of it, unless who asked gives up before.
    fn serve<T, W>(
        &self,
        (caller, data_bytes): (Caller, u32),
        work: impl FnOnce(Arc<Fs>) -> W,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        T: Send,
        W: Future<Output = Result<T, FsError>> + Send + 'static,
    {
        let attended = |fs: Arc<Fs>| {
            let work = work(fs.clone());
            async move {
                fs.attend().await?;
                work.await
            }
        };
        self.serve_though_absent((caller, data_bytes), attended, answer);
    }

    /// The same for what does not wait until the daemons know this mount.
    fn serve_though_absent<T, W>(
        &self,
        (caller, data_bytes): (Caller, u32),
        work: impl FnOnce(Arc<Fs>) -> W,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) where
        T: Send,
        W: Future<Output = Result<T, FsError>> + Send + 'static,
    {
        let (permit, mut work) = (self.permit(data_bytes), Box::pin(work(self.fs.clone())));
        let entered = self.runtime.enter();
        // Who wakes it up it says again in its task.
        let begun = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        if let Poll::Ready(done) = begun {
            drop(permit);
            return answer(done.map_err(errno));
        }
        self.runtime.spawn(async move {
            let done = tokio::select! {
                biased;
                done = work => done,
                () = caller.gives_up() => Err(FsError::Interrupted),
            };
            // Before the answer: whoever has it may unmount, and nothing is to be under way then.
            drop(permit);
            answer(done.map_err(errno));
        });
    }

    /// Does the same for a lock. Who waits for one is not counted among what is under way: whoever has it has to come through to give it up.
    fn serve_lock(
        &self,
        (caller, wanted, waits): (Caller, FileLock, bool),
        (handle, process): (FileHandle, u32),
        reply: ReplyEmpty,
    ) {
        let permit = if waits {
            match self.lock_waits.clone().try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => return reply.error(Errno::ENOLCK),
            }
        } else {
            self.permit(0)
        };
        let fs = self.fs.clone();
        self.runtime.spawn(async move {
            let locked = async {
                fs.attend().await?;
                fs.lock(&caller, (handle.0, process), (wanted, waits)).await
            };
            let done = tokio::select! {
                biased;
                done = locked => done,
                () = caller.gives_up() => Err(FsError::Interrupted),
            };
            drop(fs);
            drop(permit);
            answer_done(done.map_err(errno), reply);
        });
    }

    fn permit(&self, data_bytes: u32) -> OwnedSemaphorePermit {
        let (bytes, under_way) = (REQUEST_BYTES + data_bytes, self.under_way.clone());
        match under_way.clone().try_acquire_many_owned(bytes) {
            Ok(permit) => permit,
            Err(_) => self.runtime.block_on(under_way.acquire_many_owned(bytes)).expect("it is never closed"),
        }
    }
}

impl Filesystem for Translator {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        config.set_max_write(IO_BYTES_MAX).map_err(|_| io::ErrorKind::Unsupported)?;
        config.set_max_background(BACKGROUND_REQUESTS_MAX).map_err(|_| io::ErrorKind::Unsupported)?;
        // Without these other mounts' locks would stay unseen.
        config
            .add_capabilities(InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS)
            .map_err(|_| io::ErrorKind::Unsupported)?;
        // Linux before 6.6 maps nothing that it does not keep. There it keeps what it has of a file until its size or time is another.
        self.is_direct = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        if !self.is_direct {
            config
                .add_capabilities(InitFlags::FUSE_AUTO_INVAL_DATA)
                .map_err(|_| io::ErrorKind::Unsupported)?;
        }
        // A kernel without one of these is slower, or leaves ACLs alone.
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK,
            // The daemons end set-user-ID and the like with what ends them, and no kernel has to ask for the mode first.
            InitFlags::FUSE_HANDLE_KILLPRIV,
            // Where a link leads never changes.
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let caller = caller(request);
        let who = caller.who();
        if let Some(found) = self.fs.lookup_at_once(&who, (parent.0, name)) {
            return answer_found(found.map_err(errno), reply);
        }
        let name = name.to_owned();
        self.serve(
            (caller, 0),
            |fs| async move { fs.lookup(&who, (parent.0, &name)).await },
            |found| answer_found(found, reply),
        );
    }

    fn forget(&self, _request: &Request, inode: INodeNo, lookups: u64) {
        self.fs.forget(inode.0, lookups);
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(shown) = self.fs.attributes_at_once(inode.0) {
            return answer_shown(Ok(shown), reply);
        }
        self.serve(
            (caller(request), 0),
            |fs| async move { fs.attributes(inode.0).await },
            |shown| answer_shown(shown, reply),
        );
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = caller(request);
        let (mode, handle) = (mode.map(mode_bits), handle.map(|handle| handle.0));
        let (atime, mtime) = (atime.map(time), mtime.map(time));
        let wanted = Wanted { mode, uid, gid, size, atime, mtime, handle };
        if let Some(attributes) = self.fs.set_attributes_at_once(&caller, inode.0, &wanted) {
            return answer_shown(Ok((attributes, NO_TIME)), reply);
        }
        self.serve(
            (caller, 0),
            |fs| async move { fs.set_attributes(&caller, inode.0, wanted).await },
            |attributes| answer_shown(attributes.map(|attributes| (attributes, NO_TIME)), reply),
        );
    }

    fn readlink(&self, request: &Request, inode: INodeNo, reply: ReplyData) {
        let caller = caller(request);
        self.serve(
            (caller, 0),
            |fs| async move { fs.read_link(&caller, inode.0).await },
            |target| answer_data(target, reply),
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let make = match Type::from_raw_mode(mode) {
            Type::RegularFile => Make::File,
            Type::Fifo => Make::Fifo,
            Type::Socket => Make::Socket,
            Type::CharacterDevice => Make::CharDevice(rdev),
            Type::BlockDevice => Make::BlockDevice(rdev),
            Type::Directory | Type::Symlink | Type::Unknown => return reply.error(Errno::EINVAL),
        };
        self.make(request, (parent, name), (make, mode_bits(mode), mode_bits(umask)), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.make(request, (parent, name), (Make::Directory, mode_bits(mode), mode_bits(umask)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        self.make(request, (parent, name), (Make::Symlink(target), 0o777, 0), reply);
    }

    fn link(&self, request: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (caller, name) = (caller(request), name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.link(&caller, inode.0, (parent.0, &name)).await },
            |linked| answer_entry(linked, reply),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller(request), name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.unlink(&caller, (parent.0, &name)).await },
            |done| answer_done(done, reply),
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller(request), name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.remove_directory(&caller, (parent.0, &name)).await },
            |done| answer_done(done, reply),
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            flags if flags.is_empty() => RenameHow::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameHow::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameHow::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (caller, name, new_name) = (caller(request), name.to_owned(), new_name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.rename(&caller, (parent.0, &name), (new_parent.0, &new_name), how).await },
            |done| answer_done(done, reply),
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, name, how) = (caller(request), name.to_owned(), open_how(OpenFlags(flags)));
        let mode_and_umask = (mode_bits(mode), mode_bits(umask));
        let flags = self.fopen_flags(how);
        self.serve(
            (caller, 0),
            |fs| async move { fs.create(&caller, (parent.0, &name), mode_and_umask, how).await },
            move |created| match created {
                Ok((attributes, handle)) => reply.created(
                    &NO_TIME,
                    &file_attr(&attributes),
                    generation(&attributes),
                    FileHandle(handle),
                    flags,
                ),
                Err(error) => reply.error(error),
            },
        );
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, how) = (caller(request), open_how(flags));
        let flags = self.fopen_flags(how);
        let entered = self.runtime.enter();
        if let Some(handle) = self.fs.open_at_once(&caller, inode.0, how) {
            return reply.opened(FileHandle(handle), flags);
        }
        drop(entered);
        self.serve(
            (caller, 0),
            |fs| async move { fs.open(&caller, inode.0, how).await },
            move |opened| match opened {
                Ok(handle) => reply.opened(FileHandle(handle), flags),
                Err(error) => reply.error(error),
            },
        );
    }

    fn read(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = size.min(IO_BYTES_MAX);
        let entered = self.runtime.enter();
        if let Some(data) = self.fs.read_at_once(handle.0, offset, length) {
            return reply.data(&data);
        }
        drop(entered);
        self.serve(
            (caller(request), length),
            |fs| async move { fs.read(handle.0, offset, length).await },
            |read| answer_data(read, reply),
        );
    }

    fn write(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if length > IO_BYTES_MAX {
            return reply.error(Errno::EINVAL);
        }
        let data = Bytes::copy_from_slice(data);
        let how = write_how(flags, open_flags);
        // Whoever ends the mount waits for nothing that is only to be answered.
        let fs = Arc::downgrade(&self.fs);
        let answer = move |done| match done {
            Ok(()) => reply.written(length),
            Err(error) => {
                if let Some(fs) = fs.upgrade() {
                    fs.note_failure(handle.0, how);
                }
                reply.error(error);
            }
        };
        if self.fs.asks_disks() {
            let ask = |fs: Arc<Fs>| async move {
                fs.ask_disks().await;
                Ok(())
            };
            self.serve_though_absent((caller(request), 0), ask, drop);
        }
        if let Some(done) = self.fs.write_at_once(handle.0, (offset, &data), how) {
            return answer(done.map_err(errno));
        }
        self.serve(
            (caller(request), length),
            move |fs| async move { fs.write(handle.0, (offset, data), how).await },
            answer,
        );
    }

    /// Nothing is kept back that could fail now.
    fn flush(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let process = self.fs.is_owner(handle.0, owner.0);
        if process.is_none() && !self.fs.settles(handle.0) {
            return answer_done(self.fs.tell_fault(handle.0).map_err(errno), reply);
        }
        self.serve_though_absent(
            (caller(request), 0),
            move |fs| async move {
                if let Some(process) = process {
                    fs.clone().unlock_owner(handle.0, (owner.0, process)).await?;
                }
                fs.settle(handle.0).await?;
                fs.tell_fault(handle.0)
            },
            |done| answer_done(done, reply),
        );
    }

    fn release(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        match self.fs.close_file(handle.0) {
            None => reply.ok(),
            Some(closing) => self.serve(
                (caller(request), 0),
                |_| async move { closing.done().await },
                |done| answer_done(done, reply),
            ),
        }
    }

    fn fsync(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(
            (caller(request), 0),
            |fs| async move { fs.sync(handle.0).await },
            |done| answer_done(done, reply),
        );
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let caller = caller(request);
        self.serve(
            (caller, 0),
            |fs| async move { fs.open_directory(&caller, inode.0).await },
            |opened| match opened {
                Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
                Err(error) => reply.error(error),
            },
        );
    }

    fn readdir(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.serve(
            (caller(request), 0),
            |fs| async move { fs.list(handle.0, offset).await },
            |listed| match listed {
                Ok(entries) => answer_list(entries, reply),
                Err(error) => reply.error(error),
            },
        );
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.close_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(
            (caller(request), 0),
            move |fs| async move { fs.sync_names(handle.0).await },
            |done| answer_done(done, reply),
        );
    }

    fn statfs(&self, request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        if let Some(room) = self.fs.room_at_once() {
            return answer_room(Ok(room), reply);
        }
        self.serve_though_absent(
            (caller(request), 0),
            |fs| async move { fs.room().await },
            |room| answer_room(room, reply),
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = match XattrFlags::from_bits_retain(flags.cast_unsigned()) {
            flags if flags.is_empty() => XattrHow::Any,
            XattrFlags::CREATE => XattrHow::Create,
            XattrFlags::REPLACE => XattrHow::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (caller, name, value) = (caller(request), name.to_owned(), Bytes::copy_from_slice(value));
        self.serve(
            (caller, 0),
            |fs| async move { fs.set_xattr(&caller, inode.0, (&name, value, how)).await },
            |done| answer_done(done, reply),
        );
    }

    fn getxattr(&self, request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if let Some(value) = self.fs.own_xattr(inode.0, name) {
            return answer_xattr(Ok(value), size, reply);
        }
        let (caller, name) = (caller(request), name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.xattr(&caller, inode.0, &name).await },
            move |value| answer_xattr(value, size, reply),
        );
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = caller(request);
        self.serve(
            (caller, 0),
            |fs| async move { fs.xattrs(&caller, inode.0).await },
            move |names| answer_xattr(names, size, reply),
        );
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller(request), name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.remove_xattr(&caller, inode.0, &name).await },
            |done| answer_done(done, reply),
        );
    }

    fn getlk(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        process: u32,
        reply: ReplyLock,
    ) {
        let passed = Passed { handle, owner, range: (start, end), kind, process };
        match lock::wish(request, inode, passed) {
            Ok((lock, Some(mode))) => self.serve(
                (caller(request), 0),
                |fs| async move { fs.in_the_way(handle.0, lock.wanted(mode)).await },
                |found| match found {
                    Ok(found) => {
                        let (lock, process) = found.unzip();
                        let (first, last, kind) =
                            lock::shown(lock.map(|lock: Lock| (lock.stretch, lock.mode)));
                        reply.locked(first, last, kind, process.unwrap_or_default());
                    }
                    Err(error) => reply.error(error),
                },
            ),
            Ok((_, None)) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        process: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let passed = Passed { handle, owner, range: (start, end), kind, process };
        match lock::wish(request, inode, passed) {
            Ok((lock, Some(mode))) => {
                self.serve_lock((caller(request), lock.wanted(mode), waits), (handle, process), reply)
            }
            Ok((lock, None)) => self.serve(
                (caller(request), 0),
                |fs| async move { fs.unlock(handle.0, (lock.owner, lock.kind), lock.stretch).await },
                |done| answer_done(done, reply),
            ),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(how) = allocate_how(mode) else { return reply.error(Errno::EOPNOTSUPP) };
        self.serve(
            (caller(request), 0),
            |fs| async move { fs.allocate(handle.0, (offset, length), how).await },
            |done| answer_done(done, reply),
        );
    }

    fn lseek(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Some(sought) = sought(whence) else { return reply.error(Errno::EINVAL) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        self.serve(
            (caller(request), 0),
            move |fs| async move { fs.seek((inode.0, handle.0), offset, sought).await },
            |found| answer_sought(found, reply),
        );
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _inode: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _to_inode: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        self.serve(
            (caller(request), IO_BYTES_MAX),
            move |fs| async move { fs.copy((from.0, from_offset), (to.0, to_offset), length).await },
            |copied| match copied {
                Ok(bytes) => reply.written(bytes),
                Err(error) => reply.error(error),
            },
        );
    }
}

impl Translator {
    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        make: (Make, u16, u16),
        reply: ReplyEntry,
    ) {
        let (caller, name) = (caller(request), name.to_owned());
        self.serve(
            (caller, 0),
            |fs| async move { fs.make(&caller, (parent.0, &name), make).await },
            |made| answer_entry(made, reply),
        );
    }
}
