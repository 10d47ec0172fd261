//! What a daemon has done and noted lately: plain data for the page that daemons serve, which shows all of them.
//!
//! Times are node time: all daemons' clocks agree within ε.
//!
//! Layout: postcard encodes these in the order of their fields and variants.

use base::{ObjectId, Process, Span, WallTime};
use lease::{Algorithm, Ended};
use serde::{Deserialize, Serialize};

use crate::files::Hosted;
use crate::{ClockTrust, EndedSeen, Shard, ShardEvent, Status, bounded};

/// So many seconds of work are told of, the latest: five minutes.
pub const SECONDS_MAX: usize = 300;
/// So much of what happened is remembered, the latest.
pub const HAPPENED_MAX: usize = 64;

/// Whoever wants a file again so soon has wanted it all the time. Clients that are sent around try again sooner.
const WANTED_GAP: Span = Span::from_secs(3);
/// Whoever wants a file so soon after the last sign of life of its primary had most likely asked that one: clients are told of deaths at
/// once, and look for another primary when they hear nothing for long.
const TOLD_WITHIN: Span = Span::from_millis(100);
const REROUTED_WITHIN: Span = Span::from_millis(500);

/// What a daemon says about now and the time before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recent {
    /// How it is.
    pub status: Status,
    /// What it did in each second, oldest first, beginning with the first that was asked for.
    #[serde(deserialize_with = "bounded::list::<SECONDS_MAX, _, _>")]
    pub seconds: Vec<SecondSeen>,
    /// What happened, oldest first.
    #[serde(deserialize_with = "bounded::list::<HAPPENED_MAX, _, _>")]
    pub happened: Vec<Happened>,
}

/// What a daemon did for clients in about a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SecondSeen {
    /// Which: milliseconds since 1970 at its end.
    pub at_ms: u64,
    /// How long it was: more than a second if the daemon came to nothing meanwhile.
    pub length_ms: u32,
    /// Requests about files and volumes that came.
    pub requests: u64,
    /// Bytes of data that came with them.
    pub written_bytes: u64,
    /// Bytes of data that were given.
    pub read_bytes: u64,
    /// Files and volumes that it was primary of at its end.
    pub primaries: u64,
    /// How long the replies of that second had taken.
    pub took: TookSeen,
}

/// How long replies took, from the arrival of the request to the sending of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TookSeen {
    /// How many there were.
    pub replies: u64,
    /// What half of them took at most.
    pub half_us: u64,
    /// What all but the slowest hundredth took at most.
    pub most_us: u64,
    /// What the slowest took.
    pub longest_us: u64,
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Happened {
    /// When, as far as this daemon saw; of several that belong together, when the first did.
    pub at: WallTime,
    /// What.
    pub what: HappenedWhat,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HappenedWhat {
    /// This daemon started.
    Started,
    /// A daemon was reported dead, by its supervisor or by its next start.
    Died {
        /// Its run.
        process: Process,
    },
    /// This daemon serves what another run of a daemon was primary of, or this one before it lost it.
    TookOver {
        /// Whose it was.
        from: Process,
        /// How that ended.
        ended: EndedSeen,
        /// How many files and volumes, so far.
        files: u64,
        /// How long one of them was without a primary, at most: from the last sign of life of the one before, or from when
        /// a client first wanted it if that was later.
        stall_us_max: u64,
    },
    /// Leases of this daemon ran out.
    Lost {
        /// How many.
        leases: u64,
    },
    /// Whether this daemon's clock is trusted has changed.
    Clock(ClockTrust),
}

/// Since when a file is wanted that somebody else was primary of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// Who was primary, as far as this node knew.
    from: Option<Process>,
    since: WallTime,
    latest: WallTime,
    /// Whether its primary has named this node since then: it served until it did.
    is_offered: bool,
}

impl Hosted {
    /// A client wants the file here, or its primary names this node; `last` was its primary.
    fn note_wanted(&mut self, now: WallTime, last: Option<Process>, is_offered: bool) {
        self.wanted = Some(wanted(self.wanted, now, last, is_offered));
    }
}

impl<A: Algorithm> Shard<A> {
    /// This node is about to ask for the lease of a file.
    pub(crate) fn note_wanted(&mut self, now: WallTime, object: ObjectId, is_offered: bool) {
        let last = self.lease.last_owner(now, object);
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.note_wanted(now, last, is_offered);
        }
    }

    /// This node serves a file from now on. Whose it was before, if that did not end because nobody used it, is told.
    pub(crate) fn tell_taken(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let (ended, wanted) = (hosted.ended, hosted.wanted.take());
        let Some(Wanted { from: Some(from), since, .. }) = wanted else { return };
        let (sign_of_life, within) = match ended {
            Ended::Died => {
                let death = self.deaths.get(&from.node).filter(|(dead, _)| dead.contains(from));
                (death.map(|(_, at)| *at), TOLD_WITHIN)
            }
            Ended::Expired => (self.guard.heard_at(from.node), REROUTED_WITHIN),
            Ended::HandedOver => (None, Span::ZERO),
            Ended::Released | Ended::Unknown => return,
        };
        let begins = stall_begins(since, sign_of_life, within);
        self.tell(ShardEvent::FileTakenOver { object, from, ended: ended.into(), stall: now.since(begins) });
    }
}

/// Since when a file is wanted that is wanted now, by a client or because it `is_offered`.
fn wanted(before: Option<Wanted>, now: WallTime, from: Option<Process>, is_offered: bool) -> Wanted {
    let before = before.filter(|wanted| now.since(wanted.latest) <= WANTED_GAP);
    match before.filter(|wanted| wanted.is_offered || !is_offered) {
        Some(wanted) => Wanted { from, latest: now, ..wanted },
        None => Wanted { from, since: now, latest: now, is_offered },
    }
}

/// When a file began to be without a primary for somebody. Who wanted it before the last sign of life had only asked the wrong daemon.
fn stall_begins(wanted: WallTime, sign_of_life: Option<WallTime>, within: Span) -> WallTime {
    sign_of_life.filter(|at| wanted.since(*at) <= within).unwrap_or(wanted)
}

impl HappenedWhat {
    /// Takes `other`, which happened later, in as one with this if they belong together.
    pub fn absorb(&mut self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::TookOver { from, ended, files, stall_us_max },
                Self::TookOver { from: other_from, ended: other_ended, files: more, stall_us_max: longest },
            ) if from == other_from && ended == other_ended => {
                *files = files.saturating_add(*more);
                *stall_us_max = (*stall_us_max).max(*longest);
                true
            }
            (Self::Lost { leases }, Self::Lost { leases: more }) => {
                *leases = leases.saturating_add(*more);
                true
            }
            _ => false,
        }
    }

    /// Whether this can happen to a run once only, so that whatever belongs to it belongs together however late it comes.
    pub const fn is_once(&self) -> bool {
        matches!(self, Self::TookOver { ended: EndedSeen::Died, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> WallTime {
        WallTime::from_micros(millis * 1_000)
    }

    #[test]
    fn a_stall_begins_with_the_last_sign_of_life_if_somebody_was_there_to_notice() {
        let begins = |wanted, sign_of_life| stall_begins(wanted, sign_of_life, REROUTED_WITHIN);
        assert_eq!(begins(at(1_200), Some(at(1_000))), at(1_000));
        assert_eq!(begins(at(1_501), Some(at(1_000))), at(1_501), "nobody wanted it before");
        assert_eq!(begins(at(900), Some(at(1_000))), at(1_000), "it was there to be asked");
        assert_eq!(begins(at(900), None), at(900));
    }

    #[test]
    fn who_is_sent_around_wants_a_file_all_the_time_and_an_offer_begins_anew() {
        let from = Some(Process::new(2, 1));
        let first = wanted(None, at(1_000), from, false);
        let again = wanted(Some(first), at(3_000), from, false);
        assert_eq!((again.since, again.latest), (at(1_000), at(3_000)));
        let offered = wanted(Some(again), at(3_500), from, true);
        assert_eq!(offered.since, at(3_500), "it was served until then");
        let asked = wanted(Some(offered), at(3_510), from, false);
        assert_eq!(wanted(Some(asked), at(3_520), from, true).since, at(3_500));
        assert_eq!(wanted(Some(asked), at(9_000), from, false).since, at(9_000), "that is another story");
    }

    #[test]
    fn what_is_taken_over_from_one_run_in_one_way_is_one_thing() {
        let took = |incarnation, ended, files, stall_us_max| HappenedWhat::TookOver {
            from: Process::new(2, incarnation),
            ended,
            files,
            stall_us_max,
        };
        let mut first = took(1, EndedSeen::Died, 1, 30);
        assert!(first.absorb(&took(1, EndedSeen::Died, 2, 20)));
        assert_eq!(first, took(1, EndedSeen::Died, 3, 30));
        assert!(!first.absorb(&took(2, EndedSeen::Died, 2, 20)));
        assert!(!first.absorb(&took(1, EndedSeen::Expired, 2, 20)));
        assert!(first.is_once() && !took(1, EndedSeen::Expired, 1, 1).is_once());
        let mut lost = HappenedWhat::Lost { leases: 2 };
        assert!(lost.absorb(&HappenedWhat::Lost { leases: 3 }) && lost == HappenedWhat::Lost { leases: 5 });
        assert!(!lost.absorb(&HappenedWhat::Started));
    }
}
