//! The engine's own thread.

use crate::NicError;
use crate::config::Idle;
use crate::engine::{Core, Step, monitor};
use crate::shared::Shared;
use nix::sys::prctl::set_timerslack;
use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use warpverbs_mem::pause;

/// A thread that drives a NIC; stops and joins on drop.
#[derive(Debug)]
pub struct EngineThread {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl EngineThread {
    pub(crate) fn start(nic: &Arc<Shared>) -> Result<Self, NicError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (nic, stopped) = (nic.clone(), stop.clone());
        let name = format!("nic-{}", nic.config().name);
        let handle = thread::Builder::new()
            .name(name)
            .spawn(move || drive(&nic, &stopped))
            .map_err(|error| NicError::Spawn(error.kind()))?;
        Ok(Self { stop, handle: Some(handle) })
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(handle) = self.handle.take() {
            handle.thread().unpark();
            // Panics only if a watcher did, after the NIC had stopped.
            let _ = handle.join();
        }
    }
}

/// The text of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("the engine panicked: {}", text.as_deref().unwrap_or("without a message"))
}

/// Slices done under one taking of the lock, at most.
const SLICES: u32 = 4096;
/// How long the engine yields to callers that wait for the lock, before it takes the lock itself: about
/// 64 yields. A bound in yields would be none in time: on a busy machine each one gives away the
/// processor for tens of milliseconds.
const COURTESY: Duration = Duration::from_micros(30);

/// Polls of memory that take as long as one system call that asks for datagrams.
const SYSTEM_CALL: u32 = 16;
/// Idle polls between two yields of a spinning engine, about 10 µs. With fewer cores than threads, the
/// engine spins on a core that the thread it waits for needs.
const BURST: u32 = 16 * SYSTEM_CALL;
/// How late the system may end a sleep, in nanoseconds; otherwise that is 50 µs, as long as the sleep.
const SLACK_NS: u64 = 1000;

/// The engine's behaviour while idle, and the idle polls between two yields while it spins.
fn idle_of(nic: &Shared) -> (Idle, u32) {
    let Idle { spin, yields, sleep } = nic.config().idle;
    let cost = if monitor::network(&nic.lock()).polls_system() { SYSTEM_CALL } else { 1 };
    (Idle { spin: spin / cost, yields: yields / cost, sleep }, BURST / cost)
}

fn drive(nic: &Shared, stop: &AtomicBool) {
    let (Idle { spin, yields, sleep }, burst) = idle_of(nic);
    // Without it, sleeps are longer and all else is the same.
    let _ = set_timerslack(SLACK_NS);
    let mut idle = 0u32;
    while !stop.load(Ordering::Acquire) {
        // Callers that wait get the lock first, but endless calls must not stop the engine.
        if nic.waiting.load(Ordering::Relaxed) != 0 {
            give_way_to_callers(nic);
        }
        let mut core = nic.lock_unannounced();
        if nic.stopped().is_some() {
            return;
        }
        // Caught under the lock: nobody sees the NIC between the panic and its cause.
        match panic::catch_unwind(AssertUnwindSafe(|| slices(nic, &mut core, idle, spin, burst))) {
            Ok(polls) => idle = polls,
            Err(payload) => return nic.stop(core, message(&*payload)),
        }
        drop(core);
        if idle > spin.saturating_add(yields) {
            thread::park_timeout(sleep);
        } else if idle > spin || ends_burst(idle, burst) {
            pause();
        }
    }
}

/// Yields until no caller waits for the lock, or for [`COURTESY`].
#[cold]
fn give_way_to_callers(nic: &Shared) {
    let began = Instant::now();
    while nic.waiting.load(Ordering::Relaxed) != 0 && began.elapsed() < COURTESY {
        pause();
    }
}

fn ends_burst(idle: u32, burst: u32) -> bool {
    idle > 0 && idle.is_multiple_of(burst)
}

/// Works while there is something to do and nobody else wants the lock, to the end of a burst of polls
/// that found nothing. `idle` counts those, and so does the result.
fn slices(nic: &Shared, core: &mut Core, mut idle: u32, spin: u32, burst: u32) -> u32 {
    for _ in 0..SLICES {
        idle = match core.step() {
            Step::Busy(_) if monitor::is_looking(core) => idle,
            Step::Busy(_) => 0,
            Step::Idle => idle.saturating_add(1),
        };
        let rests = (idle > spin || ends_burst(idle, burst)) && !monitor::is_looking(core);
        if rests || nic.waiting.load(Ordering::Relaxed) != 0 {
            break;
        }
        if idle > 0 {
            std::hint::spin_loop();
        }
    }
    idle
}
