//! Guards over doorbells, in pages of host memory.

use crate::ring::Words;
use crate::{MemError, Region};
use std::sync::atomic::Ordering;

/// Doorbells, 8 bytes each, side by side.
#[derive(Debug)]
pub struct DoorbellPage {
    words: Words,
    count: usize,
}

impl DoorbellPage {
    /// The first `count` doorbells of `region`.
    pub fn new(region: &Region, count: usize) -> Result<Self, MemError> {
        Ok(Self { words: Words::new(region, (count as u64).saturating_mul(8), 8)?, count })
    }

    /// Doorbells.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The doorbell of `slot` (below `count`, else 0), bytes in memory order. Acquire, pairs with
    /// the poster's release of the doorbell.
    #[inline]
    pub fn load(&self, slot: usize) -> [u8; 8] {
        if slot >= self.count {
            return [0; 8];
        }
        self.words.load::<u64>(slot as u64 * 8, Ordering::Acquire).to_ne_bytes()
    }

    /// Sets a doorbell to zero, before its QP is handed out.
    pub fn clear(&self, slot: usize) {
        if slot < self.count {
            self.words.store(slot as u64 * 8, 0u64, Ordering::Release);
        }
    }

    /// The first slot at or after `from` whose doorbell differs from `seen[slot]`, if any. Eight
    /// doorbells (one cache line) are looked at with one branch. Relaxed: [`Self::load`] it then.
    #[inline]
    pub fn find_change(&self, seen: &[u64], from: usize) -> Option<usize> {
        let end = self.count.min(seen.len());
        let mut slot = from;
        while slot + 8 <= end {
            let mut differs = 0;
            for (i, old) in (slot..).zip(&seen[slot..slot + 8]) {
                differs |= self.words.load::<u64>(i as u64 * 8, Ordering::Relaxed) ^ old;
            }
            if differs != 0 {
                break;
            }
            slot += 8;
        }
        let load = |i| self.words.load::<u64>(i as u64 * 8, Ordering::Relaxed);
        (slot..end).find(|&i| load(i) != seen[i])
    }
}

/// A page of doorbell registers, laid out as mlx5's: 8-byte words, each by itself.
#[derive(Debug)]
pub struct RegisterPage(Words);

impl RegisterPage {
    /// Bytes of a page.
    pub const BYTES: usize = 4096;
    /// Registers of a page.
    pub const REGISTERS: usize = 4;

    /// The first [`Self::BYTES`] of `region`.
    pub fn new(region: &Region) -> Result<Self, MemError> {
        Words::new(region, Self::BYTES as u64, 8).map(Self)
    }

    /// The first of `pages` whose register differs from `seen`, which has a value for each. Four
    /// are looked at with one branch. Relaxed: [`Self::load`] it then.
    #[inline]
    pub fn find_change(pages: &[Self], register: usize, seen: &[u64]) -> Option<usize> {
        const GROUP: usize = 4;
        let differs = |(page, old): (&Self, &u64)| page.peek(register) ^ old;
        let (groups, _) = pages.as_chunks::<GROUP>();
        let (old, _) = seen.as_chunks::<GROUP>();
        let same = groups.iter().zip(old).take_while(|(group, old)| {
            let all = group.iter().zip(*old).map(differs);
            all.fold(0, |found, more| found | more) == 0
        });
        let from = same.count() * GROUP;
        let rest = pages[from..].iter().zip(&seen[from..]);
        rest.map(differs).position(|found| found != 0).map(|at| from + at)
    }

    /// The value of a register, of which there are [`Self::REGISTERS`]. Relaxed: [`Self::load`] it
    /// if it is a new one.
    #[inline(always)]
    pub fn peek(&self, register: usize) -> u64 {
        self.0.load(Self::offset(register), Ordering::Relaxed)
    }

    /// The same, bytes in memory order. Acquire, pairs with the poster's release of the doorbell:
    /// the record that was written before it is visible.
    #[inline]
    pub fn load(&self, register: usize) -> [u8; 8] {
        self.0.load::<u64>(Self::offset(register), Ordering::Acquire).to_ne_bytes()
    }

    /// Sets a register to 0 if it still has this value; one that is written meanwhile stays.
    pub fn clear(&self, register: usize, value: u64) {
        let cleared = |now| if now == value { 0 } else { now };
        let _lost = self.0.keep.update_u64(Self::offset(register), cleared);
    }

    #[inline(always)]
    fn offset(register: usize) -> u64 {
        0x800 + ((register & (Self::REGISTERS - 1)) as u64) * 0x100
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;

    #[test]
    fn more_doorbells_than_64_bits_count_are_refused() {
        let region = HostBuf::region(4096).unwrap();
        let refused = |error| matches!(error, MemError::OutOfBounds { len: u64::MAX, .. });
        assert!(DoorbellPage::new(&region, 1 << 61).is_err_and(refused));
    }

    #[test]
    fn a_change_is_found_wherever_it_is() {
        let region = HostBuf::region(8 * 37).unwrap();
        let page = DoorbellPage::new(&region, 37).unwrap();
        let seen = vec![0u64; 37];
        for slot in 0..37usize {
            assert_eq!(page.find_change(&seen, 0), None);
            region.write(slot as u64 * 8, &[1]).unwrap();
            for from in 0..=37 {
                assert_eq!(page.find_change(&seen, from), (from <= slot).then_some(slot));
            }
            page.clear(slot);
        }
    }
}
