//! What the daemon does for clients, second by second, and what happened lately: the memory behind its page.
//!
//! Whoever counts a request pays for an entry in a table; everything else is done once a second. All of it is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use base::{Span, WallTime};
use node::{
    ClockTrust, HAPPENED_MAX, Happened, HappenedWhat, RequestId, SECONDS_MAX, SecondSeen, SessionId,
    ShardEvent, TookSeen, WorkStatus,
};

use crate::clock_trust;

/// So many requests are timed at once. What comes while there are more is not.
const TIMED_MAX: usize = 16_384;
/// A request that has no reply after this long gets none: its client has gone elsewhere.
const FORGOTTEN_AFTER: Span = Span::from_secs(60);
/// What happens again within this time of the last time belongs to it.
const SAME_WITHIN: Span = Span::from_secs(10);

/// Counts and remembers.
#[derive(Debug)]
pub(crate) struct Meter {
    timed: BTreeMap<(SessionId, RequestId), WallTime>,
    took: Spread,
    /// What had been done by the end of the last second, and when that was.
    counted: WorkStatus,
    counted_at: WallTime,
    seconds: VecDeque<SecondSeen>,
    /// Each with the last time that something was added to it.
    happened: VecDeque<(Happened, WallTime)>,
}

/// How long replies took, in steps of at most an eighth.
#[derive(Debug)]
struct Spread {
    counts: [u32; STEPS],
    replies: u64,
    longest_us: u64,
}

/// Below this each microsecond is a step of its own, and above it each doubling has so many steps.
const EXACT: u64 = 8;
const EXACT_BITS: u32 = EXACT.ilog2();
/// What takes longer than 2³² µs, more than an hour, counts as that.
const STEPS: usize = 8 * (32 - EXACT_BITS as usize + 1);

impl Meter {
    /// Nothing was done before `now`, when the daemon started.
    pub(crate) fn new(now: WallTime) -> Self {
        let started = Happened { at: now, what: HappenedWhat::Started };
        Self {
            timed: BTreeMap::new(),
            took: Spread::default(),
            counted: WorkStatus::default(),
            counted_at: now,
            seconds: VecDeque::new(),
            happened: [(started, now)].into(),
        }
    }

    /// A request has come.
    pub(crate) fn begins(&mut self, now: WallTime, session: SessionId, request: RequestId) {
        if self.timed.len() < TIMED_MAX {
            self.timed.entry((session, request)).or_insert(now);
        }
    }

    /// It is replied to. Returns how long that took, if its beginning was noted.
    pub(crate) fn ends(&mut self, now: WallTime, session: SessionId, request: RequestId) -> Option<Span> {
        let took = now.since(self.timed.remove(&(session, request))?);
        self.took.add(took);
        Some(took)
    }

    /// Nothing more is replied over this connection.
    pub(crate) fn closed(&mut self, session: SessionId) {
        let all = all_of(session);
        let gone: Vec<_> = self.timed.range(all).map(|(key, _)| *key).collect();
        for key in gone {
            self.timed.remove(&key);
        }
    }

    /// Something happened.
    pub(crate) fn note(&mut self, now: WallTime, event: &ShardEvent) {
        let what = match *event {
            ShardEvent::Death { node, incarnation } => {
                HappenedWhat::Died { process: base::Process { node, incarnation } }
            }
            ShardEvent::FileTakenOver { from, ended, stall, .. } => {
                HappenedWhat::TookOver { from, ended, files: 1, stall_us_max: stall.as_micros() }
            }
            ShardEvent::LeaseLost { .. } => HappenedWhat::Lost { leases: 1 },
            ShardEvent::Clock(state) => HappenedWhat::Clock(clock_trust(state)),
            _ => return,
        };
        // That a daemon finds its clock sound after its start is as it should be.
        if what == HappenedWhat::Clock(ClockTrust::Sound) && !self.is_clock_in_doubt() {
            return;
        }
        let belongs = |(happened, latest): &mut (Happened, WallTime)| {
            let is_same = happened.what.is_once() || now.since(*latest) <= SAME_WITHIN;
            let is_absorbed = is_same && happened.what.absorb(&what);
            *latest = if is_absorbed { now } else { *latest };
            is_absorbed
        };
        if self.happened.iter_mut().rev().any(belongs) {
            return;
        }
        if self.happened.len() == HAPPENED_MAX {
            self.happened.pop_front();
        }
        self.happened.push_back((Happened { at: now, what }, now));
    }

    fn is_clock_in_doubt(&self) -> bool {
        let last = self.happened.iter().rev().find_map(|(happened, _)| match happened.what {
            HappenedWhat::Clock(state) => Some(state),
            _ => None,
        });
        last.is_some_and(|state| state != ClockTrust::Sound)
    }

    /// A second is over, by the end of which `work` was done.
    pub(crate) fn tick(&mut self, now: WallTime, work: &WorkStatus, primaries: u64) {
        let length = now.since(self.counted_at);
        if length == Span::ZERO {
            return;
        }
        if self.seconds.len() == SECONDS_MAX {
            self.seconds.pop_front();
        }
        let before = std::mem::replace(&mut self.counted, *work);
        self.counted_at = now;
        self.seconds.push_back(SecondSeen {
            at_ms: now.as_micros() / 1_000,
            length_ms: u32::try_from(length.as_micros() / 1_000).unwrap_or(u32::MAX),
            requests: work.requests.saturating_sub(before.requests),
            written_bytes: work.written_bytes.saturating_sub(before.written_bytes),
            read_bytes: work.read_bytes.saturating_sub(before.read_bytes),
            primaries,
            took: std::mem::take(&mut self.took).seen(),
        });
        self.timed.retain(|_, began| now.since(*began) < FORGOTTEN_AFTER);
    }

    /// The seconds that ended after this time, oldest first.
    pub(crate) fn seconds_after(&self, at_ms: u64) -> impl Iterator<Item = SecondSeen> {
        let known = self.seconds.partition_point(|second| second.at_ms <= at_ms);
        self.seconds.range(known..).copied()
    }

    /// What happened, oldest first.
    pub(crate) fn happened(&self) -> impl Iterator<Item = Happened> {
        self.happened.iter().map(|(happened, _)| *happened)
    }
}

fn all_of(session: SessionId) -> RangeInclusive<(SessionId, RequestId)> {
    (session, RequestId(0))..=(session, RequestId(u64::MAX))
}

impl Default for Spread {
    fn default() -> Self {
        Self { counts: [0; STEPS], replies: 0, longest_us: 0 }
    }
}

impl Spread {
    fn add(&mut self, took: Span) {
        let micros = took.as_micros();
        let count = &mut self.counts[step_of(micros)];
        *count = count.saturating_add(1);
        self.replies += 1;
        self.longest_us = self.longest_us.max(micros);
    }

    fn seen(self) -> TookSeen {
        TookSeen {
            replies: self.replies,
            half_us: self.within(self.replies.div_ceil(2)),
            most_us: self.within(self.replies - self.replies / 100),
            longest_us: self.longest_us,
        }
    }

    /// What the quickest `replies` took at most.
    fn within(&self, replies: u64) -> u64 {
        let mut so_far = 0;
        let step = self.counts.iter().position(|count| {
            so_far += u64::from(*count);
            so_far >= replies
        });
        step.map_or(self.longest_us, |step| last_of(step).min(self.longest_us))
    }
}

/// Into which step a time falls.
fn step_of(micros: u64) -> usize {
    let micros = micros.min(u64::from(u32::MAX));
    let Some(doublings) = micros.checked_ilog2().and_then(|bits| bits.checked_sub(EXACT_BITS)) else {
        return usize::try_from(micros).unwrap_or(STEPS - 1);
    };
    let within = (micros >> doublings) - EXACT;
    let step = EXACT * u64::from(doublings + 1) + within;
    usize::try_from(step).map_or(STEPS - 1, |step| step.min(STEPS - 1))
}

/// The longest time in a step.
fn last_of(step: usize) -> u64 {
    let step = step as u64;
    match (step / EXACT).checked_sub(1) {
        None => step,
        Some(doublings) => ((EXACT + step % EXACT + 1) << doublings) - 1,
    }
}

#[cfg(test)]
mod tests {
    use base::{NodeId, ObjectId, Process};
    use lease::{ClockState, Loss};
    use node::EndedSeen;

    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    const fn at(millis: u64) -> WallTime {
        WallTime::from_micros(millis * 1_000)
    }

    fn taken(stall_ms: u64) -> ShardEvent {
        ShardEvent::FileTakenOver {
            object: ObjectId::new(1, 1),
            from: Process::new(2, 1),
            ended: EndedSeen::Died,
            stall: Span::from_millis(stall_ms),
        }
    }

    #[test]
    fn steps_are_at_most_an_eighth_and_follow_each_other() {
        for micros in (0..3_000).chain([99_999, 1 << 20, (1 << 20) - 1, u64::from(u32::MAX)]) {
            let step = step_of(micros);
            let last = last_of(step);
            assert!(micros <= last && last - micros <= micros / 8, "{micros} in {step} up to {last}");
            assert!(step == 0 || last_of(step - 1) < micros, "{micros} in {step}");
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }

    #[test]
    fn a_second_says_what_was_done_in_it_and_how_long_replies_took() {
        let mut meter = Meter::new(at(0));
        for request in 1..=200 {
            meter.begins(at(100), A, RequestId(request));
            // Sent again: it has waited since it came first.
            meter.begins(at(101), A, RequestId(request));
        }
        for request in 1..=199 {
            assert_eq!(meter.ends(at(104), A, RequestId(request)), Some(Span::from_millis(4)));
        }
        assert_eq!(meter.ends(at(104), A, RequestId(7)), None, "it was replied to before");
        meter.ends(at(400), A, RequestId(200));
        let work = WorkStatus { requests: 200, written_bytes: 4_096, read_bytes: 3 };
        meter.tick(at(1_000), &work, 5);
        meter.tick(at(1_000), &work, 5);
        meter.tick(at(2_500), &work, 6);
        let seconds: Vec<SecondSeen> = meter.seconds_after(0).collect();
        let [first, second] = seconds[..] else { panic!("{seconds:?}") };
        assert_eq!((first.at_ms, first.length_ms, first.requests, first.primaries), (1_000, 1_000, 200, 5));
        assert_eq!((first.written_bytes, first.read_bytes, first.took.replies), (4_096, 3, 200));
        let TookSeen { half_us, most_us, longest_us, .. } = first.took;
        assert!((4_000..4_500).contains(&half_us) && half_us == most_us, "{first:?}");
        assert_eq!(longest_us, 300_000);
        assert_eq!(
            second,
            SecondSeen { at_ms: 2_500, length_ms: 1_500, primaries: 6, ..SecondSeen::default() }
        );
        assert_eq!(meter.seconds_after(1_000).count(), 1);
        assert_eq!(meter.seconds_after(2_500).count(), 0);
    }

    #[test]
    fn what_is_never_replied_to_is_forgotten() {
        let mut meter = Meter::new(at(0));
        meter.begins(at(1), A, RequestId(1));
        meter.begins(at(1), B, RequestId(1));
        meter.closed(A);
        assert_eq!(meter.ends(at(2), A, RequestId(1)), None);
        meter.tick(at(61_000), &WorkStatus::default(), 0);
        assert!(meter.timed.is_empty());
        (0..2 * TIMED_MAX as u64).for_each(|request| meter.begins(at(61_001), B, RequestId(request)));
        assert_eq!(meter.timed.len(), TIMED_MAX);
        (0..1_000).for_each(|second| meter.tick(at(70_000 + second * 1_000), &WorkStatus::default(), 0));
        assert_eq!(meter.seconds_after(0).count(), SECONDS_MAX);
    }

    #[test]
    fn what_belongs_together_is_noted_as_one() {
        let mut meter = Meter::new(at(0));
        let death = ShardEvent::Death { node: NodeId(2), incarnation: base::Incarnation(1) };
        meter.note(at(1_000), &death);
        meter.note(at(1_040), &taken(40));
        let lost = ShardEvent::LeaseLost { cell: ObjectId::new(1, 1), why: Loss::Expired };
        (0..1_000).for_each(|_| meter.note(at(1_050), &lost));
        // A file that nobody asked for until then.
        meter.note(at(100_000), &taken(3));
        meter.note(at(100_000), &lost);
        let noted: Vec<Happened> = meter.happened().collect();
        let [started, died, took, lost, again] = noted[..] else { panic!("{noted:?}") };
        assert_eq!(started.what, HappenedWhat::Started);
        assert_eq!(died.what, HappenedWhat::Died { process: Process::new(2, 1) });
        let HappenedWhat::TookOver { files, stall_us_max, .. } = took.what else { panic!("{took:?}") };
        assert_eq!((took.at, files, stall_us_max), (at(1_040), 2, 40_000));
        assert_eq!(
            (lost.what, again.what),
            (HappenedWhat::Lost { leases: 1_000 }, HappenedWhat::Lost { leases: 1 })
        );
    }

    #[test]
    fn a_clock_is_told_of_when_it_was_in_doubt() {
        let mut meter = Meter::new(at(0));
        meter.note(at(1), &ShardEvent::Clock(ClockState::Sound));
        assert_eq!(meter.happened().count(), 1);
        meter.note(at(2), &ShardEvent::Clock(ClockState::Off));
        meter.note(at(3), &ShardEvent::Clock(ClockState::Sound));
        assert_eq!(meter.happened().count(), 3);
        (0..2 * HAPPENED_MAX as u64).for_each(|i| meter.note(at(i), &ShardEvent::Clock(ClockState::Off)));
        assert_eq!(meter.happened().count(), HAPPENED_MAX);
    }
}
