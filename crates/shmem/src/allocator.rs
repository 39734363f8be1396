//! Places in the heap. Pure and deterministic: the same calls in the same order give the same
//! offsets on every rank.

use std::collections::BTreeMap;
use thiserror::Error;

/// Every place begins at a multiple of this, and takes a multiple of this.
pub const GRANULE: u64 = 16;
/// The largest alignment that can be asked for.
pub const MOST_ALIGN: u64 = 2 << 20;

/// A place cannot be given out or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No hole is large enough.
    #[error(
        "no room for {asked} bytes aligned to {align}: {free} of {size} bytes are free, the largest \
         hole has {largest}; the heap may grow to {limit}"
    )]
    NoRoom {
        /// Bytes asked for.
        asked: u64,
        /// Alignment asked for.
        align: u64,
        /// Bytes free in all.
        free: u64,
        /// Bytes of the largest hole.
        largest: u64,
        /// Bytes of the heap.
        size: u64,
        /// Bytes that the heap may have.
        limit: u64,
    },
    /// Not a power of two, or too large.
    #[error("alignment {align}: expected a power of two up to {MOST_ALIGN}")]
    Align {
        /// What was asked for.
        align: u64,
    },
    /// Nothing was given out there.
    #[error("nothing is allocated at offset {offset:#x}")]
    NotAllocated {
        /// The offset.
        offset: u64,
    },
}

/// First fit over `[0, size)`, which may grow at its end.
#[derive(Clone, Debug)]
pub struct Allocator {
    size: u64,
    limit: u64,
    /// Holes: offset and length, never adjacent.
    free: BTreeMap<u64, u64>,
    /// What was given out: offset and length.
    taken: BTreeMap<u64, u64>,
}

impl Allocator {
    /// `[reserved, size)` is free; `size` may become `limit`. All three are multiples of [`GRANULE`].
    pub fn new(reserved: u64, size: u64, limit: u64) -> Self {
        let holes = (reserved < size).then_some((reserved, size - reserved));
        Self { size, limit, free: holes.into_iter().collect(), taken: BTreeMap::new() }
    }

    /// Offset of `len` bytes aligned to `align`. No bytes are a place of their own as well.
    ///
    /// # Errors
    /// [`AllocError::NoRoom`], [`AllocError::Align`]; nothing has changed then.
    pub fn alloc(&mut self, len: u64, align: u64) -> Result<u64, AllocError> {
        if !align.is_power_of_two() || align > MOST_ALIGN {
            return Err(AllocError::Align { align });
        }
        let (asked, align) = (len, align.max(GRANULE));
        let fit = len.max(1).checked_next_multiple_of(GRANULE).and_then(|len| {
            let mut holes = self.free.iter().map(|(&at, &room)| (at, room));
            holes.find_map(|(at, room)| {
                let begin = at.checked_next_multiple_of(align)?;
                let skipped = begin - at;
                (skipped <= room && len <= room - skipped).then_some((at, room, begin, len))
            })
        });
        let Some((at, room, begin, len)) = fit else {
            return Err(AllocError::NoRoom {
                asked,
                align,
                free: self.free_bytes(),
                largest: self.free.values().copied().max().unwrap_or(0),
                size: self.size,
                limit: self.limit,
            });
        };
        self.free.remove(&at);
        let after = begin + len;
        for (hole, bytes) in [(at, begin - at), (after, at + room - after)] {
            if bytes > 0 {
                self.free.insert(hole, bytes);
            }
        }
        self.taken.insert(begin, len);
        Ok(begin)
    }

    /// Takes back what [`Allocator::alloc`] gave.
    ///
    /// # Errors
    /// [`AllocError::NotAllocated`]; nothing has changed then.
    pub fn free(&mut self, offset: u64) -> Result<(), AllocError> {
        let len = self.taken.remove(&offset).ok_or(AllocError::NotAllocated { offset })?;
        self.add_hole(offset, len);
        Ok(())
    }

    /// The heap now has `size` bytes.
    pub fn grow(&mut self, size: u64) {
        if size > self.size {
            let at = std::mem::replace(&mut self.size, size);
            self.add_hole(at, size - at);
        }
    }

    fn add_hole(&mut self, mut at: u64, mut len: u64) {
        if let Some(after) = self.free.remove(&(at + len)) {
            len += after;
        }
        let before = self.free.range(..at).next_back().map(|(&at, &room)| (at, room));
        if let Some((start, room)) = before.filter(|(start, room)| start + room == at) {
            (at, len) = (start, room + len);
        }
        self.free.insert(at, len);
    }

    /// Bytes free in all.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// How many places are given out.
    pub fn count(&self) -> usize {
        self.taken.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One byte of state for each granule, searched from the start.
    struct Model {
        used: Vec<bool>,
        lens: BTreeMap<u64, u64>,
    }

    impl Model {
        fn alloc(&mut self, len: u64, align: u64) -> Option<u64> {
            let (len, step) = (len.max(1).div_ceil(GRANULE), align.max(GRANULE) / GRANULE);
            let count = self.used.len() as u64;
            let fits = |at: u64| {
                at + len <= count && self.used[at as usize..(at + len) as usize].iter().all(|u| !u)
            };
            let at = (0..count).step_by(step as usize).find(|&at| fits(at))?;
            self.used[at as usize..(at + len) as usize].fill(true);
            self.lens.insert(at * GRANULE, len);
            Some(at * GRANULE)
        }

        fn free(&mut self, offset: u64) -> bool {
            let Some(len) = self.lens.remove(&offset) else { return false };
            let at = (offset / GRANULE) as usize;
            self.used[at..at + len as usize].fill(false);
            true
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Alloc(u64, u32),
        Free(usize),
        FreeWrong(u64),
        Grow,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u64..700, 0u32..10).prop_map(|(len, log)| Step::Alloc(len, log)),
            4 => any::<usize>().prop_map(Step::Free),
            1 => (0u64..9000).prop_map(Step::FreeWrong),
            1 => Just(Step::Grow),
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_search_from_the_start_does(steps in prop::collection::vec(step(), 0..120)) {
            let (mut size, limit) = (4096, 16384);
            let mut ours = Allocator::new(512, size, limit);
            let mut model = Model { used: vec![false; 256], lens: BTreeMap::new() };
            model.used[..32].fill(true);
            for step in steps {
                match step {
                    Step::Alloc(len, log) => {
                        let (given, wanted) = (ours.alloc(len, 1 << log), model.alloc(len, 1 << log));
                        prop_assert_eq!(given.ok(), wanted);
                    }
                    Step::Free(n) => {
                        let places: Vec<_> = model.lens.keys().copied().collect();
                        if let Some(&place) = places.get(n % places.len().max(1)) {
                            prop_assert!(model.free(place));
                            prop_assert_eq!(ours.free(place), Ok(()));
                        }
                    }
                    Step::FreeWrong(offset) => {
                        prop_assert_eq!(ours.free(offset).is_ok(), model.free(offset));
                    }
                    Step::Grow => {
                        size = (size * 2).min(limit);
                        ours.grow(size);
                        model.used.resize((size / GRANULE) as usize, false);
                    }
                }
                let free = model.used.iter().filter(|used| !**used).count() as u64 * GRANULE;
                prop_assert_eq!(ours.free_bytes(), free);
                prop_assert_eq!(ours.count(), model.lens.len());
            }
        }
    }

    #[test]
    fn a_refusal_says_what_was_asked_and_what_there_is() {
        let mut heap = Allocator::new(0, 1024, 4096);
        let places: Vec<_> = (0..4).map(|_| heap.alloc(256, 1).unwrap()).collect();
        heap.free(places[0]).unwrap();
        heap.free(places[2]).unwrap();
        let refused = AllocError::NoRoom {
            asked: 300,
            align: 16,
            free: 512,
            largest: 256,
            size: 1024,
            limit: 4096,
        };
        assert_eq!(heap.alloc(300, 8), Err(refused));
        assert_eq!(
            heap.alloc(u64::MAX, 8).unwrap_err().to_string(),
            "no room for \
            18446744073709551615 bytes aligned to 16: 512 of 1024 bytes are free, the largest hole \
            has 256; the heap may grow to 4096"
        );
        assert_eq!(heap.alloc(1, 3), Err(AllocError::Align { align: 3 }));
        assert_eq!(heap.alloc(1, 4 << 20), Err(AllocError::Align { align: 4 << 20 }));
        assert_eq!(heap.free(places[0]), Err(AllocError::NotAllocated { offset: places[0] }));
    }
}
