//! From a kernel to what a thread runs.

use super::config::{SimtConfig, Stepper};
use super::executor::Plan;
use super::run::{History, Job};
use super::stack::StackPool;
use crate::{Dim, GpuError, Kernel};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// All that launches need of the device.
#[derive(Clone)]
pub(super) struct Runner {
    pub(super) config: SimtConfig,
    pub(super) stacks: Arc<StackPool>,
    pub(super) stepper: Option<Arc<dyn Stepper>>,
    pub(super) launches: Arc<AtomicU64>,
    pub(super) history: Arc<History>,
}

impl Runner {
    /// A kernel that is to be run, until it ends or `stop` is raised.
    pub(super) fn job(
        &self,
        kernel: &dyn Kernel,
        dim: Dim,
        stop: &Arc<AtomicBool>,
    ) -> Result<Job, GpuError> {
        let args = kernel.args();
        let (_, entry) = args.compiled(kernel)?;
        let bad = |field, value: u64, expected| {
            Err(GpuError::BadLaunch { kernel: entry.name, field, value, expected })
        };
        dim.check(entry.name, 1024)?;
        if args.len() != entry.params.len() {
            return bad("parameters", args.len() as u64, "as many as the kernel declares");
        }
        if !args.on_host() {
            return Err(self.unsupported("kernels on memory that the CPU cannot reach"));
        }
        let plan = Plan {
            config: self.config.clone(),
            dim,
            // A counter; nothing is published with it.
            launch: self.launches.fetch_add(1, Ordering::Relaxed),
            stacks: self.stacks.clone(),
            stepper: self.stepper.clone(),
            stop: stop.clone(),
        };
        let history = self.history.clone();
        Ok(Job { kernel: entry.name, host: entry.host, args, plan, history })
    }

    pub(super) fn unsupported(&self, what: &'static str) -> GpuError {
        GpuError::Unsupported { device: format!("simt:{}", self.config.ordinal), what }
    }
}
