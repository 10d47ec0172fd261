//! A cluster with a volume that programs use: through two mounts, or as two clients where nothing can be mounted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::NodeId;
use client::{Config, DaemonState};
use namespace::InodeId;
use node::{VolumeName, file_object};
use tokio::runtime::Runtime;

use super::FailoverError;
use super::load::{Checked, Hands, Ledger};
use super::seat::{Library, Seat};
use crate::daemons::Daemons;
use crate::mounted::Mounted;

/// How long a cluster has to come back after an event.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(50);
/// How long programs have to come to the end of what they do.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// The same once the cluster is to be taken away.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
const STOP_POLL: Duration = Duration::from_millis(5);
/// The volume that is used.
const VOLUME: &str = "main";

/// The cluster and the ways to it. The order of the fields is the order in which they go.
pub struct Stage<'a> {
    pub(crate) seats: [Seat; 2],
    mounts: Vec<Mounted>,
    /// On the disk that the daemons use.
    pub(crate) folder: PathBuf,
    /// Asks the daemons about everything, and is no part of the load.
    pub(crate) control: Library,
    pub(crate) daemons: &'a mut Daemons,
    pub(crate) config: &'a Config,
    /// Why nothing is mounted, if that is so.
    pub no_mount: Option<String>,
    /// Whether all is to end.
    pub(crate) stop: &'a AtomicBool,
    runtime: Runtime,
}

/// How programs are to use it.
#[derive(Clone, Debug)]
pub struct Access {
    /// This program, which mounts.
    pub program: PathBuf,
    /// Where there is room for folders to mount on.
    pub folder: PathBuf,
    /// Whether nothing is to be mounted.
    pub library: bool,
}

impl<'a> Stage<'a> {
    /// Makes the volume of a running cluster, and mounts it twice if that can be done. It ends early when `stop` is set.
    pub fn set_up(
        (daemons, config): (&'a mut Daemons, &'a Config),
        access: &Access,
        stop: &'a AtomicBool,
    ) -> Result<Self, FailoverError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let name = VolumeName::parse(VOLUME).map_err(io::Error::other)?;
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        runtime.block_on(async {
            let client = client::Client::connect(config).await?;
            client.create_volume(&name, user).await.map_err(io::Error::other)?;
            client.close().await;
            Ok::<_, FailoverError>(())
        })?;
        let connect = |caches| Library::connect(runtime.handle(), config, (&name, caches));
        let control = connect(false)?;
        let (mounts, no_mount) = match mount_twice(config, access) {
            Ok(mounts) => (mounts, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let seats = match &mounts[..] {
            [one, other] => [one, other].map(|mounted| Seat::Mount(mounted.point().to_owned())),
            _ => [Seat::Library(connect(true)?), Seat::Library(connect(true)?)],
        };
        Ok(Self {
            seats,
            mounts,
            folder: access.folder.clone(),
            control,
            daemons,
            config,
            no_mount,
            stop,
            runtime,
        })
    }

    /// How programs use it.
    pub const fn over(&self) -> &'static str {
        if self.mounts.is_empty() { "library" } else { "mount" }
    }

    /// Whether all is to end.
    pub(crate) fn check_stop(&self) -> Result<(), FailoverError> {
        if self.stop.load(Ordering::Relaxed) { Err(FailoverError::Interrupted) } else { Ok(()) }
    }

    /// Sleeps, and calls `meanwhile` now and then.
    pub(crate) fn watch(&self, span: Duration, meanwhile: &mut dyn FnMut()) -> Result<(), FailoverError> {
        let end = Instant::now() + span;
        while let Some(rest) = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            self.check_stop()?;
            meanwhile();
            std::thread::sleep(rest.min(READY_POLL));
        }
        Ok(())
    }

    /// What the daemons say of themselves.
    pub(crate) fn states(&self) -> Vec<DaemonState> {
        self.runtime.block_on(self.control.client().status())
    }

    /// The same, for another thread.
    pub(crate) fn asker(&self) -> impl Fn() -> Vec<DaemonState> + Send + 'static {
        let (runtime, client) = (self.runtime.handle().clone(), Arc::clone(self.control.client()));
        move || runtime.block_on(client.status())
    }

    /// Returns when nothing is wrong with any daemon.
    pub(crate) fn wait_until_well(&self, meanwhile: &mut dyn FnMut()) -> Result<(), FailoverError> {
        let begun = Instant::now();
        loop {
            let problems = client::problems(&self.states(), 0);
            if problems.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > READY_TIMEOUT {
                return Err(FailoverError::NotReady(READY_TIMEOUT, problems.join("; ")));
            }
            self.watch(READY_POLL, meanwhile)?;
        }
    }

    /// Who is primary of the volume's tree, as whoever answers for it just now says.
    pub(crate) fn primary(&self) -> Result<NodeId, FailoverError> {
        let volume = self.control.volume();
        self.runtime.block_on(volume.attributes(InodeId::ROOT)).map_err(io::Error::other)?;
        volume.primary().ok_or(FailoverError::NoPrimary)
    }

    /// Who is asked first for the content of a file, and so becomes its primary when nothing has happened yet.
    pub(crate) fn preferred(&self, name: &str) -> Result<NodeId, FailoverError> {
        let content = file_object(self.control.volume().object(), self.control.find(name)?);
        self.config.map.members(content).first().copied().ok_or(FailoverError::NoPrimary)
    }

    /// Has programs come to their end.
    pub(crate) fn stop_hands(&mut self, hands: &Hands) -> Result<(), FailoverError> {
        hands.stop();
        if wait_for(hands, STOP_TIMEOUT, self.stop) {
            return Ok(());
        }
        // Whoever waits in a mount is told that it is gone.
        if !wait_for(hands, LEAVE_TIMEOUT, &AtomicBool::new(false)) {
            self.mounts.iter_mut().for_each(Mounted::kill);
        }
        self.check_stop()?;
        Err(FailoverError::Stuck(STOP_TIMEOUT))
    }

    /// Compares all that was acknowledged with what the daemons have.
    pub(crate) fn check(
        &self,
        ledger: &Ledger,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Checked, FailoverError> {
        let checked = ledger.check(&Seat::Library(self.control.clone()), |bytes| {
            progress(bytes);
            !self.stop.load(Ordering::Relaxed)
        });
        self.check_stop()?;
        Ok(checked?)
    }
}

/// Whether they have come to their end in time.
fn wait_for(hands: &Hands, patience: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + patience;
    while !hands.are_done() {
        if Instant::now() > end || stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(STOP_POLL);
    }
    true
}

fn mount_twice(config: &Config, access: &Access) -> io::Result<Vec<Mounted>> {
    if access.library {
        return Err(io::Error::other("it was not to be"));
    }
    if !std::fs::exists("/dev/fuse")? {
        return Err(io::Error::other("there is no /dev/fuse here"));
    }
    // A client's configuration stands in a folder of its own, which is as good as the cluster's.
    let cluster = config.path.parent().unwrap_or(Path::new("."));
    let mount = |name| Mounted::start(&access.program, cluster, &access.folder.join(name));
    ["mount-1", "mount-2"].into_iter().map(mount).collect()
}
