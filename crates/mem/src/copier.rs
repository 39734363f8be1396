//! Moving bytes between regions, whatever they are made of.

use crate::{HostBuf, Kind, MemError, Region};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names one copy that a [`Copier`] has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyTicket(pub u64);

/// A copy engine for memory that the CPU cannot touch. Copies of one engine finish in the order
/// in which they were started.
///
/// # Safety
/// An implementation must touch exactly the ranges it is given.
pub unsafe trait Copier: Send + Sync {
    /// Starts a copy of `len` bytes and returns at once.
    ///
    /// # Safety
    /// Both ranges must stay valid until [`Copier::is_done`] says so for the returned ticket.
    unsafe fn start(&self, dst: u64, src: u64, len: usize) -> Result<CopyTicket, MemError>;

    /// Whether the copy, and every earlier one, has landed. Never blocks.
    fn is_done(&self, ticket: CopyTicket) -> Result<bool, MemError>;

    /// Zeroed host memory that this engine, and any other of its driver, copies from and to directly.
    /// Nobody else has a clone of it.
    fn host_memory(&self, len: usize) -> Result<Region, MemError> {
        HostBuf::region(len)
    }

    /// A copy that takes longer than this means that the engine hangs. Real ones take milliseconds.
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// How far a [`copy`] has come.
#[derive(Debug)]
pub enum Progress {
    /// All bytes are in place.
    Done,
    /// The engine is at work; both regions are kept alive by this value.
    Pending(Pending),
}

/// An engine that does not come to an end within its time.
const HANGS: MemError = MemError::CopyFailed { code: -1, what: "a copy that does not end" };

impl Progress {
    /// Waits until the bytes are in place, at most as long as a copy may take.
    pub(crate) fn wait(self) -> Result<(), MemError> {
        match self {
            Self::Done => Ok(()),
            Self::Pending(copy) => copy.wait(),
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({:?})", self.0.ticket)
    }
}

/// A copy in flight. Dropping it waits for the copy, but not for an engine that hangs: memory that
/// such an engine may still touch is leaked instead.
pub struct Pending(Started);

#[derive(Clone)]
struct Started {
    copier: Arc<dyn Copier>,
    ticket: CopyTicket,
    _keep: [Region; 2],
}

impl Started {
    /// The engine may still touch the ranges. One that failed does not.
    fn is_under_way(&self) -> bool {
        matches!(self.copier.is_done(self.ticket), Ok(false))
    }
}

/// Copies of engines that hang, with the memory they may still touch.
static HANGING: Mutex<Vec<Started>> = Mutex::new(Vec::new());

impl Pending {
    /// Whether the bytes are in place. Never blocks.
    pub fn is_done(&self) -> Result<bool, MemError> {
        self.0.copier.is_done(self.0.ticket)
    }

    /// As [`Copier::timeout`].
    pub fn timeout(&self) -> Duration {
        self.0.copier.timeout()
    }

    /// As [`Progress::wait`].
    pub(crate) fn wait(&self) -> Result<(), MemError> {
        let asked = Instant::now();
        while !self.is_done()? {
            if asked.elapsed() > self.timeout() {
                return Err(HANGS);
            }
            crate::pause();
        }
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.is_under_way() {
            self.0.settle();
        }
    }
}

impl Started {
    /// Waits for the copy, once for each engine that hangs.
    #[cold]
    fn settle(&self) {
        let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let over: Vec<_> = hanging.extract_if(.., |copy| !copy.is_under_way()).collect();
        let hangs = hanging.iter().any(|copy| Arc::ptr_eq(&copy.copier, &self.copier));
        drop(hanging);
        // Not under the lock: memory is freed.
        drop(over);
        let asked = Instant::now();
        while self.is_under_way() {
            if hangs || asked.elapsed() > self.copier.timeout() {
                HANGING.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
                return;
            }
            crate::pause();
        }
    }
}

/// Copies `len` bytes from host memory to host memory, as [`copy`] does.
#[inline]
pub fn copy_on_host(
    dst: &Region,
    dst_off: u64,
    src: &Region,
    src_off: u64,
    len: usize,
) -> Result<(), MemError> {
    let to = dst.range(dst_off, len)?;
    let from = src.range(src_off, len)?;
    for region in [dst, src] {
        if region.kind() != Kind::Host {
            return Err(MemError::NotHost { addr: region.addr() });
        }
    }
    // SAFETY: both ranges are inside their regions, which are host memory.
    let copied = unsafe { crate::region::host_copy(to, from, len) };
    copied.ok_or_else(|| unmapped(to, from, len))
}

/// A copy between host memory had a fault: at its destination, unless the source cannot be read.
#[cold]
fn unmapped(to: u64, from: u64, len: usize) -> MemError {
    let mut byte = 0u8;
    let mut places = (from..from + len as u64).step_by(MIN_PAGE).chain([from + len as u64 - 1]);
    // SAFETY: one byte of the source, which is host memory, and one of this function's.
    let fails = |at| unsafe { crate::guarded::copy((&raw mut byte) as u64, at, 1) }.is_none();
    let (written, addr) = if places.any(fails) { (false, from) } else { (true, to) };
    MemError::Unmapped { addr, len, written }
}

/// The smallest pages of any system.
const MIN_PAGE: usize = 4096;

/// Copies `len` bytes. Host to host is done on return (overlap allowed, a naturally aligned 4- or
/// 8-byte copy is single-copy atomic and has release order); anything else is handed to the copy
/// engine of the side that is not host memory.
pub fn copy(
    dst: &Region,
    dst_off: u64,
    src: &Region,
    src_off: u64,
    len: usize,
) -> Result<Progress, MemError> {
    let to = dst.range(dst_off, len)?;
    let from = src.range(src_off, len)?;
    if len == 0 {
        return Ok(Progress::Done);
    }
    if (dst.kind(), src.kind()) == (Kind::Host, Kind::Host) {
        // SAFETY: both ranges are inside their regions, which are host memory.
        let copied = unsafe { crate::region::host_copy(to, from, len) };
        return copied.map(|()| Progress::Done).ok_or_else(|| unmapped(to, from, len));
    }
    let copier = dst
        .copier()
        .or_else(|| src.copier())
        .ok_or(MemError::NoCopier { from: src.kind(), to: dst.kind() })?;
    // SAFETY: both ranges are inside their regions (checked by `range`), and the regions are kept
    // alive by the `Pending` until the engine is done.
    let ticket = unsafe { copier.start(to, from, len) }?;
    Ok(Progress::Pending(Pending(Started { copier, ticket, _keep: [dst.clone(), src.clone()] })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backing;
    use crate::testing::{LazyCopier, LazyMemory};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Host memory that records when it is freed.
    struct Watched(#[expect(dead_code, reason = "lives as long")] HostBuf, Arc<AtomicBool>);

    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    fn start(copier: &Arc<LazyCopier>, freed: &Arc<AtomicBool>) -> Pending {
        let (device, _) = LazyMemory::regions(64, 0, copier).unwrap();
        let bytes = HostBuf::new(64).unwrap();
        // SAFETY: the bytes are those of the mapping, which lives as long.
        let host = unsafe { Region::foreign(bytes.addr(), 64, Watched(bytes, freed.clone())) };
        match copy(&device, 0, &host, 0, 64).unwrap() {
            Progress::Pending(pending) => pending,
            Progress::Done => panic!("an engine has to do it"),
        }
    }

    #[test]
    fn dropping_a_copy_waits_for_no_engine_that_hangs_and_keeps_what_it_may_touch() {
        let copier = Arc::new(LazyCopier::default());
        let freed = Arc::<AtomicBool>::default();
        let (first, second) = (start(&copier, &freed), start(&copier, &freed));
        drop(first);
        drop(second);
        assert!(!freed.load(Ordering::Relaxed), "the engine may still read it");
        copier.allow(u64::MAX);
        // The next engine that hangs triggers a look at the others.
        drop(start(&Arc::new(LazyCopier::default()), &Arc::default()));
        assert!(freed.load(Ordering::Relaxed));
    }
}
