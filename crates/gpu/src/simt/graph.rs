//! Several kernels by one launch.

use super::run::SimtLaunch;
use super::runner::Runner;
use crate::graph::{GraphState, Step};
use crate::{GpuError, Launch};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The kernels of a graph, run one after another on one thread.
pub(super) struct Sequence {
    pub(super) runner: Runner,
    pub(super) first: Step,
    pub(super) more: Vec<Step>,
}

impl GraphState for Sequence {
    fn launch(&self, deadline: Duration) -> Result<Launch, GpuError> {
        let stop: Arc<AtomicBool> = Arc::default();
        let job = |step: &Step| self.runner.job(&*step.kernel, step.dim, &stop);
        let first = job(&self.first)?;
        let more = self.more.iter().map(job).collect::<Result<_, _>>()?;
        // SAFETY: `SafeKernel`s that passed their checks for these shapes touch what lies behind their pointers
        // alone, which the jobs keep alive.
        let state = unsafe { SimtLaunch::start_all(first, more) }?;
        Ok(Launch::new(Box::new(state), deadline))
    }
}
