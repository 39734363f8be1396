//! Whether this process is a child that was forked: an agent's threads and connections are its parent's.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u64);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// # Errors
    /// This is a child of it: threads and connections stayed with the parent.
    pub(crate) fn check(self) -> PyResult<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(pyo3::exceptions::PyRuntimeError::new_err(
                "this agent belongs to the parent process: make one after the fork, or spawn processes",
            )),
        }
    }

    /// Whether it is still this one.
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }
}

#[pyfunction]
fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts from now on how often this process becomes a child.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let module = PyModule::new(py, "_fork")?;
    module.add_function(wrap_pyfunction!(forked, &module)?)?;
    let options = PyDict::new(py);
    options.set_item("after_in_child", module.getattr("forked")?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&options))?;
    Ok(())
}
