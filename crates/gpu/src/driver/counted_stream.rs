//! A stream whose work is numbered; the host learns by one load how far it has come.
//!
//! After each piece of work the stream writes its number to a word in pinned memory, after a fence
//! (`cuStreamWriteValue64` with its default flag). Asking whether work has landed is then one
//! acquire load, which pairs with that fence; no call of the driver, no lock.

use super::calls::{Driver, Priority};
use super::occupancy::Landing;
use super::pinned::SharedMem;
use super::stream::Stream;
use crate::GpuError;
use std::sync::atomic::{AtomicU64, Ordering};
use warpverbs_mem::Region;

/// Polls that find nothing between two questions to the driver whether the stream still lives.
const POLLS_PER_QUERY: u64 = 4096;

/// The stream and its word.
pub(crate) struct CountedStream {
    stream: Stream,
    done: Region,
    done_addr: u64,
    polls: AtomicU64,
}

impl CountedStream {
    pub(crate) fn new(driver: &'static dyn Driver) -> Result<Self, GpuError> {
        if !driver.can_write_words()? {
            let what = "64-bit stream memory operations, which copies are counted with";
            return Err(driver.unsupported(what));
        }
        let (done, done_addr) = SharedMem::region(driver, 8)?;
        let stream = Stream::new(driver, Priority::Highest)?;
        Ok(Self { stream, done, done_addr, polls: AtomicU64::new(0) })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Numbers what was enqueued since the last call. The context is current, and numbers are
    /// given in rising order.
    pub(crate) fn number(&self, number: u64) -> Result<(), GpuError> {
        let driver = self.stream.driver();
        // SAFETY: the word is pinned memory that lives as long as the stream, mapped at this
        // address and 8-byte aligned; the stream is live.
        unsafe { driver.write_word(self.stream.raw(), self.done_addr, number) }
    }

    fn counted(&self) -> Result<u64, GpuError> {
        // Acquire: pairs with the fence that the stream makes before it writes the word.
        Ok(self.done.atomic_u64(0)?.load(Ordering::Acquire))
    }
}

impl Landing for CountedStream {
    fn landed(&self, number: u64) -> Result<bool, GpuError> {
        if self.counted()? >= number {
            return Ok(true);
        }
        // A stream that has failed never writes its word, and only the driver tells.
        if self.polls.fetch_add(1, Ordering::Relaxed) % POLLS_PER_QUERY == POLLS_PER_QUERY - 1
            && self.stream.is_idle()?
        {
            return Ok(self.counted()? >= number);
        }
        Ok(false)
    }
}
