//! An ordered map that needs little memory beside what is in it, and whose clones share it.
//!
//! It is cut into runs. What is added at the end of a full run begins a new one, so that runs stay full when keys come in
//! order, as those of new inodes do, and the names of an archive. A change behind a clone copies one run.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const RUN_MAX: usize = 64;

/// The map.
#[derive(Clone, Debug)]
pub struct Sorted<K, V> {
    /// Runs that are not empty, each under a key that is not behind its first, nor before the last of the run before.
    runs: BTreeMap<K, Arc<Vec<(K, V)>>>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self { runs: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: Clone> Sorted<K, V> {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How much is in it.
    pub fn len(&self) -> usize {
        self.runs.values().map(|run| run.len()).sum()
    }

    /// What is under a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, run) = self.runs.range(..=key).next_back()?;
        find(run, key).ok().map(|place| &run[place].1)
    }

    /// Puts something under a key. Whether nothing was there before.
    pub fn insert(&mut self, key: K, value: V) -> bool {
        let Some(run) = self.run_for(&key) else {
            self.runs.insert(key.clone(), Arc::new(vec![(key, value)]));
            return true;
        };
        match find(run, &key) {
            Ok(place) => {
                run[place].1 = value;
                return false;
            }
            Err(place) if run.len() < RUN_MAX => run.insert(place, (key, value)),
            Err(RUN_MAX) => {
                self.runs.insert(key.clone(), Arc::new(vec![(key, value)]));
            }
            Err(_) => {
                let late = run.split_off(RUN_MAX / 2);
                run.shrink_to_fit();
                self.runs.insert(late[0].0.clone(), Arc::new(late));
                return self.insert(key, value);
            }
        }
        true
    }

    /// Takes out what is under a key. Whether anything was.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some((under, run)) = self.runs.range_mut(..=key).next_back() else { return false };
        let Ok(place) = find(run, key) else { return false };
        let run = Arc::make_mut(run);
        run.remove(place);
        if run.len() <= RUN_MAX / 4 {
            let under = under.clone();
            self.join(&under);
        }
        true
    }

    /// What is in it from a key on.
    pub fn range<'s>(&'s self, from: Bound<&'s K>) -> impl Iterator<Item = (&'s K, &'s V)> {
        let first = match from {
            Bound::Included(key) | Bound::Excluded(key) => self
                .runs
                .range(..=key)
                .next_back()
                .map_or(Bound::Unbounded, |(under, _)| Bound::Included(under)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let all = self.runs.range::<K, _>((first, Bound::Unbounded)).flat_map(|(_, run)| run.iter());
        all.skip_while(move |(key, _)| match from {
            Bound::Included(from) => key < from,
            Bound::Excluded(from) => key <= from,
            Bound::Unbounded => false,
        })
        .map(|(key, value)| (key, value))
    }

    /// The run that a key belongs into. What comes before all of them belongs into the first.
    fn run_for(&mut self, key: &K) -> Option<&mut Vec<(K, V)>> {
        if self.runs.range(..=key).next_back().is_none() {
            let (_, run) = self.runs.pop_first()?;
            self.runs.insert(key.clone(), run);
        }
        self.runs.range_mut(..=key).next_back().map(|(_, run)| Arc::make_mut(run))
    }

    /// Joins a short run with the one before or behind it if the two are half a run together, or drops it if nothing is in it.
    fn join(&mut self, under: &K) {
        let Some(run) = self.runs.get_mut(under).map(Arc::make_mut) else { return };
        run.shrink_to(RUN_MAX / 2);
        let count = run.len();
        if count == 0 {
            self.runs.remove(under);
            return;
        }
        let fits = |(_, run): &(&K, &Arc<Vec<_>>)| run.len() + count <= RUN_MAX / 2;
        let before = self.runs.range(..under).next_back().filter(fits).map(|(before, _)| before.clone());
        let behind = self.runs.range((Bound::Excluded(under), Bound::Unbounded)).next().filter(fits);
        let (first, second) = match (before, behind.map(|(behind, _)| behind.clone())) {
            (Some(before), _) => (before, under.clone()),
            (None, Some(behind)) => (under.clone(), behind),
            (None, None) => return,
        };
        let late = self.runs.remove(&second).map(Arc::unwrap_or_clone).unwrap_or_default();
        if let Some(run) = self.runs.get_mut(&first) {
            Arc::make_mut(run).extend(late);
        }
    }
}

fn find<K: Ord, V>(run: &[(K, V)], key: &K) -> Result<usize, usize> {
    run.binary_search_by(|(other, _)| other.cmp(key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn it_is_an_ordered_map(
            steps in proptest::collection::vec((0..4_u8, 0..400_u16), 1..3000),
            from in 0..400_u16,
        ) {
            let (mut map, mut model) = (Sorted::default(), BTreeMap::new());
            let mut kept = None;
            for (number, (step, key)) in steps.into_iter().enumerate() {
                if step == 0 {
                    prop_assert_eq!(map.remove(&key), model.remove(&key).is_some());
                } else {
                    prop_assert_eq!(map.insert(key, number), model.insert(key, number).is_none());
                }
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(map.get(&key), model.get(&key));
                if number == 700 {
                    kept = Some((map.clone(), model.clone()));
                }
            }
            for (map, model) in kept.into_iter().chain([(map, model)]) {
                prop_assert!(map.runs.values().all(|run| !run.is_empty() && run.len() <= RUN_MAX));
                for from in [Bound::Unbounded, Bound::Included(&from), Bound::Excluded(&from)] {
                    let all: Vec<_> = map.range(from).collect();
                    prop_assert_eq!(all, model.range((from, Bound::Unbounded)).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn runs_are_full_when_keys_come_in_order_and_few_when_most_are_gone() {
        let mut map = Sorted::default();
        (0..6400).for_each(|key| assert!(map.insert(key, ())));
        assert_eq!(map.runs.len(), 100);
        (0..6400).filter(|key| key % 64 != 0).for_each(|key| assert!(map.remove(&key)));
        assert!(map.runs.len() <= 10, "{}", map.runs.len());
    }
}
