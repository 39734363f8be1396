//! State that all handles of a NIC share: the engine behind a lock, and why it stopped.

use crate::engine::{Core, monitor};
use crate::stop::Stop;
use crate::{AsyncEvent, Config, NicError, StopWatcher};
use crossbeam::utils::CachePadded;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Weak};
use warpverbs_mem::Region;

/// A NIC's state, which its handles keep alive.
pub(crate) struct Shared {
    config: Config,
    doorbells: Region,
    core: Mutex<Core>,
    /// Calls that wait for the lock; the engine thread yields to them.
    pub(crate) waiting: CachePadded<AtomicU32>,
    next_pd: AtomicU32,
    stop: Stop,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftNic").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(config: Config, doorbells: Region, core: Core) -> Self {
        let (waiting, next_pd) = (CachePadded::default(), AtomicU32::new(1));
        let (core, stop) = (Mutex::new(core), Stop::default());
        Self { config, doorbells, core, waiting, next_pd, stop }
    }

    /// The lock, for every thread but the engine's.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.lock_unannounced();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// The lock, for the engine thread. If a thread panicked while it held the lock, a change may
    /// be half done: the NIC stops, and its objects may only be read or destroyed.
    pub(crate) fn lock_unannounced(&self) -> MutexGuard<'_, Core> {
        match self.core.lock() {
            Ok(core) => core,
            Err(poisoned) => {
                self.stop(poisoned.into_inner(), "a thread panicked during a call".into());
                self.core.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
            }
        }
    }

    /// The lock, to change something.
    pub(crate) fn lock_running(&self) -> Result<MutexGuard<'_, Core>, NicError> {
        let core = self.lock();
        match self.stop.cause() {
            None => Ok(core),
            Some(cause) => Err(cause.clone()),
        }
    }

    /// Takes something out of a NIC, also out of one that stopped.
    pub(crate) fn take_down<T>(&self, removal: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let mut core = self.lock();
        if self.stop.cause().is_none() {
            return Some(removal(&mut core));
        }
        // In what is left of a change anything may panic; the NIC is not used again.
        panic::catch_unwind(AssertUnwindSafe(|| removal(&mut core))).ok()
    }

    /// Stops the NIC with this cause, unless it has one. The cause is set before anybody else gets
    /// the lock; watchers are called without it.
    #[cold]
    pub(crate) fn stop(&self, mut core: MutexGuard<'_, Core>, panic: String) {
        let name = self.config.name.clone();
        if self.stop.set(NicError::Stopped { name, panic }) {
            monitor::diagnostics(&mut core).events.push(AsyncEvent::DeviceFatal);
            drop(core);
            self.stop.call_watchers();
        }
    }

    /// Why the NIC has stopped, once that was noticed.
    pub(crate) fn stopped(&self) -> Option<&NicError> {
        self.stop.cause()
    }

    /// Something that a call was given is of this NIC.
    pub(crate) fn check_own(&self, what: &'static str, nic: &Self) -> Result<(), NicError> {
        let foreign = NicError::Foreign { what, owner: "NIC" };
        std::ptr::eq(self, nic).then_some(()).ok_or(foreign)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
    pub(crate) fn doorbells(&self) -> &Region {
        &self.doorbells
    }

    /// The number of a new protection domain.
    pub(crate) fn next_pd(&self) -> u32 {
        self.next_pd.fetch_add(1, Ordering::Relaxed)
    }

    /// A thread may have panicked while it held the lock: the next one that takes it sees to that.
    pub(crate) fn notice_panic(&self) {
        if self.core.is_poisoned() {
            drop(self.lock());
        }
    }

    /// Calls `watcher` when the NIC stops; at once if it has.
    pub(crate) fn watch(&self, watcher: Weak<dyn StopWatcher>) {
        self.stop.watch(watcher);
    }
}
