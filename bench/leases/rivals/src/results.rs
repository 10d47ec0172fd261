//! All measurements of one run, as they lie in its folder, and what they come to.
//!
//! A measurement is a file `runs/EXPERIMENT.LOAD.SYSTEM.ROUND.json`. Rounds of the same experiment, under the same load,
//! of the same system become one entry with the middle of each figure.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk_load::DiskLoad;
use crate::report::{Figures, Kept, Measurement};

/// The experiment that the others are held against: single requests, data on the disk.
pub(crate) const DEFAULT: &str = "default";

/// The load of an idle disk.
pub(crate) const NO_LOAD: &str = "none";

/// Why a run's folder gives no results.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResultsError {
    /// The folder or a file in it.
    #[error("cannot use {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        source: io::Error,
    },
    /// A file is not what a measurement prints.
    #[error("{path} holds no measurement: {source}; remove it and measure again")]
    Format { path: PathBuf, source: serde_json::Error },
    /// A file is called otherwise.
    #[error("{path} is not called EXPERIMENT.LOAD.SYSTEM.ROUND.json; it is none of ours, move it elsewhere")]
    Name { path: PathBuf },
    /// A system was not measured.
    #[error("{path} has no unloaded batches of {system}; measure them first")]
    Missing { path: PathBuf, system: String },
}

/// The whole of `results.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// What was done to the disk while systems were measured under it.
    pub(crate) disk_loads: Vec<DiskLoad>,
    pub(crate) results: Vec<Entry>,
}

/// Where it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
}

/// The rounds of one experiment under one load with one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) experiment: String,
    pub(crate) load: String,
    pub(crate) system: String,
    pub(crate) version: String,
    pub(crate) file_system: String,
    pub(crate) leases_per_request: u64,
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
    /// The most rounds that any figure below is the middle of.
    pub(crate) rounds: usize,
    /// By size.
    pub(crate) batches: Vec<Figures>,
    /// At half of the peak.
    pub(crate) rated: Option<Figures>,
    /// Of the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Kept>,
}

impl Entry {
    /// The most leases per second that it reached with any batch.
    pub(crate) fn peak(&self) -> Option<&Figures> {
        self.batches.iter().max_by(|a, b| a.leases_per_second.total_cmp(&b.leases_per_second))
    }
}

impl Results {
    /// Reads all measurements in `folder`.
    pub(crate) fn collect(folder: &Path) -> Result<Self, ResultsError> {
        let mut groups: BTreeMap<[String; 3], Vec<Measurement>> = BTreeMap::new();
        for path in files(&folder.join("runs"))? {
            let measurement: Measurement = read(&path)?;
            groups.entry(labels(&path)?).or_default().push(measurement);
        }
        let results = groups.into_iter().filter_map(|(labels, rounds)| entry(labels, &rounds)).collect();
        let loads: Result<Vec<DiskLoad>, _> =
            files(&folder.join("loads"))?.iter().map(|path| read(path)).collect();
        Ok(Self { machine: Machine::here(), disk_loads: loads?, results })
    }

    pub(crate) fn find(&self, experiment: &str, load: &str, system: &str) -> Option<&Entry> {
        self.results
            .iter()
            .find(|entry| entry.experiment == experiment && entry.load == load && entry.system == system)
    }

    /// Leases kept alive, by how long one lasts.
    pub(crate) fn kept(&self) -> Vec<&Kept> {
        let mut kept: Vec<&Kept> = self.results.iter().filter_map(|entry| entry.kept.as_ref()).collect();
        kept.sort_by_key(|kept| kept.t_max_ms);
        kept
    }

    /// All systems, in the order of their names.
    pub(crate) fn systems(&self) -> Vec<&str> {
        let mut systems: Vec<&str> = self.results.iter().map(|entry| entry.system.as_str()).collect();
        systems.sort_unstable();
        systems.dedup();
        systems
    }
}

impl Machine {
    fn here() -> Self {
        let system = rustix::system::uname();
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_kib = memory.lines().find_map(|line| {
            let value = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
            value.parse::<f64>().ok()
        });
        Self {
            processor: model.map(|(_, name)| name.to_owned()).unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (memory_kib.unwrap_or_default() / f64::from(1 << 20)).round(),
            kernel: system.release().to_string_lossy().into_owned(),
        }
    }
}

/// Half of what `system` reaches on an idle disk, in leases per second.
pub(crate) fn half_of_peak(folder: &Path, system: &str) -> Result<f64, ResultsError> {
    let results = Results::collect(folder)?;
    let peak = results.find(DEFAULT, NO_LOAD, system).and_then(Entry::peak);
    let peak =
        peak.ok_or_else(|| ResultsError::Missing { path: folder.to_owned(), system: system.to_owned() })?;
    Ok((peak.leases_per_second / 2.0).round())
}

fn entry([experiment, load, system]: [String; 3], rounds: &[Measurement]) -> Option<Entry> {
    let first = rounds.first()?;
    let mut batches: BTreeMap<u64, Vec<&Figures>> = BTreeMap::new();
    for figures in rounds.iter().flat_map(|round| &round.batches) {
        batches.entry(figures.leases).or_default().push(figures);
    }
    let rated: Vec<&Figures> = rounds.iter().filter_map(|round| round.rated.as_ref()).collect();
    Some(Entry {
        experiment,
        load,
        system,
        version: first.version.clone(),
        file_system: first.file_system.clone(),
        leases_per_request: first.leases_per_request,
        connections: first.connections,
        in_flight: first.in_flight,
        rounds: batches.values().map(Vec::len).chain([rated.len()]).max().unwrap_or_default(),
        batches: batches.values().filter_map(|rounds| Figures::middle(rounds)).collect(),
        rated: Figures::middle(&rated),
        kept: first.kept.clone(),
    })
}

/// Experiment, load and system, from a file's name.
fn labels(path: &Path) -> Result<[String; 3], ResultsError> {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let parts: Vec<String> = name.split('.').map(str::to_owned).collect();
    match <[String; 4]>::try_from(parts) {
        Ok([experiment, load, system, _]) => Ok([experiment, load, system]),
        Err(_) => Err(ResultsError::Name { path: path.to_owned() }),
    }
}

/// The JSON files of a folder, in the order of their names; none if there is no folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ResultsError> {
    let failed = |source| ResultsError::File { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        files.extend(path.extension().is_some_and(|kind| kind == "json").then_some(path));
    }
    files.sort();
    Ok(files)
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, ResultsError> {
    let text =
        fs::read_to_string(path).map_err(|source| ResultsError::File { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|source| ResultsError::Format { path: path.to_owned(), source })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A measurement of `system` with batches of these sizes and speeds.
    pub(crate) fn measurement(system: &str, batches: &[(u64, f64)]) -> Measurement {
        let figures = |&(leases, rate): &(u64, f64)| Figures {
            leases,
            granted: leases,
            leases_per_second: rate,
            p50_us: 1_500.0,
            p99_us: 9_000.0,
            servers_cpu_s_per_1000: 0.25,
            ..Figures::default()
        };
        Measurement {
            system: system.to_owned(),
            version: "1.0".to_owned(),
            members: 3,
            file_system: "ext4".to_owned(),
            leases_per_request: 1,
            connections: 6,
            in_flight: 768,
            warm_up_leases: 10,
            batches: batches.iter().map(figures).collect(),
            rated: None,
            kept: None,
        }
    }

    /// A measurement of leases that were kept alive.
    pub(crate) fn keeping(leases: u64, t_max_ms: u64) -> Measurement {
        let (seconds, renewals_per_second, cpu_percent_of_machine) = (20.0, 75_000.0, 60.0);
        let kept = Kept { leases, t_max_ms, seconds, lost: 0, renewals_per_second, cpu_percent_of_machine };
        Measurement { kept: Some(kept), ..measurement("fleasefs", &[]) }
    }

    pub(crate) fn save(folder: &Path, name: &str, measurement: &Measurement) {
        fs::create_dir_all(folder.join("runs")).unwrap();
        fs::write(folder.join("runs").join(name), measurement.to_string()).unwrap();
    }

    #[test]
    fn rounds_become_one_entry_with_their_middle() {
        let folder = tempfile::tempdir().unwrap();
        let half = Measurement { rated: Some(Figures::default()), ..measurement("etcd", &[]) };
        save(folder.path(), "default.none.etcd.1.json", &measurement("etcd", &[(10, 100.0), (20, 300.0)]));
        save(folder.path(), "default.none.etcd.2.json", &measurement("etcd", &[(10, 200.0), (20, 500.0)]));
        save(folder.path(), "default.none.etcd.half-1.json", &half);
        save(folder.path(), "tmpfs.none.etcd.1.json", &measurement("etcd", &[(10, 900.0)]));
        let results = Results::collect(folder.path()).unwrap();
        let entry = results.find("default", "none", "etcd").unwrap();
        let rates: Vec<f64> = entry.batches.iter().map(|batch| batch.leases_per_second).collect();
        assert_eq!((rates, entry.rounds, entry.rated.is_some()), (vec![150.0, 400.0], 2, true));
        assert_eq!(results.results.len(), 2);
        assert_eq!(half_of_peak(folder.path(), "etcd").unwrap(), 200.0);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(half_of_peak(folder.path(), "etcd").unwrap_err().to_string().contains("etcd"));
        save(folder.path(), "etcd.json", &measurement("etcd", &[]));
        assert!(Results::collect(folder.path()).unwrap_err().to_string().contains("EXPERIMENT.LOAD"));
        fs::write(folder.path().join("runs/etcd.json"), "{}").unwrap();
        assert!(Results::collect(folder.path()).unwrap_err().to_string().contains("runs/etcd.json"));
    }
}
