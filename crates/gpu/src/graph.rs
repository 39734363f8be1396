//! Kernels that run one after another, prepared once and launched any number of times.

use crate::{Dim, Gpu, GpuError, Launch, SafeKernel};
use std::sync::Arc;
use std::time::Duration;

/// A launch that is part of a graph.
#[derive(Clone)]
pub struct Step {
    pub(crate) kernel: Arc<dyn SafeKernel + Send + Sync>,
    pub(crate) dim: Dim,
    resident: bool,
}

impl Step {
    /// Of a kernel with its arguments, which are the same in every launch of the graph.
    pub fn new(kernel: impl SafeKernel + Send + Sync + 'static, dim: Dim) -> Self {
        Self { kernel: Arc::new(kernel), dim, resident: false }
    }

    /// Its blocks wait for each other, as in [`Gpu::launch_resident`].
    #[must_use]
    pub fn resident(self) -> Self {
        Self { resident: true, ..self }
    }
}

/// The work that a device has prepared.
pub(crate) trait GraphState: Send + Sync {
    fn launch(&self, deadline: Duration) -> Result<Launch, GpuError>;
}

/// Kernels of one device, each of which begins when the last one has ended. On a GPU that is one call of the
/// driver; the host SIMT device launches one after another.
pub struct Graph {
    state: Box<dyn GraphState>,
}

impl Graph {
    /// Prepares the steps. What their arguments keep alive lives as long as the graph and its launches.
    ///
    /// # Errors
    /// There is no step, one would be refused as a launch, or the device has no graphs.
    pub fn new(gpu: &dyn Gpu, steps: Vec<Step>) -> Result<Self, GpuError> {
        for Step { kernel, dim, resident } in &steps {
            kernel.check(*dim)?;
            let most = gpu.resident_blocks(&**kernel, *dim)?;
            if *resident && dim.blocks() > most {
                let (kernel, blocks, threads) = (kernel.entry().name, dim.blocks(), dim.threads());
                return Err(GpuError::NotResident { kernel, blocks, threads, most });
            }
        }
        if steps.is_empty() {
            let (kernel, field, expected) = ("graph", "steps", "1 or more");
            return Err(GpuError::BadLaunch { kernel, field, value: 0, expected });
        }
        gpu.graph(steps)
    }

    pub(crate) fn of(state: impl GraphState + 'static) -> Self {
        Self { state: Box::new(state) }
    }

    /// Starts it and returns at once; `deadline` bounds every wait for all of it.
    ///
    /// # Errors
    /// The device refuses.
    pub fn launch(&self, deadline: Duration) -> Result<Launch, GpuError> {
        self.state.launch(deadline)
    }
}
