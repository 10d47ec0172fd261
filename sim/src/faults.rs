//! The faults that every world has: which of them a seed draws, when each strikes, and how long it lasts.
//!
//! What a fault does is the business of the world it happens to.

use base::{Random, Span};

use crate::TrueTime;
use crate::plan::{around, span_between};
use crate::summary::FaultKind;

/// A kind of fault with its shortest and longest mean interval, in tenths of the longest lease.
pub(crate) type Injected = (FaultKind, u64, u64);

/// Which faults are injected, and how far apart each is on average.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan(Vec<(FaultKind, Span)>);

impl FaultPlan {
    /// Faults that are so many tenths of `t_max` apart.
    pub fn in_tenths(kinds: impl IntoIterator<Item = (FaultKind, u64)>, t_max: Span) -> Self {
        Self(kinds.into_iter().map(|(kind, tenths)| (kind, t_max * tenths / 10)).collect())
    }

    /// The same, and one more kind.
    pub fn and(mut self, kind: FaultKind, apart: Span) -> Self {
        self.0.retain(|&(other, _)| other != kind);
        self.0.push((kind, apart));
        self
    }

    /// Whether a kind is injected.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.0.iter().any(|&(other, _)| other == kind)
    }

    /// How many kinds are injected.
    pub const fn kinds(&self) -> usize {
        self.0.len()
    }

    /// When each kind strikes first.
    pub(crate) fn first_strikes(&self, now: TrueTime, random: &mut Random) -> Vec<(TrueTime, FaultKind)> {
        self.0.iter().map(|&(kind, interval)| (now + around(interval, random), kind)).collect()
    }

    /// When a kind that has just struck does so again, if it is injected at all.
    pub(crate) fn next_strike(
        &self,
        kind: FaultKind,
        now: TrueTime,
        random: &mut Random,
    ) -> Option<TrueTime> {
        let (_, interval) = *self.0.iter().find(|(other, _)| *other == kind)?;
        Some(now + around(interval, random))
    }
}

/// About three fifths of all kinds, at least three, with intervals in tenths.
pub(crate) fn draw_kinds(
    injected: &[Injected],
    is_possible: impl Fn(FaultKind) -> bool,
    random: &mut Random,
) -> Vec<(FaultKind, u64)> {
    loop {
        let drawn: Vec<(FaultKind, u64)> = injected
            .iter()
            .filter(|(kind, ..)| is_possible(*kind))
            .map(|&(kind, low, high)| (kind, random.between(low, high), random.chance(3, 5)))
            .filter_map(|(kind, tenths, on)| on.then_some((kind, tenths)))
            .collect();
        // Replaying notices does nothing where nobody crashes.
        if drawn.iter().filter(|(kind, _)| *kind != FaultKind::NoticeReplay).count() >= 3 {
            return drawn;
        }
    }
}

/// How long something that struck lasts: mostly short compared with a lease, sometimes much longer.
pub(crate) fn draw_duration(t_max: Span, random: &mut Random) -> Span {
    let longest = [t_max / 20, t_max / 2, t_max * 2, t_max * 4];
    let longest = random.pick(&longest).copied().unwrap_or(t_max);
    span_between(Span::from_micros(1), longest, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_again_and_one_that_is_not_injected_never() {
        let t_max = Span::from_secs(1);
        let plan = FaultPlan::in_tenths([(FaultKind::Crash, 20), (FaultKind::Pause, 5)], t_max);
        let random = &mut Random::new(1);
        let first = plan.first_strikes(TrueTime::ZERO, random);
        assert_eq!(
            first.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(),
            [FaultKind::Crash, FaultKind::Pause]
        );
        let next = plan.next_strike(FaultKind::Crash, first[0].0, random).unwrap();
        let apart = next.since(first[0].0);
        assert!((t_max / 4..=t_max * 4).contains(&apart), "{apart}");
        assert_eq!(plan.next_strike(FaultKind::Drain, next, random), None);
    }

    #[test]
    fn what_is_impossible_is_never_drawn() {
        let injected = [FaultKind::Crash, FaultKind::Pause, FaultKind::Clog, FaultKind::Drain];
        let injected = injected.map(|kind| (kind, 1, 9));
        for seed in 0..200 {
            let drawn = draw_kinds(&injected, |kind| kind != FaultKind::Drain, &mut Random::new(seed));
            assert_eq!(drawn.len(), 3, "three are possible, and three are the least");
        }
    }
}
