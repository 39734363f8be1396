//! Kernels that run one after another, prepared once and launched any number of times.

use crate::{Dim, GpuError, Launch, SafeKernel};
use std::sync::Arc;
use std::time::Duration;

/// The name of the feature, in messages of devices that lack it.
pub(crate) const GRAPHS: &str = "graphs of kernels";

/// A launch that is part of a graph.
#[derive(Clone)]
pub struct Step {
    pub(crate) kernel: Arc<dyn SafeKernel + Send + Sync>,
    pub(crate) dim: Dim,
    pub(crate) resident: bool,
}

impl Step {
    /// Of a kernel with its arguments, which are the same in every launch of the graph.
    pub fn new(kernel: impl SafeKernel + Send + Sync + 'static, dim: Dim) -> Self {
        Self { kernel: Arc::new(kernel), dim, resident: false }
    }

    /// Its blocks wait for each other, as in [`Gpu::launch_resident`](crate::Gpu::launch_resident).
    #[must_use]
    pub fn resident(self) -> Self {
        Self { resident: true, ..self }
    }
}

/// The work that a device has prepared.
pub(crate) trait GraphState: Send + Sync {
    fn launch(&self, deadline: Duration) -> Result<Launch, GpuError>;
}

/// Kernels of one device, each of which begins when the last one has ended: made by
/// [`Gpu::graph`](crate::Gpu::graph), and valid as long as it or a launch of it lives. On a GPU that is one call of the
/// driver; the host SIMT device launches one after another.
pub struct Graph {
    state: Box<dyn GraphState>,
}

impl Graph {
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
