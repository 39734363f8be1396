//! The native half of the Python package `warpverbs`: what `warpverbs.nixl._bindings` offers. Names
//! of its classes and methods are NIXL's, because programs of NIXL's call them.

mod agent;
mod arrays;
mod enums;
mod errors;
mod fork;
mod indices;
mod items;
mod lists;
mod own;
mod text;
mod utils;
mod wait;

use pyo3::prelude::*;

/// The native parts of `warpverbs.nixl` and `warpverbs`; no interface of its own.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fork::watch(module.py())?;
    agent::add(module)?;
    errors::add(module)?;
    lists::add(module)?;
    utils::add(module)?;
    own::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
