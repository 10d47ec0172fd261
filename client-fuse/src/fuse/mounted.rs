//! A mounted volume: the threads that serve it, and how it ends.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::notify::Notifier;
use super::{LOCK_WAITS_MAX, Translator, UNDER_WAY_BYTES_MAX};
use crate::fs::{Fs, Kernel};
use crate::options::Options;

/// Threads that take requests in.
const THREADS: usize = 2;

/// A mounted volume and the threads that serve it.
pub(crate) struct Mounted {
    session: BackgroundSession,
    fs: Arc<Fs>,
    under_way: Arc<Semaphore>,
}

/// Mounts `fs` at `point` and serves it with tasks of `runtime`.
pub(crate) fn mount(fs: Fs, point: &Path, options: &Options, runtime: Handle) -> io::Result<Mounted> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::CUSTOM(format!("subtype={}", crate::SUBTYPE)),
        MountOption::DefaultPermissions,
    ];
    let flags = [
        (options.is_read_only, MountOption::RO),
        (options.devices, MountOption::Dev),
        (options.set_ids, MountOption::Suid),
        (!options.executables, MountOption::NoExec),
    ];
    config.mount_options.extend(flags.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, flag)| flag));
    config.acl = if options.others { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let fs = Arc::new(fs);
    let under_way = Arc::new(Semaphore::new(UNDER_WAY_BYTES_MAX as usize));
    let lock_waits = Arc::new(Semaphore::new(LOCK_WAITS_MAX));
    let translator = Translator {
        fs: fs.clone(),
        runtime: runtime.clone(),
        under_way: under_way.clone(),
        lock_waits,
        is_direct: true,
    };
    let session = Session::new(translator, point, &config)?;
    let notifier = Arc::new(Notifier::new(&session)?);
    let (writer, namer) = (notifier.clone(), notifier.clone());
    fs.mounted(Kernel {
        drop_attributes: Box::new(move |number| notifier.drop_attributes(number)),
        drop_name: Arc::new(move |dir, name| namer.drop_name(dir, name)),
        write_mapped: Arc::new(move |number| writer.write_mapped(number)),
        runtime,
    })?;
    let session = session.spawn()?;
    Ok(Mounted { session, fs, under_way })
}

impl Mounted {
    /// For whoever ends the mount although it is used.
    pub(crate) fn parting(&self) -> Parting {
        Parting(Arc::downgrade(&self.fs))
    }

    /// Waits until nothing is mounted and no file is open any more. Returns what the threads served; it is nobody else's
    /// once all that was under way has ended, which [`settled`](Served::settled) waits for, but for what a process that was killed still gives up.
    pub(crate) fn join(self) -> Served {
        // A thread that ended with an error has nobody left to serve.
        let _ = self.session.join();
        Served { fs: self.fs, under_way: self.under_way }
    }
}

/// Takes leave of the daemons for a mount that is still used when its process ends.
#[derive(Clone)]
pub struct Parting(Weak<Fs>);

impl Parting {
    /// What was written is sent, and what is open and locked through the mount is given up, so that nobody waits for it. False if whoever serves it
    /// takes leave already.
    pub async fn leave(&self) -> bool {
        let Some(fs) = self.0.upgrade() else { return false };
        fs.leave().await;
        true
    }
}

/// What was mounted. Whoever drops it leaves the daemons to find out that the client has gone.
pub struct Served {
    fs: Arc<Fs>,
    under_way: Arc<Semaphore>,
}

impl Served {
    /// Waits until all that was under way has ended, and takes leave of the daemons.
    pub async fn settled(self) {
        // It is never closed.
        let _ = self.under_way.acquire_many(UNDER_WAY_BYTES_MAX).await;
        self.fs.leave().await;
        if let Some(fs) = Arc::into_inner(self.fs) {
            fs.close().await;
        }
    }
}
