//! The state that all calls share.

use crate::code::{Answer, Code};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use warpverbs_gfx::{Caching, Config, Device, Registration, Rights, Target};

/// Multiprocessors of a device, and threads of each.
pub(crate) const MULTIPROCESSORS: u32 = 8;
pub(crate) const THREADS: u32 = 2048;
/// Waves of 64 threads that a device holds.
pub(crate) const CONCURRENT: usize = (MULTIPROCESSORS * THREADS / 64) as usize;

/// Bytes of shared memory of a multiprocessor.
pub(crate) const LDS: u32 = 64 << 10;

/// How memory came into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Allocated,
    Imported,
    Mapped,
    Host,
}

/// Memory that kernels reach.
pub(crate) struct Range {
    pub(crate) len: usize,
    pub(crate) origin: Origin,
    pub(crate) device: c_int,
    /// The memfd behind it, unless it is memory of the program.
    pub(crate) memory: Option<Arc<OwnedFd>>,
    /// Dropped before the memory is unmapped.
    _reach: Registration,
}

/// By first address.
pub(crate) type Ranges = BTreeMap<usize, Range>;

/// The name of memory, by which every process knows whether it is cached.
pub(crate) fn name(caching: Caching) -> &'static str {
    match caching {
        Caching::Cached => "emulated GPU, cached",
        Caching::Uncached => "emulated GPU, uncached",
    }
}

fn caching(memory: &OwnedFd) -> Caching {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let is_cached = link.is_ok_and(|link| link.to_string_lossy().contains(name(Caching::Cached)));
    if is_cached { Caching::Cached } else { Caching::Uncached }
}

pub(crate) struct State {
    pub(crate) gfx: Device,
    ranges: Mutex<Ranges>,
    lost: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has kernels access memory through caches, late, and in an order of this seed: see
/// [`Config::lazy`](warpverbs_gfx::Config::lazy).
const LAZY_ENV: &str = "WARPVERBS_GFX_LAZY";
/// Names the processor that the devices are: see [`Target`]. gfx942 unless it is set.
const TARGET_ENV: &str = "WARPVERBS_GFX_TARGET";

/// The value of a variable, if it is set.
fn variable<T: FromStr>(name: &str, expected: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    let Ok(known) = value.parse() else {
        eprintln!("emulated GPU: {name} is {value:?}; expected {expected}");
        std::process::abort()
    };
    Some(known)
}

/// The processor that the devices are.
pub(crate) fn target() -> Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    *TARGET.get_or_init(|| variable(TARGET_ENV, "gfx90a or gfx942").unwrap_or_default())
}

fn config() -> Config {
    let config = Config { target: target(), waves: CONCURRENT, ..Config::default() };
    match variable(LAZY_ENV, "a number, the seed") {
        Some(seed) => Config { seed, lazy: true, ..config },
        None => config,
    }
}

pub(crate) fn state() -> &'static State {
    static STATE: OnceLock<State> = OnceLock::new();
    STATE.get_or_init(|| State {
        gfx: Device::new(config()),
        ranges: Mutex::default(),
        lost: AtomicBool::new(false),
    })
}

impl State {
    pub(crate) fn ranges(&self) -> MutexGuard<'_, Ranges> {
        lock(&self.ranges)
    }

    /// A kernel has failed: nothing works any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// An error if a kernel has failed.
    pub(crate) fn alive(&self) -> Answer {
        if self.lost.load(Ordering::Acquire) { Err(Code::LaunchFailure) } else { Ok(()) }
    }

    /// Lets kernels reach memory.
    ///
    /// # Safety
    /// It is mapped readable and writable until it has been taken out of the ranges again.
    pub(crate) unsafe fn add(
        &self,
        (at, len): (usize, usize),
        origin: Origin,
        device: c_int,
        memory: Option<Arc<OwnedFd>>,
    ) -> Answer {
        let caching = memory.as_deref().map_or(Caching::Uncached, caching);
        // SAFETY: the caller's obligation; nobody makes references to it.
        let reach = unsafe { self.gfx.register(at as *mut u8, len, Rights::ReadWrite, caching) };
        let taken = match origin {
            Origin::Host => Code::HostMemoryAlreadyRegistered,
            _ => Code::InvalidValue,
        };
        let _reach = reach.map_err(|_| taken)?;
        self.ranges().insert(at, Range { len, origin, device, memory, _reach });
        Ok(())
    }

    /// Takes the memory that begins at `at` out of the kernels' reach, if it is of this origin.
    pub(crate) fn remove(&self, at: usize, origin: Origin) -> Answer<Range> {
        let mut ranges = self.ranges();
        let known = ranges.get(&at).is_some_and(|range| range.origin == origin);
        known.then(|| ranges.remove(&at)).flatten().ok_or(Code::InvalidValue)
    }
}

/// The range that an address lies in, and its first address.
pub(crate) fn find(ranges: &Ranges, addr: usize) -> Answer<(usize, &Range)> {
    let found = ranges.range(..=addr).next_back();
    let found = found.filter(|(at, range)| addr - **at < range.len);
    found.map(|(at, range)| (*at, range)).ok_or(Code::InvalidValue)
}
