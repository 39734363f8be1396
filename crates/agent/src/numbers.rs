//! Sets of numbers that are given out in order, and of which long runs are in the set.

use std::collections::BTreeMap;

/// Runs that are kept. Numbers of this agent's peers that never had a meaning here make them: with more,
/// what lies between the two lowest runs counts as in the set.
const MOST_RUNS: usize = 1 << 16;

/// A set of numbers, as runs: as large as there are gaps, however many numbers there are.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The first of each run, and the last.
    runs: BTreeMap<u32, u32>,
}

impl Numbers {
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    pub(crate) fn insert(&mut self, number: u32) {
        if self.contains(number) {
            return;
        }
        let (mut first, mut last) = (number, number);
        let below = self.runs.range(..number).next_back().map(|(first, last)| (*first, *last));
        if let Some((start, end)) = below
            && end.checked_add(1) == Some(number)
        {
            first = start;
        }
        if let Some(next) = number.checked_add(1)
            && let Some(end) = self.runs.remove(&next)
        {
            last = end;
        }
        self.runs.insert(first, last);
        if self.runs.len() > MOST_RUNS
            && let Some((lowest, _)) = self.runs.pop_first()
            && let Some((_, last)) = self.runs.pop_first()
        {
            self.runs.insert(lowest, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn it_has_what_was_inserted(wanted in prop::collection::vec(0u32..64, 0..80)) {
            let (mut numbers, mut model) = (Numbers::default(), HashSet::new());
            for number in wanted.iter().chain([&u32::MAX]) {
                numbers.insert(*number);
                model.insert(*number);
                for at in (0..70).chain([u32::MAX - 1, u32::MAX]) {
                    prop_assert_eq!(numbers.contains(at), model.contains(&at));
                }
            }
            let gaps = (0..64).filter(|at| model.contains(at) && !model.contains(&(at + 1)));
            prop_assert_eq!(numbers.runs.len(), gaps.count() + 1);
        }
    }

    #[test]
    fn it_does_not_grow_with_the_numbers_and_is_bounded() {
        let mut numbers = Numbers::default();
        (0..1_000_000).rev().for_each(|number| numbers.insert(number));
        assert_eq!(numbers.runs.len(), 1);
        (0..100_000).for_each(|number| numbers.insert(2_000_000 + 2 * number));
        assert_eq!(numbers.runs.len(), MOST_RUNS);
        assert!(numbers.contains(2_199_998) && !numbers.contains(2_199_997));
        assert!(!numbers.contains(u32::MAX));
    }
}
