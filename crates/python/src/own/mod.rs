//! The package's own interface: agents, memory, lists, transfers.

mod agent;
mod blocks;
mod counters;
mod dlpack;
mod errors;
mod explanation;
mod found;
pub(crate) mod log;
mod memory;
mod object;
mod ready;
mod settings;
mod transfer;

use pyo3::prelude::*;
use std::sync::Arc;
use warpverbs_gpu::Gpu;

/// The GPU that PyTorch uses at this moment, if it uses one that can be opened.
pub(crate) fn current_gpu() -> Option<Arc<dyn Gpu>> {
    Python::attach(|py| match settings::gpu(py, None) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("the GPU that PyTorch uses is not used: {error}");
            None
        }
    })
}

/// Puts the classes into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<agent::PyAgent>()?;
    module.add_class::<counters::PyCounters>()?;
    module.add_class::<counters::PyMoved>()?;
    module.add_class::<counters::PyUndone>()?;
    module.add_class::<explanation::PyExplanation>()?;
    module.add_class::<blocks::Blocks>()?;
    module.add_class::<blocks::PyPrepared>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<memory::PyRemoteMemory>()?;
    module.add_class::<transfer::PyTransfer>()?;
    module.add_class::<transfer::PyTelemetry>()?;
    module.add_class::<ready::Ready>()?;
    module.add_class::<ready::Pending>()
}
