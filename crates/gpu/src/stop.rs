//! Withdrawing launches: records that kernels look at ([`StopRecord`]), and the host's side of them.
//!
//! A kernel on a GPU cannot be ended from outside, and one that is queued behind others begins some time. So
//! each of its blocks enters by a record in the device's memory before it touches anything. The host
//! writes `stopped` there, and then reads `running` until it is 0, by copies that go on beside any kernel.

use crate::{Buffer, GpuError, Keep};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpverbs_layout::StopRecord;
use warpverbs_mem::{HostBuf, MemError, Pending, Progress, Region, copy};

/// Bytes from one record to the next: blocks of different launches do not meet in a line.
const APART: usize = 128;
/// Records that are made at a time.
const TOGETHER: usize = 32;
/// The host's words of a record: the value that is written, and the one that was read.
const WORDS: usize = 16;
const RAISED: u64 = 0;
const SEEN: u64 = 8;

/// Withdrawn launches that the device may have without having run them; beyond that no new launch begins.
/// Each keeps a stream, a record and its list.
pub(crate) const MOST_WITHDRAWN: usize = 16;

type Alloc = Box<dyn Fn(usize) -> Result<Buffer, GpuError> + Send + Sync>;

/// The records of a device that no launch has.
pub struct Stops {
    /// Zeroed memory of the device, whose copies wait for no kernel.
    alloc: Alloc,
    idle: Mutex<Vec<(Buffer, Region)>>,
    /// Launches that were withdrawn, and may still begin.
    withdrawn: AtomicUsize,
    /// Lets go of what launches had that have ended meanwhile.
    release: fn(),
}

impl Stops {
    pub(crate) fn new(
        release: fn(),
        alloc: impl Fn(usize) -> Result<Buffer, GpuError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (alloc, idle) = (Box::new(alloc), Mutex::default());
        Arc::new(Self { alloc, idle, withdrawn: AtomicUsize::new(0), release })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Buffer, Region)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record for one launch.
    ///
    /// # Errors
    /// There was none, and the device refused memory for more; or 16 launches that were withdrawn have not
    /// begun yet ([`GpuError::Withdrawn`]).
    pub fn take(self: &Arc<Self>) -> Result<Stop, GpuError> {
        // A count alone: nothing is published with it.
        let waiting = || self.withdrawn.load(Ordering::Relaxed);
        if waiting() >= MOST_WITHDRAWN {
            (self.release)();
            let waiting = waiting();
            if waiting >= MOST_WITHDRAWN {
                return Err(GpuError::Withdrawn { waiting, most: MOST_WITHDRAWN });
            }
        }
        let idle = self.idle().pop();
        let (record, words) = match idle {
            Some(idle) => idle,
            None => self.make()?,
        };
        let held = Arc::new(Held { pool: self.clone(), withdrawn: AtomicBool::new(false) });
        Ok(Stop { held, record, words, step: Step::Running })
    }

    /// One record; others become idle.
    fn make(&self) -> Result<(Buffer, Region), GpuError> {
        let records = (self.alloc)(TOGETHER * APART)?;
        let words = match records.region().copier() {
            Some(copier) => copier.host_memory(TOGETHER * WORDS)?,
            None => HostBuf::region(TOGETHER * WORDS)?,
        };
        let one = |at: usize| -> Result<_, MemError> {
            let record = records.slice((at * APART) as u64, size_of::<StopRecord>())?;
            let words = words.slice((at * WORDS) as u64, WORDS)?;
            words.atomic_u64(RAISED)?.store(1, Ordering::Relaxed);
            Ok((record, words))
        };
        let more = (1..TOGETHER).map(one).collect::<Result<Vec<_>, _>>()?;
        self.idle().extend(more);
        Ok(one(0)?)
    }
}

/// A launch that may still begin: its arguments hold this until the device has run it.
struct Held {
    pool: Arc<Stops>,
    withdrawn: AtomicBool,
}

impl Held {
    fn withdraw(&self) {
        if !self.withdrawn.swap(true, Ordering::Relaxed) {
            self.pool.withdrawn.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if *self.withdrawn.get_mut() {
            self.pool.withdrawn.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The record of one launch, and how far its withdrawal has come.
pub struct Stop {
    held: Arc<Held>,
    record: Buffer,
    words: Region,
    step: Step,
}

enum Step {
    Running,
    /// `stopped` is on its way.
    Telling(Progress),
    /// `running` is on its way.
    Looking(Progress),
    /// No block is inside, and none will enter.
    Withdrawn,
}

impl Stop {
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.record
    }

    /// The launch's arguments hold this, so that it is known how long the launch may still begin.
    pub(crate) fn keep(&self) -> Keep {
        self.held.clone()
    }

    /// Begins or goes on; whether nothing of the launch touches memory any more. Never blocks.
    pub(crate) fn advance(&mut self) -> Result<bool, MemError> {
        loop {
            match &self.step {
                Step::Running => {
                    self.held.withdraw();
                    let at = offset_of!(StopRecord, stopped) as u64;
                    self.step =
                        Step::Telling(copy(self.record.region(), at, &self.words, RAISED, 8)?);
                }
                Step::Telling(told) => {
                    if !has_landed(told)? {
                        return Ok(false);
                    }
                    self.step = Step::Looking(self.look()?);
                }
                Step::Looking(looked) => {
                    if !has_landed(looked)? {
                        return Ok(false);
                    }
                    // Acquire: pairs with the release of the last block that left.
                    if self.words.atomic_u64(SEEN)?.load(Ordering::Acquire) != 0 {
                        self.step = Step::Looking(self.look()?);
                        return Ok(false);
                    }
                    fence(Ordering::SeqCst);
                    self.step = Step::Withdrawn;
                }
                Step::Withdrawn => return Ok(true),
            }
        }
    }

    fn look(&self) -> Result<Progress, MemError> {
        // The other half of the fence in `wv::enter`, where the CPU copies.
        fence(Ordering::SeqCst);
        let at = offset_of!(StopRecord, running) as u64;
        copy(&self.words, SEEN, self.record.region(), at, 8)
    }

    /// The launch has ended: another may have the record, unless this one was to be withdrawn.
    pub(crate) fn give_back(self) {
        let Self { held, record, words, step } = self;
        if matches!(step, Step::Running) {
            held.pool.idle().push((record, words));
        }
    }
}

fn has_landed(copy: &Progress) -> Result<bool, MemError> {
    match copy {
        Progress::Done => Ok(true),
        Progress::Pending(pending) => Pending::is_done(pending),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Arc<Stops> {
        Stops::new(|| (), |len| Ok(Buffer::of_region(HostBuf::region(len)?)))
    }

    fn running(stop: &Stop) -> &std::sync::atomic::AtomicU64 {
        stop.record.region().atomic_u64(offset_of!(StopRecord, running) as u64).unwrap()
    }

    #[test]
    fn a_record_is_used_again_unless_its_launch_was_to_be_withdrawn() {
        let pool = pool();
        let first = pool.take().unwrap();
        let addr = first.record().addr();
        first.give_back();
        let mut again = pool.take().unwrap();
        assert_eq!(again.record().addr(), addr);
        assert!(again.advance().unwrap());
        again.give_back();
        let rest: Vec<_> = (0..TOGETHER).map(|_| pool.take().unwrap()).collect();
        assert!(rest.iter().all(|stop| stop.record().addr() != addr));
    }

    #[test]
    fn few_launches_are_withdrawn_and_may_still_begin() {
        let pool = pool();
        let mut queued = Vec::new();
        for _ in 0..MOST_WITHDRAWN {
            let mut stop = pool.take().unwrap();
            queued.push(stop.record());
            while !stop.advance().unwrap() {}
        }
        // Those that nobody withdraws do not count.
        let refused = pool.take().map(drop);
        assert!(
            matches!(refused, Err(GpuError::Withdrawn { waiting: MOST_WITHDRAWN, .. })),
            "{refused:?}"
        );
        queued.pop();
        let others: Vec<_> = (0..2 * MOST_WITHDRAWN).map(|_| pool.take().unwrap()).collect();
        drop((others, queued));
        assert_eq!(pool.withdrawn.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_withdrawal_ends_when_no_block_is_inside() {
        let mut stop = pool().take().unwrap();
        running(&stop).store(2, Ordering::Relaxed);
        for left in [2, 2, 1] {
            running(&stop).store(left, Ordering::Relaxed);
            assert!(!stop.advance().unwrap());
        }
        running(&stop).store(0, Ordering::Relaxed);
        while !stop.advance().unwrap() {}
        let stopped = stop.record.region().atomic_u64(8).unwrap();
        assert_eq!(stopped.load(Ordering::Relaxed), 1);
    }
}
