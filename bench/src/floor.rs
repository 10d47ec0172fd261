//! What this machine allows: the network, the disk and FUSE with nothing of ours in the way.
//!
//! Later figures are judged as ratios to these, taken in the same run on the same machine, so that a bar means the
//! same on a laptop and in CI. Every figure is the median of several short rounds: one round that the machine spent
//! on something else does not move it.

mod disk;
mod fuse;
mod quic;

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;

use crate::others::Processors;

pub use disk::{DiskFloor, DiskFloorError};
pub use fuse::{FuseFloor, FuseFloorError};
pub use quic::{QuicFloor, QuicFloorError};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the disk is measured: a directory on the disk that will hold the data.
    pub dir: PathBuf,
    /// Rounds of each part.
    pub rounds: NonZeroU32,
}

/// What this machine allows. `docs/benchmarks.md` says what each figure means.
#[derive(Clone, Debug, Serialize)]
pub struct Floor {
    /// Rounds that each figure is the median of.
    pub rounds: u32,
    /// Processors that this process may use.
    pub processors: usize,
    /// The share of the processors' time that other programs used meanwhile: much more than zero spoils the figures.
    pub others_percent: Option<f64>,
    /// Messages through quinn with certificates on.
    #[serde(flatten)]
    pub quic: QuicFloor,
    /// Durable appends to a prepared file.
    #[serde(flatten)]
    pub disk: DiskFloor,
    /// A mounted file system that does nothing.
    #[serde(flatten)]
    pub fuse: FuseFloor,
}

/// Why the floor could not be measured. A machine without FUSE is not among the reasons: it has a floor too.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// The network's part failed.
    #[error("the floor of the network could not be measured")]
    Quic(#[from] QuicFloorError),
    /// The disk's part failed.
    #[error("the floor of the disk could not be measured")]
    Disk(#[from] DiskFloorError),
    /// The file system was mounted and then failed.
    #[error("the floor of FUSE could not be measured")]
    Fuse(#[from] FuseFloorError),
}

/// The parts of a run, for showing how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Messages through quinn.
    Quic,
    /// Durable appends.
    Disk,
    /// A mounted file system that does nothing.
    Fuse,
}

impl Part {
    /// Every part, in the order of a run.
    pub const ALL: [Self; 3] = [Self::Quic, Self::Disk, Self::Fuse];

    /// What the part is about, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quic => "network",
            Self::Disk => "disk",
            Self::Fuse => "FUSE",
        }
    }
}

/// Measures everything, part after part. `before_round` is told of every round before it begins.
pub fn run(options: &Options, mut before_round: impl FnMut(Part)) -> Result<Floor, FloorError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let rounds = options.rounds;
    let before = Processors::now();
    let (quic, disk) = network_and_disk(options, &mut before_round)?;
    let fuse = fuse::measure(rounds, || before_round(Part::Fuse))?;
    let others_percent =
        before.zip(Processors::now()).map(|(before, after)| after.others_percent_since(before));
    Ok(Floor { rounds: rounds.get(), processors, others_percent, quic, disk, fuse })
}

/// Measures what files stand on.
pub fn network_and_disk(
    options: &Options,
    mut before_round: impl FnMut(Part),
) -> Result<(QuicFloor, DiskFloor), FloorError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let quic = quic::measure(options.rounds, processors, || before_round(Part::Quic))?;
    let disk = disk::measure(&options.dir, options.rounds, || before_round(Part::Disk))?;
    Ok((quic, disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every figure must be there and be possible; a part that is unavailable says why.
    #[test]
    fn one_round_measures_everything() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { dir: dir.path().to_owned(), rounds: NonZeroU32::MIN };
        let mut parts = Vec::new();
        let floor = run(&options, |part| parts.push(part)).unwrap();
        let json = serde_json::to_value(&floor).unwrap();

        let fuse_missing = json["fuse_unavailable"].is_string();
        for (key, figure) in json.as_object().unwrap() {
            let may_be_null = key == "fuse_unavailable" || (fuse_missing && key.starts_with("fuse_"));
            match figure.as_f64() {
                Some(figure) => assert!(figure > 0.0 || key == "others_percent", "{key} is {figure}"),
                None => assert!(figure.is_string() || (may_be_null && figure.is_null()), "{key} is {figure}"),
            }
        }
        assert_eq!(parts.contains(&Part::Fuse), !fuse_missing);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something stayed behind");
    }
}
