//! Places in the heap. Pure and deterministic: the same calls in the same order give the same
//! offsets on every rank.

use std::collections::BTreeMap;
use thiserror::Error;
use warpverbs_mem::Holes;

/// Every place begins at a multiple of this, and takes a multiple of this.
pub const GRANULE: u64 = 16;
/// The largest alignment that can be asked for.
pub const MOST_ALIGN: u64 = 2 << 20;

/// A place cannot be given out or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum AllocError {
    /// No hole is large enough.
    #[error(
        "no room for {asked} bytes aligned to {align}: {free} of {size} bytes are free, the largest \
         hole has {largest}; the heap may grow to {limit}"
    )]
    NoRoom { asked: u64, align: u64, free: u64, largest: u64, size: u64, limit: u64 },
    /// Not a power of two, or too large.
    #[error("alignment {align}: expected a power of two up to {MOST_ALIGN}")]
    Align { align: u64 },
    /// It was given back before; something else may have its bytes by now.
    #[error("the place at offset {offset:#x} was given back already")]
    Freed { offset: u64 },
    /// A part of a place cannot be given back.
    #[error(
        "{len:#x} bytes at offset {offset:#x} are a part of a place: the whole has {whole_len:#x} \
         bytes at {whole_offset:#x}"
    )]
    Part { offset: u64, len: u64, whole_offset: u64, whole_len: u64 },
}

/// Bytes that were given out. No two allocations of one heap have the same serial number, wherever
/// they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// How many were given out before it.
    pub serial: u64,
    /// Its first byte.
    pub offset: u64,
    /// Bytes that were asked for.
    pub len: u64,
}

/// First fit over `[0, size)`, which may grow at its end.
#[derive(Clone, Debug)]
pub struct Allocator {
    size: u64,
    limit: u64,
    holes: Holes,
    /// Allocations that were not given back, by serial number.
    taken: BTreeMap<u64, Allocation>,
    /// Serial number of the next one.
    next: u64,
}

impl Allocator {
    /// `[reserved, size)` is free; `size` may become `limit`. All three are multiples of [`GRANULE`].
    pub fn new(reserved: u64, size: u64, limit: u64) -> Self {
        let holes = Holes::new(reserved, size.saturating_sub(reserved));
        Self { size, limit, holes, taken: BTreeMap::new(), next: 0 }
    }

    /// `len` bytes aligned to `align`. No bytes are a place of their own as well.
    ///
    /// # Errors
    /// [`AllocError::NoRoom`], [`AllocError::Align`]; nothing has changed then.
    pub fn alloc(&mut self, len: u64, align: u64) -> Result<Allocation, AllocError> {
        if !align.is_power_of_two() || align > MOST_ALIGN {
            return Err(AllocError::Align { align });
        }
        let (asked, align) = (len, align.max(GRANULE));
        let Some(offset) = room_for(len).and_then(|len| self.holes.take(len, align)) else {
            return Err(AllocError::NoRoom {
                asked,
                align,
                free: self.free_bytes(),
                largest: self.holes.largest(),
                size: self.size,
                limit: self.limit,
            });
        };
        let allocation = Allocation { serial: self.next, offset, len: asked };
        self.next += 1;
        self.taken.insert(allocation.serial, allocation);
        Ok(allocation)
    }

    /// Whether it was given back.
    ///
    /// # Errors
    /// [`AllocError::Freed`].
    pub fn check(&self, serial: u64, offset: u64) -> Result<Allocation, AllocError> {
        self.taken.get(&serial).copied().ok_or(AllocError::Freed { offset })
    }

    /// Takes back what [`Allocator::alloc`] gave.
    ///
    /// # Errors
    /// [`AllocError::Freed`], [`AllocError::Part`]; nothing has changed then.
    pub fn free(&mut self, allocation: Allocation) -> Result<(), AllocError> {
        let Allocation { serial, offset, len } = allocation;
        let whole = self.check(serial, offset)?;
        if allocation != whole {
            let (whole_offset, whole_len) = (whole.offset, whole.len);
            return Err(AllocError::Part { offset, len, whole_offset, whole_len });
        }
        self.taken.remove(&serial);
        // The allocation had this room.
        self.holes.give(offset, room_for(len).unwrap_or(len));
        Ok(())
    }

    /// The heap now has `size` bytes.
    pub fn grow(&mut self, size: u64) {
        if size > self.size {
            let at = std::mem::replace(&mut self.size, size);
            self.holes.give(at, size - at);
        }
    }

    /// Bytes free in all.
    pub fn free_bytes(&self) -> u64 {
        self.holes.free_bytes()
    }

    /// How many places are given out.
    pub fn count(&self) -> usize {
        self.taken.len()
    }
}

/// Bytes that `len` bytes take.
fn room_for(len: u64) -> Option<u64> {
    len.max(1).checked_next_multiple_of(GRANULE)
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
        /// A place that was given back before.
        FreeAgain(usize),
        /// A part of what is there, by bytes that are missing in front and behind.
        FreePart(usize, u64, u64),
        Grow,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u64..700, 0u32..10).prop_map(|(len, log)| Step::Alloc(len, log)),
            4 => any::<usize>().prop_map(Step::Free),
            1 => any::<usize>().prop_map(Step::FreeAgain),
            1 => (any::<usize>(), 0u64..99, 0u64..99).prop_map(|(n, a, b)| Step::FreePart(n, a, b)),
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
            let (mut here, mut gone) = (Vec::new(), Vec::<Allocation>::new());
            for step in steps {
                match step {
                    Step::Alloc(len, log) => {
                        let (given, wanted) = (ours.alloc(len, 1 << log), model.alloc(len, 1 << log));
                        prop_assert_eq!(given.ok().map(|given| given.offset), wanted);
                        here.extend(given);
                    }
                    Step::Free(n) if !here.is_empty() => {
                        let place = here.swap_remove(n % here.len());
                        prop_assert!(model.free(place.offset));
                        prop_assert_eq!(ours.free(place), Ok(()));
                        gone.push(place);
                    }
                    Step::FreeAgain(n) if !gone.is_empty() => {
                        let place = gone[n % gone.len()];
                        let refused = AllocError::Freed { offset: place.offset };
                        prop_assert_eq!(ours.free(place), Err(refused));
                        prop_assert_eq!(ours.check(place.serial, place.offset), Err(refused));
                    }
                    Step::FreePart(n, front, behind) if !here.is_empty() => {
                        let whole = here[n % here.len()];
                        let len = whole.len.saturating_sub(front + behind);
                        let part = Allocation { offset: whole.offset + front, len, ..whole };
                        if part != whole {
                            let refused = ours.free(part);
                            prop_assert!(matches!(refused, Err(AllocError::Part { .. })), "{refused:?}");
                        }
                    }
                    Step::Free(_) | Step::FreeAgain(_) | Step::FreePart(..) => {}
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
        let offset = places[0].offset;
        assert_eq!(heap.free(places[0]), Err(AllocError::Freed { offset }));
        // Another has its bytes now.
        let next = heap.alloc(256, 1).unwrap();
        assert_eq!((next.offset, next.serial), (offset, 4));
        assert_eq!(heap.free(places[0]), Err(AllocError::Freed { offset }));
        let part = Allocation { len: 16, ..next };
        let refused = heap.free(part).unwrap_err().to_string();
        assert_eq!(
            refused,
            "0x10 bytes at offset 0x0 are a part of a place: the whole has 0x100 bytes at 0x0"
        );
        assert_eq!(heap.free(next), Ok(()));
    }
}
