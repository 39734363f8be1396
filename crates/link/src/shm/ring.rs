//! A ring of trains of datagrams in memory that two processes share: one writes, one reads.
//!
//! ```text
//! 0      how many bytes were ever written     by the producer
//! 64     how many bytes were ever read        by the consumer
//! 72     how often nothing was left to read   by the consumer
//! 4096   the ring: records of a header of 16 bytes, a train, and zero to 15 bytes to a multiple of
//! 16
//! ```
//!
//! The other side is another process, so every value from the memory is checked. A side that finds
//! what the other may not write ([`Broken`]) uses the ring no more.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;
use warpverbs_mem::{Cells, MemError, Region, map_sealed, sealed_memfd};
use warpverbs_wire::Envelope;

/// Bytes of the ring: few enough to stay in a core's cache.
pub(super) const RING: u64 = 1 << 20;
/// Where it begins.
const DATA: u64 = 4096;
/// Bytes of the memfd.
pub(super) const MEMORY: u64 = DATA + RING;
/// Of a record.
const HEADER: usize = 16;
/// Where positions are, in words of 8 bytes.
const WRITTEN: usize = 0;
const READ: usize = 8;
const LOOKS: usize = 9;
/// In the third word of a header: the datagrams carry an ICRC.
const SEALED: u32 = 1;

/// Contents of a ring that the other side may not write.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Broken {
    #[error("{written} bytes written and {read} read of a ring of {RING:#x}")]
    Positions { written: u64, read: u64 },
    #[error("the producer's position went back from {from} to {to}, or is not a multiple of 16")]
    Backward { from: u64, to: u64 },
    #[error(
        "a record of {len} bytes in datagrams of {segment}, {rest} bytes before the ring's end"
    )]
    Record { len: u32, segment: u32, rest: u64 },
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Bytes of all datagrams.
    pub(super) len: usize,
    /// Bytes of each but the last.
    pub(super) segment: usize,
    /// They carry an ICRC.
    pub(super) sealed: bool,
}

impl Record {
    fn bytes(self) -> [u8; HEADER] {
        let words = [self.len as u32, self.segment as u32, u32::from(self.sealed) * SEALED, 0];
        let mut bytes = [0; HEADER];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Of a record that has at most `rest` bytes.
    fn checked(bytes: [u8; HEADER], rest: u64) -> Result<Self, Broken> {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (len, segment, flags) = (word(0), word(4), word(8));
        let fits = len as usize <= Envelope::MAX_DATAGRAM && size(len as usize) <= rest;
        if !fits || len == 0 || segment == 0 {
            return Err(Broken::Record { len, segment, rest });
        }
        let sealed = flags & SEALED != 0;
        Ok(Self { len: len as usize, segment: segment as usize, sealed })
    }
}

/// Bytes of a record with a train of `len` bytes.
fn size(len: usize) -> u64 {
    (HEADER + len).next_multiple_of(HEADER) as u64
}

#[derive(Debug)]
struct Memory {
    positions: Cells<AtomicU64>,
    data: Region,
}

impl Memory {
    fn of(fd: &OwnedFd) -> io::Result<Self> {
        let region = map_sealed(fd, MEMORY)?;
        let parts = || Ok((region.cells(0, LOOKS + 1)?, region.slice(DATA, RING as usize)?));
        let (positions, data) = parts().map_err(|error: MemError| io::Error::other(error))?;
        Ok(Self { positions, data })
    }
}

/// The side that writes.
#[derive(Debug)]
pub(super) struct Producer {
    memory: Memory,
    written: u64,
    /// As last seen: only what does not fit makes it look again.
    read: u64,
}

impl Producer {
    /// A new ring, and the memfd to give to the consumer.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let fd = sealed_memfd(MEMORY)?;
        Ok((Self { memory: Memory::of(&fd)?, written: 0, read: 0 }, fd))
    }

    /// Writes a record; false if there is no room for it.
    pub(super) fn push(&mut self, record: Record, train: &[u8]) -> Result<bool, Broken> {
        let size = size(train.len());
        if self.written - self.read + size > RING {
            let read = self.memory.positions[READ].load(Ordering::Acquire);
            let written = self.written;
            if read < self.read || read > written {
                return Err(Broken::Positions { written, read });
            }
            self.read = read;
            if written - read + size > RING {
                return Ok(false);
            }
        }
        self.memory.data.write_ring(self.written, &record.bytes())?;
        self.memory.data.write_ring(self.written + HEADER as u64, train)?;
        self.written += size;
        // Pairs with the consumer's acquire: a consumer that sees the position sees the record.
        self.memory.positions[WRITTEN].store(self.written, Ordering::Release);
        Ok(true)
    }

    /// How often the consumer has found the ring empty. A hostile consumer may write any number.
    pub(super) fn looks(&self) -> u64 {
        self.memory.positions[LOOKS].load(Ordering::Acquire)
    }
}

/// The side that reads.
#[derive(Debug)]
pub(super) struct Consumer {
    memory: Memory,
    read: u64,
    /// As last seen.
    written: u64,
    looks: u64,
}

impl Consumer {
    /// Of a memfd that another process gave.
    pub(super) fn new(fd: &OwnedFd) -> io::Result<Self> {
        Ok(Self { memory: Memory::of(fd)?, read: 0, written: 0, looks: 0 })
    }

    /// Copies the next train to the beginning of `out`, which has room for the longest.
    #[inline]
    pub(super) fn pop(&mut self, out: &mut [u8]) -> Result<Option<Record>, Broken> {
        if self.read == self.written && !self.look()? {
            return Ok(None);
        }
        let mut header = [0; HEADER];
        self.memory.data.read_ring(self.read, &mut header)?;
        let record = Record::checked(header, self.written - self.read)?;
        self.memory.data.read_ring(self.read + HEADER as u64, &mut out[..record.len])?;
        self.read += size(record.len);
        // Pairs with the producer's acquire: what was read may be overwritten.
        self.memory.positions[READ].store(self.read, Ordering::Release);
        Ok(Some(record))
    }

    /// Tells the producer that nothing was left. A consumer that does not come to look has no
    /// processor.
    #[inline]
    pub(super) fn count_look(&mut self) {
        self.looks += 1;
        // Pairs with the producer's acquire: what was written before it saw the last look is read.
        self.memory.positions[LOOKS].store(self.looks, Ordering::Release);
    }

    /// Whether there is more than was seen.
    #[inline]
    fn look(&mut self) -> Result<bool, Broken> {
        let (from, to) = (self.written, self.memory.positions[WRITTEN].load(Ordering::Acquire));
        if to == from {
            return Ok(false);
        }
        if to < from || !to.is_multiple_of(HEADER as u64) {
            return Err(Broken::Backward { from, to });
        }
        if to - self.read > RING {
            return Err(Broken::Positions { written: to, read: self.read });
        }
        self.written = to;
        Ok(true)
    }

    /// Whether nothing is left to read.
    pub(super) fn is_empty(&mut self) -> bool {
        self.read == self.written && !matches!(self.look(), Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, RngExt, SeedableRng};
    use std::collections::VecDeque;

    fn ring() -> (Producer, Consumer) {
        let (producer, fd) = Producer::new().unwrap();
        (producer, Consumer::new(&fd).unwrap())
    }

    fn room() -> Vec<u8> {
        vec![0; Envelope::MAX_DATAGRAM]
    }

    #[test]
    fn trains_come_out_as_they_went_in() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let ((mut producer, mut consumer), mut out) = (ring(), room());
        let mut model = VecDeque::<(Record, Vec<u8>)>::new();
        let mut refused = 0;
        for _ in 0..3000 {
            if rng.random_range(0..5) < 3 {
                let len = match rng.random() {
                    true => rng.random_range(1..100),
                    false => rng.random_range(1..=Envelope::MAX_DATAGRAM),
                };
                let record =
                    Record { len, segment: rng.random_range(1..5000), sealed: rng.random() };
                let mut train = vec![0; len];
                rng.fill_bytes(&mut train);
                let held: u64 = model.iter().map(|(record, _)| size(record.len)).sum();
                let taken = producer.push(record, &train).unwrap();
                assert_eq!(taken, held + size(len) <= RING);
                refused += u32::from(!taken);
                if taken {
                    model.push_back((record, train));
                }
            } else {
                let popped = consumer.pop(&mut out).unwrap();
                let expected = model.pop_front();
                assert_eq!(popped, expected.as_ref().map(|(record, _)| *record));
                if let Some((record, train)) = expected {
                    assert!(out[..record.len] == train);
                }
            }
        }
        assert!(refused > 0, "the ring was never full");
    }

    #[test]
    fn a_producer_that_writes_nonsense_is_found_out() {
        let mut out = room();
        let mut found = |words: [u32; 3], written: u64| {
            let (producer, mut consumer) = ring();
            for (at, word) in (0..).step_by(4).zip(words) {
                producer.memory.data.write(at, &word.to_ne_bytes()).unwrap();
            }
            producer.memory.positions[WRITTEN].store(written, Ordering::Release);
            consumer.pop(&mut out)
        };
        let good = Record { len: 8, segment: 8, sealed: true };
        assert_eq!(found([8, 8, 1], 32), Ok(Some(good)));
        for (len, segment, written) in [
            (0, 8, 32),
            (8, 0, 32),
            (17, 8, 32),
            (u32::MAX, 8, RING),
            (u32::MAX - 7, 8, RING),
            (Envelope::MAX_DATAGRAM as u32 + 1, 8, RING),
        ] {
            let expected = Broken::Record { len, segment, rest: written };
            assert_eq!(found([len, segment, 0], written), Err(expected));
        }
        for written in [1, 17] {
            assert!(matches!(found([8, 8, 0], written), Err(Broken::Backward { .. })));
        }
        for written in [RING + 16, !15] {
            assert!(matches!(found([8, 8, 0], written), Err(Broken::Positions { .. })));
        }
    }

    #[test]
    fn a_position_that_goes_back_is_found_out() {
        let ((mut producer, mut consumer), mut out) = (ring(), room());
        let record = Record { len: 100, segment: 100, sealed: false };
        producer.push(record, &[7; 100]).unwrap();
        consumer.pop(&mut out).unwrap();
        consumer.memory.positions[WRITTEN].store(0, Ordering::Release);
        assert!(matches!(consumer.pop(&mut out), Err(Broken::Backward { .. })));
        // A consumer that claims to have read what was never written.
        let (mut producer, consumer) = ring();
        consumer.memory.positions[READ].store(1 << 40, Ordering::Release);
        let (record, train) = (Record { len: 60_000, segment: 60_000, ..record }, vec![1; 60_000]);
        let pushed: Result<Vec<_>, _> = (0..20).map(|_| producer.push(record, &train)).collect();
        assert!(matches!(pushed, Err(Broken::Positions { .. })), "{pushed:?}");
    }
}
