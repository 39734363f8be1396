//! Queues in memory that only a copy engine reaches, a GPU's: host memory that stands for it.

use crate::copier::{Pending, Progress, copy};
use crate::{Block, Kind, MemError, Region};
use std::collections::VecDeque;
use std::sync::OnceLock;
use zerocopy::IntoBytes;

/// Memory that is read: a copy of it in host memory, brought up to date on demand.
#[derive(Debug)]
pub(crate) struct StagedReads {
    device: Region,
    host: Region,
    /// The first failure. No copy is started after it: each might last as long as the first.
    failed: OnceLock<MemError>,
}

impl StagedReads {
    /// All of `device`. The copy is zero until bytes are fetched.
    pub(crate) fn new(device: &Region) -> Result<Self, MemError> {
        let host = device.engine()?.host_memory(device.len())?;
        Ok(Self { device: device.clone(), host, failed: OnceLock::new() })
    }

    /// The copy.
    pub(crate) fn host(&self) -> &Region {
        &self.host
    }

    /// Where the memory itself lies.
    pub(crate) fn kind(&self) -> Kind {
        self.device.kind()
    }

    /// Copies `len` bytes at `offset` to the same place of the copy, and waits until they are there.
    ///
    /// # Errors
    /// A copy failed, now or before.
    #[cold]
    pub(crate) fn fetch(&self, offset: u64, len: usize) -> Result<(), MemError> {
        self.wait(self.start(offset, len)?)
    }

    /// Starts to copy `len` bytes at `offset`, likewise.
    pub(crate) fn start(&self, offset: u64, len: usize) -> Result<Progress, MemError> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.keep(copy(&self.host, offset, &self.device, offset, len))
    }

    /// Waits until the bytes are there.
    pub(crate) fn wait(&self, progress: Progress) -> Result<(), MemError> {
        self.keep(progress.wait())
    }

    fn keep<T>(&self, done: Result<T, MemError>) -> Result<T, MemError> {
        done.inspect_err(|error| drop(self.failed.set(error.clone())))
    }
}

/// Memory that is written in blocks: they leave from host memory, and nobody waits for them.
#[derive(Debug)]
pub(crate) struct StagedWrites {
    device: Region,
    /// [`SLOTS`] blocks, used in turn.
    host: Region,
    next: usize,
    moving: VecDeque<Pending>,
    /// As of [`StagedReads`].
    failed: Option<MemError>,
}

/// Blocks on their way at a time.
const SLOTS: usize = 64;
const BLOCK: usize = size_of::<Block>();

impl StagedWrites {
    /// All of `device`, whose bytes are set to `fill`.
    pub(crate) fn new(device: Region, fill: u8) -> Result<Self, MemError> {
        let len = SLOTS * BLOCK;
        let host = device.engine()?.host_memory(len)?;
        host.fill(0, len, fill)?;
        for at in (0..device.len()).step_by(len) {
            let part = len.min(device.len() - at);
            copy(&device, at as u64, &host, 0, part)?.wait()?;
        }
        Ok(Self { device, host, next: 0, moving: VecDeque::new(), failed: None })
    }

    /// Writes a block at `at`.
    ///
    /// # Errors
    /// A copy failed, now or before.
    #[cold]
    pub(crate) fn write(&mut self, at: u64, block: &Block) -> Result<(), MemError> {
        self.put(at, block, &[BLOCK])
    }

    /// Writes a block, or half of one, at `at` whose last word shows that all of it is there.
    ///
    /// # Errors
    /// A copy failed, now or before.
    #[cold]
    pub(crate) fn publish(&mut self, at: u64, block: &[u64]) -> Result<(), MemError> {
        // Nothing says in which order the bytes of one copy land. Two copies of one engine land in
        // the order in which they were started.
        self.put(at, block, &[size_of_val(block) - 8, 8])
    }

    /// Writes a block in parts of these lengths, one after the other.
    fn put(&mut self, at: u64, block: &[u64], parts: &[usize]) -> Result<(), MemError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let put = self.start(at, block, parts);
        put.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn start(&mut self, at: u64, block: &[u64], parts: &[usize]) -> Result<(), MemError> {
        // Each block has one copy or more, and they end in order: with fewer copies than places, the
        // block that was in the next place has left.
        while let Some(oldest) = self.moving.front() {
            if self.moving.len() >= SLOTS {
                oldest.wait()?;
            } else if !oldest.is_done()? {
                break;
            }
            self.moving.pop_front();
        }
        let place = (self.next * BLOCK) as u64;
        self.next = (self.next + 1) % SLOTS;
        self.host.write(place, block.as_bytes())?;
        let mut done = 0;
        for &len in parts {
            match copy(&self.device, at + done, &self.host, place + done, len)? {
                Progress::Done => {}
                Progress::Pending(copy) => self.moving.push_back(copy),
            }
            done += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LazyCopier, LazyMemory};
    use crate::{CompletionRing, QueueRecord, SendRing};
    use std::sync::Arc;

    fn words(view: &Region) -> Vec<u64> {
        let mut bytes = vec![0; view.len()];
        view.read(0, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    }

    #[test]
    fn what_was_not_fetched_is_as_it_was() {
        let copier = Arc::new(LazyCopier::default());
        copier.pace(3);
        let (device, view) = LazyMemory::regions(8 * 64, 0, &copier).unwrap();
        let mut ring = SendRing::new(&device, 3).unwrap();
        let fill = |value: u64| {
            (0..8 * 64).step_by(8).for_each(|at| view.write(at, &value.to_ne_bytes()).unwrap());
        };
        fill(1);
        assert_eq!(ring.load(5), [0; 8]);
        // Indexes are not masked yet, and the ring ends in between.
        ring.fetch(14, 17).unwrap();
        let found: Vec<u64> = (0..8).map(|index| ring.load(index)[7]).collect();
        assert_eq!((found, copier.started()), (vec![1, 0, 0, 0, 0, 0, 1, 1], 2));
        // No more than there is, whatever was announced.
        fill(2);
        ring.fetch(3, 1 << 40).unwrap();
        assert!((0..8).all(|index| ring.load(index) == [2; 8]));
        ring.fetch(9, 9).unwrap();
        ring.fetch(9, 4).unwrap();
        assert_eq!(copier.started(), 4);
    }

    #[test]
    fn what_was_begun_counts_for_the_next_fetch_at_its_place() {
        let copier = Arc::new(LazyCopier::default());
        copier.allow(u64::MAX);
        let (device, view) = LazyMemory::regions(8 * 64, 0, &copier).unwrap();
        let mut ring = SendRing::new(&device, 3).unwrap();
        let fill = |value: u64| {
            (0..8 * 64).step_by(8).for_each(|at| view.write(at, &value.to_ne_bytes()).unwrap());
        };
        let found = |ring: &SendRing| (0..8).map(|index| ring.load(index)[0]).collect::<Vec<_>>();
        fill(1);
        ring.begin(6, 10);
        fill(2);
        // More was announced than begun: the rest is brought now.
        ring.fetch(6, 11).unwrap();
        assert_eq!((found(&ring), copier.started()), (vec![1, 1, 2, 0, 0, 0, 1, 1], 3));
        // Less, at another place, and forgotten.
        ring.begin(11, 14);
        ring.fetch(11, 12).unwrap();
        assert_eq!(copier.started(), 4);
        ring.begin(12, 14);
        fill(3);
        ring.fetch(13, 14).unwrap();
        assert_eq!(found(&ring)[5], 3);
        ring.forget();
        ring.fetch(12, 14).unwrap();
        assert_eq!(found(&ring)[4..6], [3, 3]);
    }

    #[test]
    fn cqes_land_in_order_and_each_owner_after_its_body() {
        let copier = Arc::new(LazyCopier::default());
        let (device, view) = LazyMemory::regions(2 * BLOCK, 0, &copier).unwrap();
        copier.allow(1);
        let mut ring = CompletionRing::new(&device, 1).unwrap();
        assert_eq!(words(&view), [u64::MAX; 16]);
        let cqe = |round: u64| std::array::from_fn(|word| round << 8 | word as u64);
        // Many rounds of both places, of which the last 20 CQEs are on their way.
        for round in 0..500 {
            if round >= 20 {
                copier.allow(2);
            }
            ring.publish(round, &cqe(round)).unwrap();
        }
        assert_eq!(copier.waiting(), 40);
        for round in 480..500 {
            let at = if round % 2 == 0 { 0 } else { 8 };
            let before = words(&view)[at + 7];
            assert_eq!(before, (round - 2) << 8 | 7);
            copier.allow(1);
            let found = words(&view);
            assert_eq!((&found[at..at + 7], found[at + 7]), (&cqe(round)[..7], before));
            copier.allow(1);
            assert_eq!(words(&view)[at..at + 8], cqe(round));
        }
        // One that nobody lets land is waited for when there is no place left.
        let sent = (0..100).take_while(|round| ring.write(*round, &cqe(*round)).is_ok());
        assert_eq!(sent.count(), SLOTS);
    }

    #[test]
    fn an_engine_that_fails_or_hangs_is_asked_once() {
        for breaks in [false, true] {
            let copier = Arc::new(LazyCopier::default());
            let (device, _) = LazyMemory::regions(64, 0, &copier).unwrap();
            let record = QueueRecord::new(&device).unwrap();
            copier.allow(1);
            let mut ring = CompletionRing::new(&device, 0).unwrap();
            if breaks {
                copier.break_down();
            }
            let before = copier.started();
            for _ in 0..100 {
                assert!(matches!(record.fetch(), Err(MemError::CopyFailed { .. })));
            }
            assert_eq!(copier.started() - before, u64::from(!breaks));
            assert_eq!(ring.publish(0, &[1; 8]).is_err(), breaks);
            assert!(record.fetch().is_err());
        }
        // Without one, such memory is not taken.
        struct Unreached;
        // SAFETY: nothing can access it.
        unsafe impl crate::Backing for Unreached {
            fn addr(&self) -> u64 {
                0x1000
            }
            fn len(&self) -> usize {
                64
            }
            fn kind(&self) -> Kind {
                Kind::Hip(0)
            }
        }
        let none = MemError::NoCopier { from: Kind::Hip(0), to: Kind::Host };
        let region = Region::new(Unreached);
        assert_eq!(SendRing::new(&region, 0).unwrap_err(), none);
        assert_eq!(CompletionRing::new(&region, 0).unwrap_err(), none);
    }
}
