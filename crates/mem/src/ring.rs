//! Guards over the memory of queues: what a NIC reads and writes there, and in which order.
//!
//! A guard is checked once, when it is made: aligned, long enough, host memory or memory with a copy
//! engine. After that its accesses to host memory cannot fail, since every index is masked. The other
//! side may write at any time, so a value read twice may differ: read once, then decide. Where the
//! owner of a queue's memory may unmap it (feature `fault-guard`), such memory reads as zero, and what
//! is written there is lost.
//!
//! Of memory that only a copy engine reaches, a guard holds a copy in host memory. `fetch` brings
//! bytes from there, which must be done before they are loaded; CQEs are copied out as they are
//! written. Host memory needs no `fetch`, and one costs it a branch.

use crate::guarded::Word;
use crate::staged::StagedReads;
use crate::{Kind, MemError, Progress, Region};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Words of one 64-byte block, in address order and native byte order.
pub type Block = [u64; 8];

/// `len` bytes of host memory at a fixed address.
#[derive(Debug)]
pub(crate) struct Words {
    addr: u64,
    pub(crate) keep: Region,
    /// The memory that these bytes are a copy of, if only a copy engine reaches it.
    staged: Option<Box<StagedReads>>,
}

/// The first `len` bytes of `region`, aligned.
pub(crate) fn span(region: &Region, len: u64, align: u64) -> Result<Region, MemError> {
    let span = region.slice(0, len as usize)?;
    let addr = span.addr();
    if !addr.is_multiple_of(align) {
        return Err(MemError::Misaligned { addr, align: align as usize });
    }
    Ok(span)
}

/// Bytes of 2^`log` items of `item` bytes; a number that no region holds where 64 bits do not hold it.
pub(crate) fn bytes_of(log: u8, item: u64) -> u64 {
    1u64.checked_shl(log.into()).unwrap_or(u64::MAX).saturating_mul(item)
}

impl Words {
    /// Host memory alone.
    pub(crate) fn new(region: &Region, len: u64, align: u64) -> Result<Self, MemError> {
        let keep = span(region, len, align)?;
        let addr = keep.addr();
        if keep.kind() != Kind::Host {
            return Err(MemError::NotHost { addr });
        }
        Ok(Self { addr, keep, staged: None })
    }

    /// Host memory, or memory that a copy engine reaches.
    pub(crate) fn of_any(region: &Region, len: u64, align: u64) -> Result<Self, MemError> {
        if region.kind() == Kind::Host {
            return Self::new(region, len, align);
        }
        let staged = StagedReads::new(&span(region, len, align)?)?;
        let keep = staged.host().clone();
        Ok(Self { addr: keep.addr(), keep, staged: Some(Box::new(staged)) })
    }

    /// Where the bytes lie.
    pub(crate) fn kind(&self) -> Kind {
        self.staged.as_ref().map_or(Kind::Host, |staged| staged.kind())
    }

    /// Brings `len` bytes at `offset` from where they lie.
    #[inline]
    pub(crate) fn fetch(&self, offset: u64, len: usize) -> Result<(), MemError> {
        match &self.staged {
            None => Ok(()),
            Some(staged) => staged.fetch(offset, len),
        }
    }

    /// The word at byte `offset`, a multiple of its size that is inside.
    #[inline(always)]
    pub(crate) fn load<W: Word + Default>(&self, offset: u64, order: Ordering) -> W {
        self.check::<W>(offset);
        // SAFETY: every caller keeps `offset` inside the length that `new` checked; host memory,
        // aligned, alive as long as `keep`.
        unsafe { W::load(self.addr + offset, order) }.unwrap_or_default()
    }

    /// Sets the word at byte `offset`, likewise.
    #[inline(always)]
    pub(crate) fn store<W: Word>(&self, offset: u64, value: W, order: Ordering) {
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

/// A send queue as the NIC reads it: 2^n WQEBBs of 64 bytes, or units of another size.
#[derive(Debug)]
pub struct SendRing {
    words: Words,
    units: u64,
    log_unit: u8,
    /// Of whole blocks of 64 bytes.
    mask: u64,
    /// Units from an index to before another that are being brought, by one copy or two.
    begun: Option<(u64, u64, [Progress; 2])>,
}

impl SendRing {
    /// The first 2^`log` WQEBBs of `region`, which must be 64-byte aligned.
    pub fn new(region: &Region, log: u8) -> Result<Self, MemError> {
        let words = Words::of_any(region, bytes_of(log, 64), 64)?;
        let units = 1 << log;
        Ok(Self { words, units, log_unit: 6, mask: units - 1, begun: None })
    }

    /// The first `units` units of 2^`log_unit` bytes of `region`, at least 64 bytes together, 16-byte
    /// aligned.
    ///
    /// # Panics
    /// If a unit would be shorter than 16 or longer than 1024 bytes.
    pub fn of_units(region: &Region, units: u32, log_unit: u8) -> Result<Self, MemError> {
        assert!((4..=10).contains(&log_unit), "units of 2^{log_unit} bytes");
        let units = u64::from(units.max(1));
        let words = Words::of_any(region, (units << log_unit).max(64), 16)?;
        let blocks = words.keep.len() as u64 / 64;
        Ok(Self { words, units, log_unit, mask: (1 << blocks.ilog2()) - 1, begun: None })
    }

    /// Where the queue lies.
    pub fn kind(&self) -> Kind {
        self.words.kind()
    }

    /// Starts to bring the units from `from` to before `to`, for the next [`Self::fetch`] if that
    /// begins at the same place. Units loaded until then may hold anything.
    #[cold]
    pub fn begin(&mut self, from: u64, to: u64) {
        let Some(staged) = &self.words.staged else { return };
        // A failure shows at the fetch.
        let copies = self.start(staged, from, to);
        self.begun = copies.ok().map(|copies| (from, to, copies));
    }

    /// Forgets what was started to be brought.
    pub fn forget(&mut self) {
        self.begun = None;
    }

    /// Brings the units from `from` to before `to` from where they lie: in one copy, or in two where
    /// the ring ends in between. They were announced, so their owner does not write them.
    ///
    /// # Errors
    /// The copy engine failed, now or before.
    #[inline]
    pub fn fetch(&mut self, from: u64, to: u64) -> Result<(), MemError> {
        match self.words.staged {
            None => Ok(()),
            Some(_) => self.fetch_staged(from, to),
        }
    }

    #[cold]
    fn fetch_staged(&mut self, mut from: u64, to: u64) -> Result<(), MemError> {
        let Some(staged) = &self.words.staged else { return Ok(()) };
        if let Some((first, end, copies)) = self.begun.take_if(|(first, ..)| *first == from) {
            copies.into_iter().try_for_each(|copy| staged.wait(copy))?;
            from = first.max(end.min(to));
        }
        let copies = self.start(staged, from, to)?;
        copies.into_iter().try_for_each(|copy| staged.wait(copy))
    }

    /// Starts to copy units of the ring, as many as it has at most.
    fn start(&self, staged: &StagedReads, from: u64, to: u64) -> Result<[Progress; 2], MemError> {
        let (depth, first) = (self.units, from % self.units);
        let count = to.saturating_sub(from).min(depth);
        let straight = count.min(depth - first);
        let copy = |at: u64, count: u64| {
            staged.start(at << self.log_unit, (count << self.log_unit) as usize)
        };
        Ok([copy(first, straight)?, copy(0, count - straight)?])
    }

    /// The WQEBB at `index`, which is masked. Relaxed loads: the acquire is that of the doorbell
    /// (or record) that announced the WQE, and pairs with the poster's release of it.
    #[inline]
    pub fn load(&self, index: u64) -> Block {
        self.words.block_at((index & self.mask) * 64)
    }

    /// The 64 bytes from unit `index` on, as [`Self::read`] has them.
    #[inline]
    pub fn read_block(&self, index: u64) -> Block {
        let at = (index % self.units) << self.log_unit;
        if (self.units << self.log_unit) - at >= 64 {
            return self.words.block_at(at);
        }
        let mut block = [0; 8];
        self.read(index, &mut block);
        block
    }

    /// The bytes from unit `index` on, which is taken modulo the ring, with the ring's wrap undone: as many
    /// as `out` holds, and no more than the ring has. Relaxed loads, as for [`Self::load`].
    #[inline]
    pub fn read(&self, index: u64, out: &mut [u64]) {
        let len = self.units << self.log_unit;
        let at = (index % self.units) << self.log_unit;
        let straight = out.len().min(((len - at) / 8) as usize);
        let (first, rest) = out.split_at_mut(straight);
        for (i, word) in (0u64..).zip(first) {
            *word = self.words.load(at + i * 8, Ordering::Relaxed);
        }
        for (i, word) in (0..at / 8).zip(rest) {
            *word = self.words.load(i * 8, Ordering::Relaxed);
        }
    }
}

/// A receive queue (or SRQ, or another table) as the NIC reads it: 2^n WQEs of one length.
#[derive(Debug)]
pub struct ReceiveRing {
    words: Words,
    mask: u64,
    stride: usize,
}

impl ReceiveRing {
    /// The first 2^`log` WQEs of `stride` bytes of `region`, which must be 16-byte aligned.
    ///
    /// # Panics
    /// If a WQE would have other than 8 to 1024 bytes, in words of 8.
    pub fn new(region: &Region, log: u8, stride: usize) -> Result<Self, MemError> {
        let is_words = stride.is_multiple_of(8) && (8..=1024).contains(&stride);
        assert!(is_words, "receive WQEs of {stride} bytes");
        let words = Words::of_any(region, bytes_of(log, stride as u64), 16)?;
        Ok(Self { words, mask: (1 << log) - 1, stride })
    }

    /// Where the WQE at `index` begins.
    #[inline]
    fn place(&self, index: u64) -> u64 {
        (index & self.mask) * self.stride as u64
    }

    /// Where the queue lies.
    pub fn kind(&self) -> Kind {
        self.words.kind()
    }

    /// Brings the WQE at `index`, which is masked, from where it lies.
    ///
    /// # Errors
    /// The copy engine failed, now or before.
    #[inline]
    pub fn fetch(&self, index: u64) -> Result<(), MemError> {
        self.words.fetch(self.place(index), self.stride)
    }

    /// Receives in the ring.
    pub fn depth(&self) -> u64 {
        self.mask + 1
    }

    /// The first 8 bytes at `index`, which is masked, in native byte order.
    #[inline]
    pub fn first(&self, index: u64) -> u64 {
        self.words.load(self.place(index), Ordering::Relaxed)
    }

    /// The WQE at `index`, which is masked, copied into `out`. Relaxed loads: the acquire is that
    /// of the record that announced it.
    #[inline]
    pub fn load<'a>(&self, index: u64, out: &'a mut [u64]) -> &'a [u8] {
        let at = self.place(index);
        let words = &mut out[..self.stride / 8];
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
        Words::of_any(region, 8, 8).map(Self)
    }

    /// An SRQ's record: the first 4 bytes of `region`.
    pub fn for_srq(region: &Region) -> Result<Self, MemError> {
        Words::of_any(region, 4, 4).map(Self)
    }

    /// Where the record lies.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// Brings the record from where it lies.
    ///
    /// # Errors
    /// The copy engine failed, now or before.
    #[inline]
    pub fn fetch(&self) -> Result<(), MemError> {
        self.0.fetch(0, self.0.keep.len())
    }

    /// Forgets what was fetched: it reads as zero until the next [`Self::fetch`].
    pub fn forget(&self) {
        if self.0.staged.is_some() {
            (0..self.0.keep.len() as u64 / 4)
                .for_each(|word| self.0.store(word * 4, 0u32, Ordering::Relaxed));
        }
    }

    /// The first 8 bytes as a little-endian number: a doorbell, where formats have no record. Acquire, as
    /// below.
    #[inline]
    pub fn word(&self) -> u64 {
        if self.0.keep.len() < 8 {
            return 0;
        }
        u64::from_le(self.0.load(0, Ordering::Acquire))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompletionRing, HostBuf};

    #[test]
    fn guards_refuse_what_is_too_short_or_misaligned() {
        let region = HostBuf::region(4096).unwrap();
        assert!(SendRing::new(&region, 6).is_ok());
        assert!(matches!(SendRing::new(&region, 7), Err(MemError::OutOfBounds { .. })));
        let odd = region.slice(32, 2048).unwrap();
        assert!(matches!(SendRing::new(&odd, 3), Err(MemError::Misaligned { .. })));
        assert!(ReceiveRing::new(&odd, 3, 16).is_ok());
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
            assert!(ReceiveRing::new(&region, log, 64).is_err_and(refused), "{log}");
        }
    }

    #[test]
    fn indexes_are_masked() {
        let region = HostBuf::region(256).unwrap();
        region.write(64 * 3 + 8, &7u64.to_ne_bytes()).unwrap();
        let ring = SendRing::new(&region, 2).unwrap();
        assert_eq!(ring.load(u64::MAX)[1], 7);
        let receive = ReceiveRing::new(&region, 3, 32).unwrap();
        let mut wqe = [0; 128];
        let bytes = receive.load(6 + 8 * 1000, &mut wqe);
        assert_eq!((bytes.len(), bytes[8]), (32, 7));
    }
}
