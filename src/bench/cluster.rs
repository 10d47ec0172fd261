//! A cluster of daemons for one measurement: made, started, and taken away again.
//!
//! A benchmark that is killed cannot take its folder away. The next one does: a folder whose lock nobody holds is
//! nobody's any more.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use ::bench::daemons::Daemons;
use ::bench::netns::Namespaces;
use anyhow::Context;
use node::Settings;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::cluster_dir;
use crate::local::free_addresses;

const PREFIX: &str = "fleasefs-bench-";
/// Stands in the folder and is locked by the benchmark that uses it.
const LOCK: &str = "lock";
/// A folder that is younger may be about to be locked.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// Running daemons and the way to them. The order of the fields is the order in which they go.
pub(crate) struct Cluster {
    pub(crate) daemons: Daemons,
    pub(crate) config: client::Config,
    folder: TempDir,
    _lock: File,
}

impl Cluster {
    /// Starts `members` daemons, all of them members of every cell, with their data in a fresh folder below `dir`.
    pub(crate) fn start(members: u8, settings: Settings, dir: Option<&Path>) -> anyhow::Result<Self> {
        let addresses = free_addresses(members.into())?;
        Self::start_at((addresses, None), settings, dir)
    }

    /// The same, each daemon in a network namespace of its own.
    pub(super) fn start_apart(members: u8, namespaces: Namespaces) -> anyhow::Result<Self> {
        let addresses = Namespaces::addresses(members.into());
        Self::start_at((addresses, Some(namespaces)), Settings::default(), None)
    }

    /// A folder for whatever else belongs to the measurement; it goes with the cluster.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn start_at(
        (addresses, namespaces): (Vec<String>, Option<Namespaces>),
        settings: Settings,
        dir: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let members = u8::try_from(addresses.len()).context("there are few daemons")?;
        let parent = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        take_away_abandoned(&parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
        let folder = folder.with_context(|| format!("could not make a folder in {}", parent.display()))?;
        let lock = File::create(folder.path().join(LOCK)).context("could not mark the folder as in use")?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .context("could not mark the folder as in use")?;
        let home = folder.path().join("cluster");
        let plan = cluster_dir::Plan {
            addresses,
            replicas: Some(members),
            settings,
            clients: Vec::new(),
            days: cluster_dir::DAYS_DEFAULT,
            index: ::osd::store::index::Engine::default(),
        };
        cluster_dir::create(&home, &plan, crate::init::now_s()?)?;
        let program = std::env::current_exe().context("could not find this program")?;
        let daemons = Daemons::start_in(namespaces, (&program, &home), members.into())
            .context("could not start the daemons")?;
        let config = client::Config::find(Some(&home))?;
        Ok(Self { daemons, config, folder, _lock: lock })
    }
}

/// Removes the folders of benchmarks that were killed. What cannot be removed is left for a later one.
fn take_away_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let is_abandoned = File::open(entry.path().join(LOCK)).is_ok_and(|lock| {
            let age = lock.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            let is_old = age.is_some_and(|age| age > ABANDONED_AFTER);
            is_old && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if is_abandoned {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_benchmarks_are_taken_away_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, age: Duration| {
            fs::create_dir(parent.path().join(name)).unwrap();
            let lock = File::create(parent.path().join(name).join(LOCK)).unwrap();
            lock.set_modified(std::time::SystemTime::now() - age).unwrap();
            lock
        };
        let old = ABANDONED_AFTER * 2;
        let used = make("fleasefs-bench-used", old);
        flock(&used, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(make("fleasefs-bench-new", Duration::ZERO));
        drop(make("fleasefs-bench-abandoned", old));
        drop(make("somebody-else", old));
        take_away_abandoned(parent.path());
        let mut left: Vec<_> =
            fs::read_dir(&parent).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["fleasefs-bench-new", "fleasefs-bench-used", "somebody-else"]);
    }
}
