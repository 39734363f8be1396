//! Guards over the memory of queues: what a NIC reads and writes there, and in which order.
//!
//! A guard is checked once, when it is made: host memory, aligned, long enough. After that its
//! accesses cannot fail, since every index is masked. The other side may write at any time, so a
//! value read twice may differ: read once, then decide. Where the owner of a queue's memory may
//! unmap it (feature `fault-guard`), such memory reads as zero, and what is written there is lost.

use crate::guarded::Word;
use crate::{Kind, MemError, Region};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Words of one 64-byte block, in address order and native byte order.
pub type Block = [u64; 8];

/// `len` bytes of host memory at a fixed address.
#[derive(Debug)]
struct Words {
    addr: u64,
    keep: Region,
}

impl Words {
    fn new(region: &Region, len: u64, align: u64) -> Result<Self, MemError> {
        let keep = region.slice(0, len as usize)?;
        let addr = keep.addr();
        if keep.kind() != Kind::Host {
            return Err(MemError::NotHost { addr });
        }
        if !addr.is_multiple_of(align) {
            return Err(MemError::Misaligned { addr, align: align as usize });
        }
        Ok(Self { addr, keep })
    }

    /// 2^`log` items of `item` bytes; a number that no region holds where 64 bits do not hold it.
    fn of_items(region: &Region, log: u8, item: u64, align: u64) -> Result<Self, MemError> {
        let count = 1u64.checked_shl(log.into()).unwrap_or(u64::MAX);
        Self::new(region, count.saturating_mul(item), align)
    }

    /// The word at byte `offset`, a multiple of its size that is inside.
    #[inline(always)]
    fn load<W: Word + Default>(&self, offset: u64, order: Ordering) -> W {
        self.check::<W>(offset);
        // SAFETY: every caller keeps `offset` inside the length that `new` checked; host memory,
        // aligned, alive as long as `keep`.
        unsafe { W::load(self.addr + offset, order) }.unwrap_or_default()
    }

    /// Sets the word at byte `offset`, likewise.
    #[inline(always)]
    fn store<W: Word>(&self, offset: u64, value: W, order: Ordering) {
        self.check::<W>(offset);
        // SAFETY: as for `load`.
        let _lost = unsafe { value.store(self.addr + offset, order) };
    }

    #[inline(always)]
    fn check<W>(&self, offset: u64) {
        let size = size_of::<W>() as u64;
        debug_assert!(offset.is_multiple_of(size) && offset + size <= self.keep.len() as u64);
    }

    #[inline]
    fn block_at(&self, offset: u64) -> Block {
        let mut out = [0u64; 8];
        for (i, word) in (0u64..).zip(out.iter_mut()) {
            *word = self.load(offset + i * 8, Ordering::Relaxed);
        }
        out
    }
}

/// A send queue as the NIC reads it: 2^n WQEBBs of 64 bytes.
#[derive(Debug)]
pub struct SendRing {
    words: Words,
    mask: u64,
}

impl SendRing {
    /// The first 2^`log` WQEBBs of `region`, which must be 64-byte aligned.
    pub fn new(region: &Region, log: u8) -> Result<Self, MemError> {
        Ok(Self { words: Words::of_items(region, log, 64, 64)?, mask: (1 << log) - 1 })
    }

    /// The WQEBB at `index`, which is masked. Relaxed loads: the acquire is that of the doorbell
    /// (or record) that announced the WQE, and pairs with the poster's release of it.
    #[inline]
    pub fn load(&self, index: u64) -> Block {
        self.words.block_at((index & self.mask) * 64)
    }
}

/// A receive queue (or SRQ) as the NIC reads it: 2^n WQEs of 2^s bytes.
#[derive(Debug)]
pub struct ReceiveRing {
    words: Words,
    mask: u64,
    log_stride: u8,
}

impl ReceiveRing {
    /// The first 2^`log` WQEs of 2^`log_stride` bytes of `region`, which must be 16-byte aligned.
    ///
    /// # Panics
    /// If a WQE would be shorter than 16 or longer than 1024 bytes.
    pub fn new(region: &Region, log: u8, log_stride: u8) -> Result<Self, MemError> {
        assert!((4..=10).contains(&log_stride), "receive WQEs of 2^{log_stride} bytes");
        let words = Words::of_items(region, log, 1 << log_stride, 16)?;
        Ok(Self { words, mask: (1 << log) - 1, log_stride })
    }

    /// Receives in the ring.
    pub fn depth(&self) -> u64 {
        self.mask + 1
    }

    /// The WQE at `index`, which is masked, copied into `out`. Relaxed loads: the acquire is that
    /// of the record that announced it.
    #[inline]
    pub fn load<'a>(&self, index: u64, out: &'a mut [u64; 128]) -> &'a [u8] {
        let at = (index & self.mask) << self.log_stride;
        let words = &mut out[..1 << (self.log_stride - 3)];
        for (i, word) in (0u64..).zip(words.iter_mut()) {
            *word = self.words.load(at + i * 8, Ordering::Relaxed);
        }
        words.as_bytes()
    }
}

/// The doorbell record of a QP: be32 RCV counter, be32 SND counter. An SRQ's record is the first
/// word alone.
#[derive(Debug)]
pub struct QueueRecord(Words);

impl QueueRecord {
    /// A QP's record: the first 8 bytes of `region`.
    pub fn new(region: &Region) -> Result<Self, MemError> {
        Words::new(region, 8, 8).map(Self)
    }

    /// An SRQ's record: the first 4 bytes of `region`.
    pub fn for_srq(region: &Region) -> Result<Self, MemError> {
        Words::new(region, 4, 4).map(Self)
    }

    /// Receive WQEs posted so far, modulo 2^16. Acquire, pairs with the poster's release.
    #[inline]
    pub fn receive(&self) -> u16 {
        u32::from_be(self.0.load(0, Ordering::Acquire)) as u16
    }

    /// Index of the next free WQEBB, modulo 2^16; 0 for an SRQ's record. Acquire, as above.
    #[inline]
    pub fn send(&self) -> u16 {
        if self.0.keep.len() < 8 {
            return 0;
        }
        u32::from_be(self.0.load(4, Ordering::Acquire)) as u16
    }
}

/// The doorbell record of a CQ: be32 SET_CI, be32 ARM.
#[derive(Debug)]
pub struct CompletionRecord(Words);

impl CompletionRecord {
    /// The first 8 bytes of `region`.
    pub fn new(region: &Region) -> Result<Self, MemError> {
        Words::new(region, 8, 8).map(Self)
    }

    /// Consumer index, modulo 2^24. Acquire: the consumer has read its CQEs before it says so.
    #[inline]
    pub fn consumer(&self) -> u32 {
        u32::from_be(self.0.load(0, Ordering::Acquire)) & 0xff_ffff
    }

    /// The arm word, unless it is that of [`Self::disarm`]. Acquire: a consumer that arms has
    /// consumed up to the index in it.
    #[inline]
    pub fn arm(&self) -> Option<u32> {
        let word = u32::from_be(self.0.load(4, Ordering::Acquire));
        (word != NOT_ARMED).then_some(word)
    }

    /// Puts a value into the arm word that no consumer writes.
    pub fn disarm(&self) {
        self.0.store(4, NOT_ARMED.to_be(), Ordering::Release);
    }
}

/// Bits 31 and 30 are never set in an arm word.
const NOT_ARMED: u32 = 0xc000_0000;

/// A completion queue as the NIC writes it: 2^n CQEs of 64 bytes.
#[derive(Debug)]
pub struct CompletionRing {
    words: Words,
    mask: u64,
}

impl CompletionRing {
    /// The first 2^`log` CQEs of `region`, 64-byte aligned, all bytes set to 0xff: no CQE is valid.
    pub fn new(region: &Region, log: u8) -> Result<Self, MemError> {
        let ring = Self { words: Words::of_items(region, log, 64, 64)?, mask: (1 << log) - 1 };
        region.fill(0, 64 << log, 0xff)?;
        Ok(ring)
    }

    /// Writes 64 bytes at `index`, which is masked, before the CQE that shows them is published.
    pub fn write(&self, index: u64, bytes: &Block) {
        let at = (index & self.mask) * 64;
        for (i, word) in (0u64..).zip(bytes) {
            self.words.store(at + i * 8, *word, Ordering::Relaxed);
        }
    }

    /// Writes the CQE at `index`, which is masked: the body first, then bytes 56..64, which carry
    /// the owner bit, as one release store. Pairs with the poller's acquire of that word.
    #[inline]
    pub fn publish(&self, index: u64, cqe: &Block) {
        let at = (index & self.mask) * 64;
        let [body @ .., owner] = cqe;
        for (i, word) in (0u64..).zip(body) {
            self.words.store(at + i * 8, *word, Ordering::Relaxed);
        }
        self.words.store(at + 56, *owner, Ordering::Release);
    }
}

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
    fn guards_refuse_what_is_too_short_or_misaligned() {
        let region = HostBuf::region(4096).unwrap();
        assert!(SendRing::new(&region, 6).is_ok());
        assert!(matches!(SendRing::new(&region, 7), Err(MemError::OutOfBounds { .. })));
        let odd = region.slice(32, 2048).unwrap();
        assert!(matches!(SendRing::new(&odd, 3), Err(MemError::Misaligned { .. })));
        assert!(ReceiveRing::new(&odd, 3, 4).is_ok());
        assert!(QueueRecord::new(&region.slice(4, 8).unwrap()).is_err());
        assert!(QueueRecord::for_srq(&region.slice(4, 4).unwrap()).is_ok());
    }

    #[test]
    fn sizes_beyond_64_bits_are_refused() {
        let region = HostBuf::region(4096).unwrap();
        let refused = |error| matches!(error, MemError::OutOfBounds { len: u64::MAX, .. });
        for log in [58, 60, 64, 255] {
            assert!(SendRing::new(&region, log).is_err_and(refused), "{log}");
            assert!(CompletionRing::new(&region, log).is_err_and(refused), "{log}");
            assert!(ReceiveRing::new(&region, log, 6).is_err_and(refused), "{log}");
        }
        assert!(DoorbellPage::new(&region, 1 << 61).is_err_and(refused));
    }

    #[test]
    fn indexes_are_masked() {
        let region = HostBuf::region(256).unwrap();
        region.write(64 * 3 + 8, &7u64.to_ne_bytes()).unwrap();
        let ring = SendRing::new(&region, 2).unwrap();
        assert_eq!(ring.load(u64::MAX)[1], 7);
        let receive = ReceiveRing::new(&region, 3, 5).unwrap();
        let mut wqe = [0; 128];
        let bytes = receive.load(6 + 8 * 1000, &mut wqe);
        assert_eq!((bytes.len(), bytes[8]), (32, 7));
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

    #[test]
    fn the_owner_word_is_the_last_of_the_block() {
        let region = HostBuf::region(128).unwrap();
        let ring = CompletionRing::new(&region, 1).unwrap();
        let mut bytes = [0u8; 128];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff; 128]);
        ring.publish(3, &[1, 2, 3, 4, 5, 6, 7, 8]);
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes[..64], [0xff; 64]);
        assert_eq!((bytes[64], bytes[120]), (1, 8));
    }
}
