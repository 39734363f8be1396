//! Landing memory: a ring on the host into which the kernel copies what is not in device memory.

use super::error::ReceiveError;
use std::collections::VecDeque;

/// A part of landing memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Bytes that were received together. Positions count all bytes that the ring ever handed out.
#[derive(Debug)]
struct Run {
    start: u64,
    len: u64,
    in_use: u64,
}

/// Which part of the ring is in use. Parts are given back in any order.
#[derive(Debug)]
pub(super) struct Landing {
    size: u64,
    head: u64,
    runs: VecDeque<Run>,
}

/// The end of the ring is left out if less than this would remain.
const SMALL: u64 = 4096;

impl Landing {
    /// Of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        Self { size, head: 0, runs: VecDeque::new() }
    }

    /// First position in use.
    fn tail(&self) -> u64 {
        self.runs.front().map_or(self.head, |run| run.start)
    }

    /// The next free bytes, at most `most`; of no length if there are none.
    pub(super) fn room(&mut self, most: u64) -> Span {
        if self.size == 0 {
            return Span::default();
        }
        let to_end = self.size - self.head % self.size;
        if to_end < most.min(SMALL) && self.in_use() + to_end < self.size {
            self.runs.push_back(Run { start: self.head, len: to_end, in_use: 0 });
            self.head += to_end;
            self.reclaim();
        }
        let offset = self.head % self.size;
        let len = most.min(self.size - offset).min(self.size - self.in_use());
        Span { offset, len }
    }

    /// Bytes in use, and those between them.
    fn in_use(&self) -> u64 {
        self.head - self.tail()
    }

    /// The first `len` bytes of what [`Landing::room`] returned are in use now.
    pub(super) fn commit(&mut self, len: u64) {
        if len > 0 {
            self.runs.push_back(Run { start: self.head, len, in_use: len });
            self.head += len;
        }
    }

    /// Gives bytes back.
    ///
    /// # Errors
    /// They are not in use, or not received together.
    pub(super) fn release(&mut self, offset: u64, len: u64) -> Result<(), ReceiveError> {
        let wrong = ReceiveError::NotLanded { offset, len };
        if offset >= self.size {
            return Err(wrong);
        }
        // The only position from the tail on, less than a round away, that is at this offset.
        let tail = self.tail();
        let start = tail + (offset + self.size - tail % self.size) % self.size;
        let index = self.runs.partition_point(|run| run.start + run.len <= start);
        let Some(run) = self.runs.get_mut(index) else { return Err(wrong) };
        if start < run.start || len > run.in_use || len > run.start + run.len - start {
            return Err(wrong);
        }
        run.in_use -= len;
        self.reclaim();
        Ok(())
    }

    fn reclaim(&mut self) {
        while self.runs.front().is_some_and(|run| run.in_use == 0) {
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_used_again_once_its_oldest_bytes_are_back() {
        let mut landing = Landing::new(100);
        assert_eq!(landing.room(60), Span { offset: 0, len: 60 });
        landing.commit(60);
        assert_eq!(landing.room(60), Span { offset: 60, len: 40 });
        landing.commit(40);
        assert_eq!(landing.room(1).len, 0);
        landing.release(60, 40).unwrap();
        assert_eq!(landing.room(1).len, 0, "older bytes are in use");
        landing.release(10, 50).unwrap();
        landing.release(0, 10).unwrap();
        assert_eq!(landing.room(1000), Span { offset: 0, len: 100 });
    }

    #[test]
    fn a_small_end_is_left_out() {
        let mut landing = Landing::new(100);
        landing.room(90);
        landing.commit(90);
        landing.release(0, 90).unwrap();
        assert_eq!(landing.room(50), Span { offset: 0, len: 50 });
    }

    #[test]
    fn bytes_that_are_not_in_use_are_not_taken_back() {
        let mut landing = Landing::new(100);
        assert!(landing.release(0, 1).is_err());
        landing.room(100);
        landing.commit(20);
        landing.commit(20);
        for (offset, len) in [(0, 21), (19, 2), (40, 1), (100, 1), (u64::MAX, 1), (0, u64::MAX)] {
            assert!(landing.release(offset, len).is_err(), "{offset} {len}");
        }
        landing.release(0, 15).unwrap();
        assert!(landing.release(0, 15).is_err());
    }
}
