//! Occupancy for the driver's copy kernel beside the kernels that run.
//!
//! A copy inside a device is done by a kernel of the driver, whatever call asks for it
//! (`docs/gpu.md`), and that kernel waits while the device is full. Kernels wait for copies, so such
//! a copy must only be started while the running launches surely leave it room, and no launch may
//! take the room away before it has landed, since it cannot be taken back.
//!
//! Each launch counts with its footprint: blocks per multiprocessor, by how many fit there. A block
//! takes at most that part of every resource of a multiprocessor (threads, registers, shared
//! memory, block slots). However the blocks are spread, some multiprocessor is used by no more than
//! the sum of all footprints. The needs of the copy kernel are not documented: 1024 threads and
//! half of the registers are the most to be reckoned with, so the sum may be 1/2, and less where
//! 1024 threads are more than half of a multiprocessor's.
//!
//! Launches that this crate does not make are not seen here.

use super::lock::lock;
use crate::GpuError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One multiprocessor, in the unit of footprints.
pub(crate) const WHOLE: u64 = 1 << 16;
/// Threads of the largest block.
const BLOCK: u64 = 1024;
/// Copies inside a device take microseconds; this long means that the device hangs.
const DEADLINE: Duration = Duration::from_secs(10);

/// Part of each multiprocessor, in parts of [`WHOLE`], that `blocks` blocks take at most on a device
/// of `multiprocessors` that hold `fitting` of them each.
pub(crate) fn footprint(blocks: u32, multiprocessors: u32, fitting: u32) -> u64 {
    let each = u64::from(blocks.div_ceil(multiprocessors.max(1)));
    (each * WHOLE).div_ceil(fitting.max(1).into())
}

/// The largest sum of footprints beside which a block of the copy kernel fits.
pub(crate) fn limit(threads_per_multiprocessor: u32) -> u64 {
    let threads = u64::from(threads_per_multiprocessor).max(1);
    (WHOLE / 2).min(WHOLE.saturating_sub((BLOCK * WHOLE).div_ceil(threads)))
}

/// Copies that are numbered and land in order.
pub(crate) trait Landing: Send + Sync {
    /// Whether copy `number` has landed. Never blocks; fails if it never will.
    fn landed(&self, number: u64) -> Result<bool, GpuError>;
}

/// The account of one device.
pub(crate) struct Occupancy {
    device: String,
    limit: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    // The newest direct copy of each engine that has one.
    direct: Vec<(Arc<dyn Landing>, u64)>,
}

/// A launch's part of the room; given back on drop.
pub(crate) struct Claim {
    room: &'static Occupancy,
    footprint: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.room.state).used -= self.footprint;
    }
}

impl Occupancy {
    pub(crate) fn new(device: String, limit: u64) -> Self {
        Self { device, limit, state: Mutex::default() }
    }

    /// Whether a copy that is about to get `number` in `line` may be done by the driver's kernel.
    /// If so, launches that would leave it no room wait until `line` says that it has landed.
    pub(crate) fn admit(&self, line: &Arc<dyn Landing>, number: u64) -> bool {
        let mut state = lock(&self.state);
        if state.used > self.limit {
            return false;
        }
        if let Some(known) = state.direct.iter_mut().find(|(known, _)| Arc::ptr_eq(known, line)) {
            known.1 = number;
            return true;
        }
        let landed = |(line, number): &mut (Arc<dyn Landing>, u64)| {
            matches!(line.landed(*number), Ok(true) | Err(_))
        };
        let over: Vec<_> = state.direct.extract_if(.., landed).collect();
        state.direct.push((line.clone(), number));
        drop(state);
        // Not under the lock: the last holder of a line gives memory back, which may end launches.
        drop(over);
        true
    }

    /// Counts a launch that is about to start. If it leaves no room for copies, returns when those
    /// that were admitted have landed, within `deadline`.
    pub(crate) fn claim(
        &'static self,
        footprint: u64,
        deadline: Duration,
    ) -> Result<Claim, GpuError> {
        let mut state = lock(&self.state);
        state.used += footprint;
        let full = state.used > self.limit;
        // Cloned, not taken: another launch must wait for them as well.
        let waiting_for = if full { state.direct.clone() } else { Vec::new() };
        drop(state);
        let claim = Claim { room: self, footprint };
        let (asked, after) = (Instant::now(), deadline.min(DEADLINE));
        for (line, number) in &waiting_for {
            while !line.landed(*number)? {
                if asked.elapsed() > after {
                    let (device, what) = (self.device.clone(), "a copy inside the device");
                    return Err(GpuError::Stuck { device, what, after });
                }
                warpverbs_mem::pause();
            }
        }
        let over = |(line, number): &mut (Arc<dyn Landing>, u64)| {
            waiting_for.iter().any(|(known, upto)| Arc::ptr_eq(known, line) && *number <= *upto)
        };
        lock(&self.state).direct.extract_if(.., over).for_each(drop);
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Copies that land when the test says so; `u64::MAX` for a lost device.
    #[derive(Default)]
    struct CountedStream(AtomicU64);

    impl Landing for CountedStream {
        fn landed(&self, number: u64) -> Result<bool, GpuError> {
            match self.0.load(Ordering::Acquire) {
                u64::MAX => Err(GpuError::Stuck {
                    device: "cuda:0".to_owned(),
                    what: "everything",
                    after: Duration::ZERO,
                }),
                count => Ok(count >= number),
            }
        }
    }

    fn room() -> &'static Occupancy {
        Box::leak(Box::new(Occupancy::new("cuda:0".to_owned(), WHOLE / 2)))
    }

    fn line() -> (Arc<CountedStream>, Arc<dyn Landing>) {
        let line = Arc::new(CountedStream::default());
        (line.clone(), line)
    }

    #[test]
    fn footprints_count_the_fullest_multiprocessor() {
        assert_eq!(footprint(132, 132, 2), WHOLE / 2);
        assert_eq!(footprint(133, 132, 2), WHOLE);
        assert_eq!(footprint(1, 132, 32), WHOLE / 32);
        assert_eq!(footprint(1, 132, 3), WHOLE.div_ceil(3));
        // A function that the driver says fits nowhere, or a grid of many rounds, is never room.
        assert_eq!(footprint(1, 0, 0), WHOLE);
        assert!(footprint(u32::MAX, 1, 1) > u64::from(u32::MAX));
    }

    #[test]
    fn a_block_of_the_largest_size_fits_beside_the_limit() {
        assert_eq!(limit(2048), WHOLE / 2);
        assert_eq!(limit(1536), WHOLE - (2 * WHOLE).div_ceil(3));
        assert_eq!(limit(1024), 0);
        assert_eq!(limit(0), 0);
    }

    #[test]
    fn copies_are_admitted_up_to_the_limit_and_again_after_launches_end() {
        let (room, (_, line)) = (room(), line());
        let half = room.claim(WHOLE / 2, DEADLINE).unwrap();
        assert!(room.admit(&line, 0));
        let more = room.claim(1, DEADLINE).unwrap();
        assert!(!room.admit(&line, 1));
        drop(half);
        assert!(room.admit(&line, 1));
        drop(more);
        assert_eq!(lock(&room.state).used, 0);
    }

    #[test]
    fn a_launch_that_takes_the_room_waits_for_every_admitted_copy() {
        let (room, (first, first_line), (second, second_line)) = (room(), line(), line());
        assert!(room.admit(&first_line, 1) && room.admit(&first_line, 2));
        assert!(room.admit(&second_line, 1));
        // One that leaves room does not wait.
        let small = room.claim(WHOLE / 2, DEADLINE).unwrap();
        let launches =
            [(); 2].map(|()| std::thread::spawn(|| room.claim(WHOLE, DEADLINE).map(|_| ())));
        while lock(&room.state).used <= WHOLE / 2 {
            std::thread::yield_now();
        }
        assert!(!room.admit(&first_line, 3));
        first.0.store(2, Ordering::Release);
        // One that overtakes a copy is likely to have ended then; none that is right ends at any time.
        std::thread::sleep(Duration::from_millis(20));
        assert!(launches.iter().all(|launch| !launch.is_finished()), "a copy was overtaken");
        second.0.store(1, Ordering::Release);
        launches.into_iter().for_each(|launch| launch.join().unwrap().unwrap());
        assert!(lock(&room.state).direct.is_empty());
        drop(small);
    }

    #[test]
    fn a_launch_is_refused_and_not_counted_if_its_copies_are_lost() {
        let (room, (state, line)) = (room(), line());
        assert!(room.admit(&line, 1));
        state.0.store(u64::MAX, Ordering::Release);
        assert!(matches!(room.claim(WHOLE, DEADLINE), Err(GpuError::Stuck { .. })));
        assert_eq!(lock(&room.state).used, 0);
    }

    #[test]
    fn lines_that_are_done_are_let_go() {
        let (room, (done, done_line), (_, next)) = (room(), line(), line());
        assert!(room.admit(&done_line, 1));
        done.0.store(1, Ordering::Release);
        assert!(room.admit(&next, 1));
        drop(done_line);
        assert_eq!(Arc::strong_count(&done), 1);
    }
}
