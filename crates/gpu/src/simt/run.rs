//! A launch on a thread of its own.

use super::executor::{Counts, Executor, Plan, Stop};
use super::fault::SimtFault;
use super::lane::Entry;
use crate::{GpuError, KernelArgs, LaunchError, LaunchState};
use nix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a stopped launch may take to reach a switch point before it is given up.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Finished launches that a device remembers.
const REMEMBERED: usize = 64;

/// A launch that has ended, well or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Kernel name.
    pub kernel: &'static str,
    /// Number of the launch on its device, from 0.
    pub launch: u64,
    /// Its counts.
    pub counts: Counts,
    /// CPU time of its thread.
    pub cpu: Duration,
}

/// The last launches of a device, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Finished>>);

impl History {
    pub(crate) fn all(&self) -> Vec<Finished> {
        lock(&self.0).iter().cloned().collect()
    }

    fn add(&self, finished: Finished) {
        let mut known = lock(&self.0);
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(finished);
    }
}

#[derive(Debug)]
enum Outcome {
    Done,
    Fault(SimtFault),
    Killed(String),
}

#[derive(Debug, Default)]
struct Shared {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
}

/// The host's side of a running launch.
pub(crate) struct SimtLaunch {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

/// Arguments of a launch's thread.
pub(crate) struct Job {
    pub(crate) kernel: &'static str,
    pub(crate) host: unsafe extern "C" fn(*const *const core::ffi::c_void),
    pub(crate) args: KernelArgs,
    pub(crate) plan: Plan,
    pub(crate) history: Arc<History>,
}

impl SimtLaunch {
    /// # Safety
    /// `job.args` must be the parameters of `job.host`, and their addresses valid for what the
    /// kernel does with them while `job.args` lives.
    pub(crate) unsafe fn start(job: Job) -> Result<Self, GpuError> {
        // SAFETY: handed on to the caller.
        unsafe { Self::start_all(job, Vec::new()) }
    }

    /// One job and then others, as long as they end well.
    ///
    /// # Safety
    /// As [`SimtLaunch::start`], for each of them. They have one stop.
    pub(crate) unsafe fn start_all(job: Job, more: Vec<Job>) -> Result<Self, GpuError> {
        let shared = Arc::new(Shared::default());
        let launch = Self { shared: shared.clone(), stop: job.plan.stop.clone() };
        let kernel = job.kernel;
        std::thread::Builder::new()
            .name(format!("simt{}:{kernel}", job.plan.config.ordinal))
            .spawn(move || {
                // SAFETY: handed on from `start_all`.
                let mut outcome = unsafe { run(job) };
                for next in more {
                    if matches!(outcome, Outcome::Done) {
                        // SAFETY: as above.
                        outcome = unsafe { run(next) };
                    }
                }
                *lock(&shared.outcome) = Some(outcome);
                shared.ended.notify_all();
            })
            .map_err(|cause| GpuError::Thread { kernel, cause })?;
        Ok(launch)
    }
}

/// Runs a job to its end; everything it held is released on return.
///
/// # Safety
/// As [`SimtLaunch::start`].
unsafe fn run(job: Job) -> Outcome {
    let Job { kernel, host, args, plan, history } = job;
    let launch = plan.launch;
    let pointers = args.pointers();
    let entry = Entry { host, args: pointers.as_ptr() };
    // SAFETY: `args` and `pointers` outlive the executor, which the closure drops.
    let mut executor = unsafe { Executor::new(plan, entry) };
    let result = catch_unwind(AssertUnwindSafe(|| executor.run()));
    let counts = executor.counts();
    drop(executor);
    let cpu = thread_cpu_time();
    history.add(Finished { kernel, launch, counts, cpu });
    tracing::debug!(kernel, launch, ?counts, ?cpu, "launch ended");
    match result {
        Ok(Ok(())) => Outcome::Done,
        Ok(Err(Stop::Killed(report))) => Outcome::Killed(report),
        Ok(Err(Stop::Fault(fault))) => Outcome::Fault(fault),
        Err(panic) => Outcome::Fault(SimtFault::Scheduler { what: message(&*panic) }),
    }
}

impl LaunchState for SimtLaunch {
    fn poll(&mut self) -> Result<bool, LaunchError> {
        match &*lock(&self.shared.outcome) {
            None => Ok(false),
            Some(Outcome::Fault(fault)) => Err(LaunchError::Simt(fault.clone())),
            Some(Outcome::Done | Outcome::Killed(_)) => Ok(true),
        }
    }

    fn kill(&mut self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let guard = lock(&self.shared.outcome);
        let waited = self.shared.ended.wait_timeout_while(guard, STOP_PATIENCE, |o| o.is_none());
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &*guard {
            Some(Outcome::Killed(report)) => report.clone(),
            Some(Outcome::Done) => "the kernel ended while it was being stopped".to_owned(),
            Some(Outcome::Fault(fault)) => fault.to_string(),
            None => format!(
                "no lane has touched memory, paused or read the clock for {STOP_PATIENCE:?}; the \
                 kernel's thread and memory are abandoned"
            ),
        }
    }
}

/// CPU time of the calling thread since its start; zero if the system does not report it.
fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded value is replaced whole; a panic elsewhere cannot leave it half written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "?".to_owned())
}
