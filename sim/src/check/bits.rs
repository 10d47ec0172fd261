//! Sets of small numbers.

/// Which of a few numbers are in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// None of the numbers below `len`.
    pub(super) fn none(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    pub(super) fn has(&self, n: usize) -> bool {
        self.0[n / 64] >> (n % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, n: usize) {
        self.0[n / 64] |= 1 << (n % 64);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    pub(super) fn keep_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own &= other);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn remove_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own &= !other);
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own & !other == 0)
    }

    /// The numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(place, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(place * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_in() {
        let mut some = Bits::none(130);
        [0, 63, 64, 129].into_iter().for_each(|n| some.add(n));
        assert_eq!(some.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(some.has(64) && !some.has(65));
        let mut more = Bits::none(130);
        more.add(65);
        assert!(!some.is_within(&more) && Bits::none(130).is_within(&more));
        more.add_all(&some);
        assert!(some.is_within(&more) && !more.is_within(&some));
        let mut both = more.clone();
        both.keep_all(&some);
        assert!(both == some && !both.is_empty());
        more.remove_all(&some);
        assert_eq!(more.iter().collect::<Vec<_>>(), [65]);
    }
}
