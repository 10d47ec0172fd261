//! When what happened: moments order all that is seen, also what happens at the same time.

use crate::TrueTime;
use crate::check::Moment;

/// All moments of a run so far.
#[derive(Debug, Default)]
pub struct Moments(Vec<TrueTime>);

impl Moments {
    /// Nothing has happened yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The next moment, which is now.
    pub fn tick(&mut self, now: TrueTime) -> Moment {
        self.0.push(now);
        self.last()
    }

    /// The last moment that was.
    pub const fn last(&self) -> Moment {
        Moment(self.0.len() as u64)
    }

    /// When a moment was.
    pub fn time_of(&self, moment: Moment) -> TrueTime {
        let place = usize::try_from(moment.0).ok().and_then(|moment| moment.checked_sub(1));
        place.and_then(|place| self.0.get(place)).copied().unwrap_or_default()
    }

    /// The last moment that was at this time or before it.
    pub fn at(&self, time: TrueTime) -> Moment {
        Moment(self.0.partition_point(|at| *at <= time) as u64)
    }

    /// The last moment that was before this time.
    pub fn before(&self, time: TrueTime) -> Moment {
        Moment(self.0.partition_point(|at| *at < time) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_the_same_time_has_an_order() {
        let mut moments = Moments::new();
        let [one, two] = [5, 7].map(TrueTime::from_micros);
        let seen = [one, one, two].map(|now| moments.tick(now));
        assert!(seen.is_sorted_by(|before, after| before < after) && moments.last() == seen[2]);
        assert_eq!(seen.map(|moment| moments.time_of(moment)), [one, one, two]);
        assert_eq!([0, 5, 6, 9].map(|time| moments.at(TrueTime::from_micros(time)).0), [0, 2, 2, 3]);
        assert_eq!([0, 5, 6, 9].map(|time| moments.before(TrueTime::from_micros(time)).0), [0, 0, 2, 3]);
        assert_eq!(moments.time_of(Moment::default()), TrueTime::default());
    }
}
