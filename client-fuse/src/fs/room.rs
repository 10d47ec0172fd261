//! How much room there is, as `df` shows it: what is in the volume, and what may still be written.
//!
//! That is what the volume's limit leaves, or what the disks have left, if that is less. Each daemon says of its own disk what it takes. Files
//! are spread evenly over the daemons, so the disk with the least room ends it: then some can be written no more.
//!
//! Programs ask for this at odd times, and `df` of all mounts of a machine. So nobody waits long for daemons that are away: what was known last
//! is shown instead. The disks are asked about once a second, whoever asks.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::NodeId;
use namespace::Volume as Counts;
use namespace::limits::BYTES_MAX_DEFAULT;
use tokio::time::timeout;

use super::{Fs, FsError};
use crate::clock;

/// Programs that watch how much room there is ask far more often than that changes.
const COUNTS_GOOD_FOR: Duration = Duration::from_millis(200);
/// No daemon is asked about its disk more often.
const DISKS_ASKED_EVERY: Duration = Duration::from_secs(1);
/// What they have said is relied upon for so long. While files are written they are asked all the time.
const DISKS_GOOD_FOR: Duration = Duration::from_secs(5);
/// Whoever closes a file that he may have written waits until the daemons have it, if they have less room than this: else nobody would tell him that they
/// have none. A mount does not write so much before it hears from them again.
const LITTLE_BYTES: u64 = 1 << 30;
/// Nobody waits longer for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is shown of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) used_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) inodes_max: u64,
    pub(crate) inodes_free: u64,
}

/// What is known of it.
#[derive(Default)]
pub(super) struct Known {
    /// What was in the volume, and when that was asked.
    counts: Option<(Instant, Counts)>,
    /// What each daemon has said last that its disk takes.
    disks: BTreeMap<NodeId, u64>,
    disks_asked: Option<Instant>,
    disks_heard: Option<Instant>,
}

impl Fs {
    /// How much room there is, or was when daemons last said so.
    pub(crate) async fn room(&self) -> Result<Room, FsError> {
        let asked = clock::now();
        let asks_disks = self.known_room().asks_disks(asked);
        let counts = timeout(PATIENCE, async {
            self.attend().await?;
            Ok::<_, FsError>(self.now().volume.counts().await?)
        });
        let disks = async {
            if asks_disks {
                self.ask_disks().await;
            }
        };
        let (counts, ()) = tokio::join!(counts, disks);
        let mut known = self.known_room();
        match counts {
            Ok(counts) => known.counts = Some((asked, counts?)),
            Err(_) => tracing::debug!("no daemon has said in time what is in the volume"),
        }
        known.room(self.spread()).ok_or(FsError::Unanswered)
    }

    /// The same, if it was asked for a moment ago.
    pub(crate) fn room_at_once(&self) -> Option<Room> {
        let known = self.known_room();
        let (asked, _) = known.counts?;
        (clock::now() < asked + COUNTS_GOOD_FOR).then(|| known.room(self.spread()))?
    }

    /// Somebody writes: whether it is time to ask the daemons what room their disks have.
    pub(crate) fn asks_disks(&self) -> bool {
        self.known_room().asks_disks(clock::now())
    }

    pub(crate) async fn ask_disks(&self) {
        let states = self.now().client.status_within(PATIENCE).await;
        let mut known = self.known_room();
        let disks = states.iter().filter_map(|state| Some((state.node, state.status.as_ref().ok()?)));
        known.disks.extend(disks.map(|(node, status)| (node, status.disk_free_bytes)));
        known.disks_heard = Some(clock::now());
    }

    /// Whether there is little room; none if that was not asked for long.
    pub(super) fn has_little_room(&self) -> Option<bool> {
        self.known_room().is_little(clock::now(), self.spread())
    }

    /// How many daemons there are, and how many of them have each file.
    fn spread(&self) -> (usize, u8) {
        let identity = self.now();
        let map = identity.client.map();
        (map.osds().len(), map.replicas())
    }

    fn known_room(&self) -> MutexGuard<'_, Known> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Whether daemons are to be asked about their disks now.
    fn asks_disks(&mut self, now: Instant) -> bool {
        let is_due = self.disks_asked.is_none_or(|asked| now >= asked + DISKS_ASKED_EVERY);
        if is_due {
            self.disks_asked = Some(now);
        }
        is_due
    }

    fn is_little(&self, now: Instant, spread: (usize, u8)) -> Option<bool> {
        self.disks_heard.filter(|heard| now < *heard + DISKS_GOOD_FOR)?;
        let fullest = self.disks.values().min().is_some_and(|least| *least < LITTLE_BYTES);
        Some(fullest || self.room(spread).is_some_and(|room| room.free_bytes < LITTLE_BYTES))
    }

    fn room(&self, (daemons, replicas): (usize, u8)) -> Option<Room> {
        let (_, Counts { bytes, bytes_max, inodes, inodes_max, .. }) = self.counts?;
        let used_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let limit = match bytes_max {
            BYTES_MAX_DEFAULT => u64::MAX,
            bytes_max => bytes_max.saturating_sub(used_bytes),
        };
        let on_disks = |least: u64| u128::from(least) * daemons as u128 / u128::from(replicas);
        let free = self.disks.values().min().map_or(limit.into(), |least| on_disks(*least).min(limit.into()));
        let free_bytes = u64::try_from(free).expect("it is no more than the limit leaves");
        Some(Room { used_bytes, free_bytes, inodes_max, inodes_free: inodes_max.saturating_sub(inodes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn known(bytes_max: u64, disks: &[u64]) -> Known {
        let counts = Counts { inodes: 3, inodes_max: 10, bytes: u128::from(GIB), bytes_max, clients: 1 };
        let disks = (1..).map(NodeId).zip(disks.iter().copied()).collect();
        Known { counts: Some((clock::now(), counts)), disks, disks_asked: None, disks_heard: None }
    }

    #[test]
    fn free_is_what_the_limit_and_the_fullest_disk_leave() {
        for (bytes_max, disks, spread, free) in [
            (u64::MAX, &[5 * GIB, 4 * GIB, 6 * GIB][..], (3, 3), 4 * GIB),
            (3 * GIB, &[5 * GIB, 4 * GIB, 6 * GIB], (3, 3), 2 * GIB),
            (u64::MAX, &[5 * GIB, 4 * GIB, 6 * GIB, 6 * GIB, 6 * GIB, 6 * GIB], (6, 3), 8 * GIB),
            (u64::MAX, &[4 * GIB], (1, 1), 4 * GIB),
            (u64::MAX, &[u64::MAX, u64::MAX], (2, 1), u64::MAX),
            (u64::MAX, &[0, GIB, GIB], (3, 3), 0),
            (GIB / 2, &[GIB], (1, 1), 0),
            (3 * GIB, &[], (3, 3), 2 * GIB),
        ] {
            let shown = known(bytes_max, disks).room(spread).unwrap();
            let expected = Room { used_bytes: GIB, free_bytes: free, inodes_max: 10, inodes_free: 7 };
            assert_eq!(shown, expected, "{disks:?} {spread:?}");
        }
        assert_eq!(Known::default().room((3, 3)), None);
    }

    #[test]
    fn there_is_little_room_where_one_disk_or_the_limit_leaves_little() {
        let now = clock::now();
        for (bytes_max, disks, is_little) in [
            (u64::MAX, &[5 * GIB, 4 * GIB, 6 * GIB][..], false),
            (u64::MAX, &[5 * GIB, GIB - 1, 6 * GIB], true),
            (u64::MAX, &[GIB - 1, GIB, GIB, GIB, GIB, GIB], true),
            (2 * GIB - 1, &[5 * GIB, 4 * GIB, 6 * GIB], true),
            (u64::MAX, &[], false),
        ] {
            let known = Known { disks_heard: Some(now), ..known(bytes_max, disks) };
            assert_eq!(known.is_little(now, (disks.len(), 3)), Some(is_little), "{disks:?}");
            assert_eq!(known.is_little(now + DISKS_GOOD_FOR, (disks.len(), 3)), None);
        }
        assert_eq!(Known::default().is_little(now, (3, 3)), None);
    }

    #[test]
    fn disks_are_asked_about_once_a_second() {
        let (mut known, now) = (known(GIB, &[]), clock::now());
        assert!(known.asks_disks(now));
        assert!(!known.asks_disks(now + DISKS_ASKED_EVERY / 2));
        assert!(known.asks_disks(now + DISKS_ASKED_EVERY));
        assert!(!known.asks_disks(now + DISKS_ASKED_EVERY));
    }
}
