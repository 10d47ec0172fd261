//! Where a program works with files: in a mount, as any program does, or with the client library where nothing can be mounted.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, Config, Volume, VolumeError, VolumeFile};
use namespace::{InodeId, Name, Who};
use node::{OpenMode, VolumeName};
use tokio::runtime::Handle;

/// Far above every bound: whoever waits longer is told of an error.
const PATIENCE: Duration = Duration::from_secs(60);
/// Permissions of what is created.
const MODE: u16 = 0o644;

/// Where a program works.
#[derive(Clone)]
pub(crate) enum Seat {
    /// In this folder.
    Mount(PathBuf),
    /// As a client of its own.
    Library(Library),
}

/// A client of its own, for threads that wait.
#[derive(Clone)]
pub(crate) struct Library {
    runtime: Handle,
    client: Arc<Client>,
    volume: Arc<Volume>,
}

/// An open file.
pub(crate) enum Opened {
    Mount(File),
    Library(Handle, Box<VolumeFile>),
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Appending,
}

impl Library {
    /// Connects to the daemons. One that does not cache asks them about everything.
    pub(crate) fn connect(
        runtime: &Handle,
        config: &Config,
        (name, caches): (&VolumeName, bool),
    ) -> io::Result<Self> {
        let connected = async {
            let client = Client::connect(config).await.map_err(io::Error::other)?.with_patience(PATIENCE);
            let client = if caches { client } else { client.without_cache() };
            let volume = client.volume(name).await.map_err(io::Error::other)?;
            io::Result::Ok((Arc::new(client), Arc::new(volume)))
        };
        let (client, volume) = runtime.block_on(connected)?;
        Ok(Self { runtime: runtime.clone(), client, volume })
    }

    pub(crate) const fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(crate) const fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What has a name.
    pub(crate) fn find(&self, name: &str) -> io::Result<InodeId> {
        let who = Who::root();
        let found = self.volume.lookup(&who, InodeId::ROOT, entry(name)?);
        Ok(self.runtime.block_on(found).map_err(failed)?.inode)
    }

    fn create(&self, name: &str) -> io::Result<Opened> {
        let (who, place) = (Who::root(), (InodeId::ROOT, entry(name)?));
        let created = self.client.create_and_open(&self.volume, &who, place, (MODE, 0));
        let (_, file) = self.runtime.block_on(created).map_err(failed)?;
        Ok(Opened::Library(self.runtime.clone(), Box::new(file)))
    }

    fn open(&self, name: &str, what: For) -> io::Result<Opened> {
        let mode = if what == For::Reading { OpenMode::Read } else { OpenMode::ReadWrite };
        let (who, inode) = (Who::root(), self.find(name)?);
        let opened = self.client.open_file(&self.volume, &who, (inode, mode));
        let file = self.runtime.block_on(opened).map_err(failed)?;
        Ok(Opened::Library(self.runtime.clone(), Box::new(file)))
    }
}

impl Seat {
    /// Creates a file that is not there, and opens it to write and to read.
    pub(crate) fn create(&self, name: &str) -> io::Result<Opened> {
        match self {
            Self::Mount(folder) => {
                let options = File::options().read(true).write(true).create_new(true).open(folder.join(name));
                Ok(Opened::Mount(options?))
            }
            Self::Library(library) => library.create(name),
        }
    }

    /// Opens a file that is there.
    pub(crate) fn open(&self, name: &str, what: For) -> io::Result<Opened> {
        match self {
            Self::Mount(folder) => {
                let mut options = File::options();
                options.read(what == For::Reading).append(what == For::Appending);
                Ok(Opened::Mount(options.open(folder.join(name))?))
            }
            Self::Library(library) => library.open(name, what),
        }
    }
}

impl Opened {
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Mount(file) => file.write_all_at(data, offset),
            Self::Library(runtime, file) => {
                runtime.block_on(file.write(offset, Bytes::copy_from_slice(data))).map_err(failed)
            }
        }
    }

    pub(crate) fn append(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Mount(file) => file.write_all(data),
            Self::Library(runtime, file) => {
                runtime.block_on(file.append(Bytes::copy_from_slice(data))).map(drop).map_err(failed)
            }
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Mount(file) => file.sync_all(),
            Self::Library(runtime, file) => runtime.block_on(file.sync()).map_err(failed),
        }
    }

    /// Reads so many bytes, fewer where the file ends.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut read = Vec::with_capacity(length);
        while read.len() < length {
            let (at, rest) = (offset + read.len() as u64, length - read.len());
            let before = read.len();
            match self {
                Self::Mount(file) => {
                    read.resize(length, 0);
                    let count = file.read_at(&mut read[before..], at)?;
                    read.truncate(before + count);
                }
                Self::Library(runtime, file) => {
                    read.extend(runtime.block_on(file.read(at, rest as u64)).map_err(failed)?);
                }
            }
            if read.len() == before {
                break;
            }
        }
        Ok(read)
    }

    pub(crate) fn close(self) -> io::Result<()> {
        match self {
            // The kernel says nothing of what a mount has against it: `sync` has said that.
            Self::Mount(file) => drop(file),
            Self::Library(runtime, file) => runtime.block_on(file.close()).map_err(failed)?,
        }
        Ok(())
    }
}

fn entry(name: &str) -> io::Result<Name> {
    Name::new(name.as_bytes()).map_err(io::Error::other)
}

fn failed(error: VolumeError) -> io::Error {
    io::Error::other(error)
}
