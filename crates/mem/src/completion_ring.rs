//! Guards over the memory of CQs; those of other queues are in [`crate::ring`].

use crate::ring::{Block, Words, bytes_of, span};
use crate::staged::StagedWrites;
use crate::{Kind, MemError, Region};
use std::sync::atomic::Ordering;

/// The doorbell record of a CQ: be32 SET_CI, be32 ARM.
#[derive(Debug)]
pub struct CompletionRecord(Words);

impl CompletionRecord {
    /// The first 8 bytes of `region`.
    pub fn new(region: &Region) -> Result<Self, MemError> {
        Words::of_any(region, 8, 8).map(Self)
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
        self.0.fetch(0, 8)
    }

    /// The 8 bytes as a little-endian number: a doorbell, where formats have no record. Acquire, as below.
    #[inline]
    pub fn word(&self) -> u64 {
        u64::from_le(self.0.load(0, Ordering::Acquire))
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

    /// Puts a value into the arm word that no consumer writes. Of host memory alone: a record that
    /// must be copied is not watched.
    pub fn disarm(&self) {
        self.0.store(4, NOT_ARMED.to_be(), Ordering::Release);
    }
}

/// Bits 31 and 30 are never set in an arm word.
const NOT_ARMED: u32 = 0xc000_0000;

/// A completion queue as the NIC writes it: 2^n CQEs of 64 bytes, or of 32.
#[derive(Debug)]
pub struct CompletionRing {
    place: Place,
    mask: u64,
    /// Bytes of a CQE.
    entry: u64,
}

/// Where CQEs are written.
#[derive(Debug)]
enum Place {
    Host(Words),
    Device(Box<StagedWrites>),
}

impl CompletionRing {
    /// The first 2^`log` CQEs of `region`, 64-byte aligned, all bytes set to 0xff: no CQE is valid.
    pub fn new(region: &Region, log: u8) -> Result<Self, MemError> {
        Self::filled(region, log, (64, 0xff))
    }

    /// The first 2^`log` CQEs of 32 bytes of `region`, 32-byte aligned, all bytes set to 0.
    pub fn of_32(region: &Region, log: u8) -> Result<Self, MemError> {
        Self::filled(region, log, (32, 0))
    }

    fn filled(region: &Region, log: u8, (entry, fill): (u64, u8)) -> Result<Self, MemError> {
        let len = bytes_of(log, entry);
        let place = if region.kind() == Kind::Host {
            let words = Words::new(region, len, entry)?;
            words.keep.fill(0, len as usize, fill)?;
            Place::Host(words)
        } else {
            Place::Device(Box::new(StagedWrites::new(span(region, len, entry)?, fill)?))
        };
        Ok(Self { place, mask: (1 << log) - 1, entry })
    }

    /// Writes 64 bytes at `index`, which is masked, before the CQE that shows them is published. CQEs of
    /// the ring have 64 bytes.
    ///
    /// # Errors
    /// The copy engine of the memory failed, now or before; host memory never fails.
    pub fn write(&mut self, index: u64, bytes: &Block) -> Result<(), MemError> {
        let at = (index & self.mask) * self.entry;
        let words = match &mut self.place {
            Place::Host(words) => words,
            Place::Device(writes) => return writes.write(at, bytes),
        };
        for (i, word) in (0u64..).zip(bytes) {
            words.store(at + i * 8, *word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes the CQE at `index`, which is masked: the body first, then the last 8 bytes, which carry
    /// the owner bit, as one release store. Pairs with the poller's acquire of that word.
    ///
    /// # Errors
    /// As for [`Self::write`].
    ///
    /// # Panics
    /// If the CQE is not as long as those of the ring.
    #[inline]
    pub fn publish(&mut self, index: u64, cqe: &[u64]) -> Result<(), MemError> {
        assert_eq!(cqe.len() as u64 * 8, self.entry, "bytes of a CQE");
        let at = (index & self.mask) * self.entry;
        let words = match &mut self.place {
            Place::Host(words) => words,
            Place::Device(writes) => return writes.publish(at, cqe),
        };
        let [body @ .., owner] = cqe else { return Ok(()) };
        for (i, word) in (0u64..).zip(body) {
            words.store(at + i * 8, *word, Ordering::Relaxed);
        }
        words.store(at + self.entry - 8, *owner, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;

    #[test]
    fn the_owner_word_is_the_last_of_the_block() {
        let region = HostBuf::region(128).unwrap();
        let mut ring = CompletionRing::new(&region, 1).unwrap();
        let mut bytes = [0u8; 128];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff; 128]);
        ring.publish(3, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes[..64], [0xff; 64]);
        assert_eq!((bytes[64], bytes[120]), (1, 8));
    }

    #[test]
    fn entries_may_have_32_bytes() {
        let region = HostBuf::region(128).unwrap();
        region.fill(0, 128, 0xff).unwrap();
        let mut ring = CompletionRing::of_32(&region, 1).unwrap();
        ring.publish(5, &[1, 2, 3, 4]).unwrap();
        let mut bytes = [0xee; 128];
        region.read(0, &mut bytes).unwrap();
        assert_eq!((&bytes[..32], bytes[32], bytes[56]), (&[0; 32][..], 1, 4));
        assert_eq!(bytes[64..], [0xff; 64]);
    }
}
