//! The package's own interface: agents, memory, lists, transfers.

mod agent;
mod blocks;
mod dlpack;
mod errors;
mod found;
pub(crate) mod log;
mod memory;
mod object;
mod ready;
mod settings;
mod transfer;
mod wait;

use pyo3::prelude::*;

/// Puts the classes into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<agent::PyAgent>()?;
    module.add_class::<agent::PyExplanation>()?;
    module.add_class::<blocks::Blocks>()?;
    module.add_class::<blocks::PyPrepared>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<memory::PyRemoteMemory>()?;
    module.add_class::<transfer::PyTransfer>()?;
    module.add_class::<transfer::PyTelemetry>()?;
    module.add_class::<ready::Ready>()?;
    module.add_class::<ready::Pending>()
}
