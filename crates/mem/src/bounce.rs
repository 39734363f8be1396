//! Bounce buffers: host memory that a copy engine knows, through which bytes pass between memory that
//! only the engine reaches and code that does not use the engine.
//!
//! A pool makes the buffers, bounds their number and lends them; how bytes move through them is up to
//! its users. A buffer that is given back while a copy may still touch it, as one of an engine that
//! hangs, is lent again only when that copy has ended.

use crate::{Copier, Kind, MemError, Region};
use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bounce buffers of one length.
#[derive(Clone, Debug)]
pub struct BouncePool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    len: usize,
    most: usize,
    /// Taken when a buffer changes hands, and not while one is made or freed.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Buffers lent beyond the first of each share.
    further: usize,
    /// Buffers that were given back.
    free: Vec<(Driver, Region)>,
}

/// All devices of a driver know the host memory that it has given to one of them.
type Driver = Discriminant<Kind>;

/// A user's share of a pool. Its first buffer does not count, so that each user can go on.
#[derive(Debug)]
pub struct BounceShare(Arc<Share>);

#[derive(Debug)]
struct Share {
    pool: BouncePool,
    /// Changed under the pool's lock.
    held: AtomicUsize,
}

/// A buffer that goes back to its pool when it is dropped. Its bytes are those of its last use.
pub struct BounceBuffer {
    region: Region,
    driver: Driver,
    share: Arc<Share>,
}

impl BouncePool {
    /// A pool of buffers of `len` bytes, of which `most` are lent beyond the first of each share.
    pub fn new(len: usize, most: usize) -> Self {
        Self(Arc::new(Pool { len, most, state: Mutex::default() }))
    }

    /// Another user's share.
    pub fn share(&self) -> BounceShare {
        BounceShare(Arc::new(Share { pool: self.clone(), held: AtomicUsize::new(0) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A free buffer of one of these drivers that no copy touches.
    fn take(&mut self, is_wanted: impl Fn(Driver) -> bool) -> Option<Region> {
        let fits =
            |(driver, region): &mut (Driver, Region)| is_wanted(*driver) && region.is_unshared();
        let at = self.free.iter_mut().rposition(fits)?;
        Some(self.free.swap_remove(at).1)
    }
}

impl BounceShare {
    /// A buffer for memory of this kind and its engine. `None`: as many as may be are lent.
    ///
    /// # Errors
    /// Those of [`Copier::host_memory`].
    pub fn take(&self, copier: &dyn Copier, kind: Kind) -> Result<Option<BounceBuffer>, MemError> {
        let Share { pool, held } = &*self.0;
        let (driver, most) = (discriminant(&kind), pool.0.most);
        let mut state = pool.state();
        let counts = held.load(Relaxed) > 0;
        if counts && state.further >= most {
            return Ok(None);
        }
        let found = state.take(|free| free == driver);
        // A new one takes the place of one that only another driver knows.
        let replaced = if found.is_none() { state.take(|_| true) } else { None };
        // Those that are left are still being copied.
        let none = found.is_none() && replaced.is_none();
        if counts && none && state.further + state.free.len() >= most {
            return Ok(None);
        }
        self.0.count(&mut state);
        drop(state);
        drop(replaced);
        let region = match found {
            Some(region) => region,
            None => copier.host_memory(pool.0.len).inspect_err(|_| {
                self.0.discount(&mut pool.state());
            })?,
        };
        Ok(Some(BounceBuffer { region, driver, share: self.0.clone() }))
    }
}

impl Share {
    fn count(&self, state: &mut State) {
        let before = self.held.fetch_add(1, Relaxed);
        state.further += usize::from(before > 0);
    }

    fn discount(&self, state: &mut State) {
        let before = self.held.fetch_sub(1, Relaxed);
        state.further -= usize::from(before > 1);
    }
}

impl Deref for BounceBuffer {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

impl fmt::Debug for BounceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)
    }
}

impl Drop for BounceBuffer {
    fn drop(&mut self) {
        let mut state = self.share.pool.state();
        self.share.discount(&mut state);
        state.free.push((self.driver, self.region.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LazyCopier, LazyMemory};
    use crate::{Progress, copy};
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    const LEN: usize = 4096;
    const CUDA: Kind = Kind::Cuda(0);

    fn taken(share: &BounceShare, copier: &LazyCopier, kind: Kind) -> Option<BounceBuffer> {
        share.take(copier, kind).unwrap()
    }

    #[test]
    fn each_share_has_one_and_all_share_the_others() {
        let (pool, copier) = (BouncePool::new(LEN, 2), LazyCopier::default());
        let shares = [pool.share(), pool.share()];
        let take = |share: usize| taken(&shares[share], &copier, CUDA);
        let mut first: Vec<_> = (0..3).map(|_| take(0).unwrap()).collect();
        assert!(take(0).is_none());
        let second = take(1).unwrap();
        assert!(take(1).is_none());
        // Any buffer that goes back makes room for a further one of any share.
        let at = first.remove(0).addr();
        let again = take(1).unwrap();
        assert_eq!(again.addr(), at);
        assert!(take(0).is_none() && take(1).is_none());
        drop((first, second, again));
        let all: Vec<_> = [0, 0, 0, 1].map(take).into_iter().flatten().collect();
        assert_eq!((all.len(), copier.buffers()), (4, 4));
    }

    #[test]
    fn devices_of_a_driver_share_buffers_and_another_driver_replaces_them() {
        let pool = BouncePool::new(LEN, 8);
        let (share, [cuda, hip]) = (pool.share(), [(); 2].map(|()| LazyCopier::default()));
        for device in [0, 1, 0] {
            drop(taken(&share, &cuda, Kind::Cuda(device)));
        }
        assert_eq!(cuda.buffers(), 1);
        drop(taken(&share, &hip, Kind::Hip(0)));
        assert_eq!((hip.buffers(), pool.state().free.len()), (1, 1));
    }

    #[test]
    fn memory_that_a_copy_may_still_touch_is_lent_to_nobody() {
        let (pool, copier) = (BouncePool::new(LEN, 1), Arc::new(LazyCopier::default()));
        let (device, _) = LazyMemory::regions(LEN, 0, &copier).unwrap();
        let share = pool.share();
        let take = || taken(&share, &copier, CUDA);
        let (_kept, buffer) = (take().unwrap(), take().unwrap());
        let at = buffer.addr();
        let start = |buffer: BounceBuffer| match copy(&device, 0, &buffer, 0, LEN).unwrap() {
            Progress::Pending(copying) => copying,
            Progress::Done => panic!("an engine has to do it"),
        };
        let copying = start(buffer);
        assert!(take().is_none(), "it counts while it is being copied");
        copier.allow(1);
        drop(copying);
        let buffer = take().unwrap();
        assert_eq!(buffer.addr(), at);
        // The engine hangs.
        drop(start(buffer));
        assert!(take().is_none());
    }

    #[test]
    fn memory_that_cannot_be_had_does_not_count() {
        struct Without;
        // SAFETY: it touches nothing.
        unsafe impl Copier for Without {
            unsafe fn start(
                &self,
                _: u64,
                _: u64,
                _: usize,
            ) -> Result<crate::CopyTicket, MemError> {
                unimplemented!()
            }
            fn is_done(&self, _: crate::CopyTicket) -> Result<bool, MemError> {
                unimplemented!()
            }
            fn host_memory(&self, len: usize) -> Result<Region, MemError> {
                Err(MemError::Map { len, errno: nix::errno::Errno::ENOMEM })
            }
        }
        let (pool, copier) = (BouncePool::new(LEN, 1), LazyCopier::default());
        let share = pool.share();
        for _ in 0..3 {
            assert!(share.take(&Without, CUDA).is_err());
        }
        let both: Vec<_> = (0..2).map(|_| taken(&share, &copier, CUDA).unwrap()).collect();
        assert!(taken(&share, &copier, CUDA).is_none());
        drop(both);
    }

    /// No two that hold a buffer have the same one, the bound holds, and no user is without.
    #[test]
    fn lent_buffers_are_distinct_and_bounded() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for most in (0..5).cycle().take(200) {
            let (pool, copier) = (BouncePool::new(64, most), LazyCopier::default());
            let shares = [(); 3].map(|()| pool.share());
            let mut held: [Vec<BounceBuffer>; 3] = Default::default();
            let mut peak = 0;
            for _ in 0..100 {
                let [user, choice, device] = [(); 3].map(|()| rng.next_u32() as usize);
                let (user, kind) = (user % 3, if device % 4 == 0 { Kind::Hip(0) } else { CUDA });
                if choice.is_multiple_of(2) {
                    drop(held[user].pop());
                } else {
                    let further: usize = held.iter().map(|held| held.len().max(1) - 1).sum();
                    let has_room = held[user].is_empty() || further < most;
                    let buffer = taken(&shares[user], &copier, kind);
                    assert_eq!(buffer.is_some(), has_room);
                    held[user].extend(buffer);
                }
                let mut all: Vec<_> = held.iter().flatten().map(|buffer| buffer.addr()).collect();
                let count = all.len();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), count);
                peak = peak.max(count);
                assert!(count + pool.state().free.len() <= peak);
            }
        }
    }
}
