//! Which bytes of a transfer have been announced.

/// Separate pieces that a receiver keeps track of for one transfer. An honest sender leaves at most
/// as many holes as it has sockets.
pub(super) const MOST_PIECES: usize = 1024;

/// Why a range was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Some of it is there.
    Overlap,
    /// There would be too many separate pieces.
    Scattered,
}

/// Disjoint ranges, none of which touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds `[start, end)`, which is not empty.
    ///
    /// # Errors
    /// Nothing changes if it is refused.
    pub(super) fn add(&mut self, start: u64, end: u64) -> Result<(), Refused> {
        debug_assert!(start < end);
        let at = self.0.partition_point(|&(first, _)| first < start);
        let before = at.checked_sub(1).map(|i| self.0[i]);
        let after = self.0.get(at).copied();
        if before.is_some_and(|(_, last)| last > start)
            || after.is_some_and(|(first, _)| first < end)
        {
            return Err(Refused::Overlap);
        }
        let joins_before = before.is_some_and(|(_, last)| last == start);
        let joins_after = after.is_some_and(|(first, _)| first == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = end,
            (false, true) => self.0[at].0 = start,
            (false, false) if self.0.len() == MOST_PIECES => return Err(Refused::Scattered),
            (false, false) => self.0.insert(at, (start, end)),
        }
        Ok(())
    }

    /// The ranges, in order.
    pub(super) fn pieces(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with one flag for each byte.
        #[test]
        fn ranges_are_those_of_a_bitmap(adds in prop::collection::vec((0u64..200, 1u64..40), 0..60)) {
            let mut ranges = Ranges::default();
            let mut bitmap = [false; 256];
            for (start, len) in adds {
                let bits = &mut bitmap[start as usize..(start + len) as usize];
                let overlaps = bits.iter().any(|bit| *bit);
                let added = ranges.add(start, start + len);
                prop_assert_eq!(added, if overlaps { Err(Refused::Overlap) } else { Ok(()) });
                if !overlaps {
                    bits.fill(true);
                }
                let mut pieces = Vec::new();
                for (i, bit) in bitmap.iter().enumerate() {
                    match pieces.last_mut() {
                        Some((_, end)) if *bit && *end == i as u64 => *end += 1,
                        _ if *bit => pieces.push((i as u64, i as u64 + 1)),
                        _ => {}
                    }
                }
                prop_assert_eq!(ranges.pieces(), &pieces[..]);
            }
        }
    }

    #[test]
    fn pieces_are_bounded() {
        let mut ranges = Ranges::default();
        for i in 0..MOST_PIECES as u64 {
            ranges.add(2 * i, 2 * i + 1).unwrap();
        }
        let far = 2 * MOST_PIECES as u64;
        assert_eq!(ranges.add(far, far + 1), Err(Refused::Scattered));
        assert_eq!(ranges.add(1, 2), Ok(()));
        assert_eq!(ranges.add(far, far + 1), Ok(()));
    }
}
