//! Numbers of users or groups that mean others in a volume.

/// No map has more ranges.
pub const ID_RANGES_MAX: usize = 128;
/// The number that systems take for none: it cannot be anybody's.
pub(super) const NO_ID: u32 = u32::MAX;

/// As many numbers at a client as in the volume, one for one and in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdRange {
    /// The first at the client.
    pub from: u32,
    /// The first in the volume.
    pub to: u32,
    /// How many.
    pub count: u32,
}

/// Why ranges make no map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdMapError {
    /// The list is bounded, as everything is.
    #[error("has {0} ranges; join or remove some, {ID_RANGES_MAX} may stand there")]
    TooMany(usize),
    /// It maps nothing.
    #[error("has a range from {} to {} of 0 numbers; give it a `count` from 1 on, or remove it", .0.from, .0.to)]
    Nothing(IdRange),
    /// It goes on beyond the last number there is.
    #[error("has a range from {} to {} of {} numbers, and the last number there is is 4294967294; lower `count`", .0.from, .0.to, .0.count)]
    TooFar(IdRange),
    /// A number would be two others.
    #[error("has two ranges with the same numbers, from {} and from {} on; let each number stand in one `from` only", .0.from, .1.from)]
    SharedFrom(IdRange, IdRange),
    /// Two numbers would be the same, and none of them could be shown.
    #[error("has two ranges to the same numbers, to {} and to {} on; let each number stand in one `to` only", .0.to, .1.to)]
    SharedTo(IdRange, IdRange),
}

/// Which numbers mean others. Two never mean the same, so what is stored can be shown as it was said.
///
/// A number in no range stays as it is, unless another one means it already: then it means none. Likewise a stored
/// number that nobody can mean is shown as none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IdMap {
    by_from: Vec<IdRange>,
    by_to: Vec<IdRange>,
}

impl IdRange {
    /// What `id` at the client is in the volume, if it is in the range.
    fn stored(self, id: u32) -> Option<u32> {
        let at = id.checked_sub(self.from).filter(|&at| at < self.count)?;
        Some(self.to + at)
    }

    fn turned(self) -> Self {
        Self { from: self.to, to: self.from, count: self.count }
    }

    const fn is_too_far(self) -> bool {
        self.count > NO_ID - self.from || self.count > NO_ID - self.to
    }
}

impl IdMap {
    /// No number means another one.
    pub(super) const NONE: Self = Self { by_from: Vec::new(), by_to: Vec::new() };

    /// Checks the ranges of a map.
    pub(super) fn new(mut ranges: Vec<IdRange>) -> Result<Self, IdMapError> {
        if ranges.len() > ID_RANGES_MAX {
            return Err(IdMapError::TooMany(ranges.len()));
        }
        for &range in &ranges {
            if range.count == 0 {
                return Err(IdMapError::Nothing(range));
            }
            if range.is_too_far() {
                return Err(IdMapError::TooFar(range));
            }
        }
        let mut by_to = ranges.clone();
        ranges.sort_unstable_by_key(|range| range.from);
        by_to.sort_unstable_by_key(|range| range.to);
        if let Some((a, b)) = overlap(&ranges, |range| range.from) {
            return Err(IdMapError::SharedFrom(a, b));
        }
        if let Some((a, b)) = overlap(&by_to, |range| range.to) {
            return Err(IdMapError::SharedTo(a, b));
        }
        Ok(Self { by_from: ranges, by_to })
    }

    /// The ranges, in the order of their numbers at the client.
    pub(super) fn ranges(&self) -> &[IdRange] {
        &self.by_from
    }

    /// What a client's number is in the volume, if it is any.
    pub(super) fn stored(&self, id: u32) -> Option<u32> {
        match last_from(&self.by_from, |range| range.from, id).and_then(|range| range.stored(id)) {
            None if self.is_meant(id) => None,
            None => Some(id),
            mapped => mapped,
        }
    }

    /// What a number in the volume is at the client, if it is any.
    pub(super) fn shown(&self, id: u32) -> Option<u32> {
        let turned = last_from(&self.by_to, |range| range.to, id).map(IdRange::turned);
        match turned.and_then(|range| range.stored(id)) {
            None if self.is_said(id) => None,
            None => Some(id),
            mapped => mapped,
        }
    }

    /// Whether a range maps a client's number.
    fn is_said(&self, id: u32) -> bool {
        last_from(&self.by_from, |range| range.from, id).is_some_and(|range| range.stored(id).is_some())
    }

    /// Whether a range maps to a number.
    fn is_meant(&self, id: u32) -> bool {
        let range = last_from(&self.by_to, |range| range.to, id);
        range.is_some_and(|range| range.turned().stored(id).is_some())
    }
}

/// The last of `ranges`, which are in the order of `first`, that begins at or before `id`.
fn last_from(ranges: &[IdRange], first: impl Fn(&IdRange) -> u32, id: u32) -> Option<IdRange> {
    let behind = ranges.partition_point(|range| first(range) <= id);
    behind.checked_sub(1).map(|at| ranges[at])
}

/// Two of `ranges`, which are in the order of `first`, that share a number there.
fn overlap(ranges: &[IdRange], first: impl Fn(&IdRange) -> u32) -> Option<(IdRange, IdRange)> {
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    pairs.find(|(a, b)| first(b) - first(a) < a.count).map(|(a, b)| (*a, *b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn range(from: u32, to: u32, count: u32) -> IdRange {
        IdRange { from, to, count }
    }

    fn map(ranges: &[IdRange]) -> IdMap {
        IdMap::new(ranges.to_vec()).unwrap()
    }

    #[test]
    fn numbers_in_a_range_are_others_and_the_rest_stays() {
        let map = map(&[range(5_000, 10, 1), range(1_000, 2_000, 10)]);
        for (said, stored) in
            [(1_000, 2_000), (1_009, 2_009), (5_000, 10), (0, 0), (1_010, 1_010), (999, 999)]
        {
            assert_eq!(map.stored(said), Some(stored), "{said}");
            assert_eq!(map.shown(stored), Some(said), "{stored}");
        }
        for taken in [2_000, 2_009, 10] {
            assert_eq!(map.stored(taken), None, "{taken} is somebody else already");
        }
        for nobodys in [1_000, 1_009, 5_000] {
            assert_eq!(map.shown(nobodys), None, "who is {nobodys} there is somebody else in the volume");
        }
    }

    #[test]
    fn two_numbers_may_change_places() {
        let map = map(&[range(1, 2, 1), range(2, 1, 1)]);
        assert_eq!([1, 2, 3].map(|id| map.stored(id)), [Some(2), Some(1), Some(3)]);
        assert_eq!([1, 2, 3].map(|id| map.shown(id)), [Some(2), Some(1), Some(3)]);
    }

    #[test]
    fn ranges_that_make_no_map_are_refused() {
        let new = |ranges: &[IdRange]| IdMap::new(ranges.to_vec()).map(drop);
        let (a, b, c) = (range(10, 100, 5), range(14, 200, 5), range(20, 104, 5));
        assert_eq!(new(&[b, a]), Err(IdMapError::SharedFrom(a, b)));
        assert_eq!(new(&[c, a]), Err(IdMapError::SharedTo(a, c)));
        assert_eq!(new(&[range(15, 200, 5), a, range(20, 105, 5)]), Ok(()), "they may touch");
        let nothing = range(1, 2, 0);
        assert_eq!(new(&[a, nothing]), Err(IdMapError::Nothing(nothing)));
        for far in [range(1, NO_ID, 1), range(NO_ID, 1, 1), range(1, 2, NO_ID - 1), range(2, 1, u32::MAX)] {
            assert_eq!(new(&[far]), Err(IdMapError::TooFar(far)));
        }
        assert_eq!(new(&[range(0, 0, NO_ID)]), Ok(()));
        assert_eq!(new(&[range(NO_ID - 1, 0, 1)]), Ok(()));
        let many = |count: u32| (0..count).map(|n| range(n, 1_000 + n, 1)).collect::<Vec<_>>();
        assert_eq!(new(&many(128)), Ok(()));
        assert_eq!(new(&many(129)), Err(IdMapError::TooMany(129)));
    }

    /// Ranges close together, so that many touch or overlap.
    fn ranges() -> impl Strategy<Value = Vec<IdRange>> {
        let one = (0..60_u32, 0..60_u32, 1..12_u32);
        prop::collection::vec(one.prop_map(|(from, to, count)| range(from, to, count)), 0..6)
    }

    proptest! {
        #[test]
        fn what_is_mapped_maps_back(ranges in ranges(), id in 0..90_u32) {
            let Ok(map) = IdMap::new(ranges.clone()) else { return Ok(()) };
            if let Some(stored) = map.stored(id) {
                prop_assert_eq!(map.shown(stored), Some(id));
            }
            if let Some(shown) = map.shown(id) {
                prop_assert_eq!(map.stored(shown), Some(id));
            }
            let by_hand = ranges.iter().find(|range| (range.from..range.from + range.count).contains(&id));
            if let Some(range) = by_hand {
                prop_assert_eq!(map.stored(id), Some(id - range.from + range.to));
            }
        }

        #[test]
        fn ranges_are_refused_only_if_they_share_numbers(ranges in ranges()) {
            let share = |first: fn(&IdRange) -> u32| (0..90).any(|id| {
                let has = |range: &&IdRange| (first(range)..first(range) + range.count).contains(&id);
                ranges.iter().filter(has).count() > 1
            });
            prop_assert_eq!(IdMap::new(ranges.clone()).is_err(), share(|r| r.from) || share(|r| r.to));
        }
    }
}
