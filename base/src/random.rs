//! Seeded random numbers: the same seed gives the same numbers on every machine and in every release.

/// Scrambles one word (the finaliser of SplitMix64); every output bit depends on every input bit.
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A small, fast generator (SplitMix64) for tests, simulation and jitter. Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose whole future is decided by `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An independent generator, so that drawing more numbers in one place does not shift another.
    pub const fn fork(&mut self) -> Self {
        Self::new(mix(self.next_u64()))
    }

    /// The next word.
    pub const fn next_u64(&mut self) -> u64 {
        let word = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is below `bound / 2^64`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let wide = self.next_u64() as u128 * bound as u128;
        (wide >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range has no number");
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.next_u64(),
        }
    }

    /// True `numerator` times out of `denominator`.
    pub const fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A place in a list of `len`, or 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a `usize`")
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_never_change() {
        let mut random = Random::new(0);
        let first = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn ranges_are_closed_and_reach_both_ends() {
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| random.between(3, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.pick::<u8>(&[]), None);
        random.between(0, u64::MAX);
    }
}
