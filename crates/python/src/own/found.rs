//! Memory that an object was found to have.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Memory of an object, which lives as long as `keep`.
pub(crate) struct Found {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    /// The CUDA device that it is on; `None` for the host.
    pub(crate) device: Option<u32>,
    pub(crate) keep: Py<PyAny>,
}

/// An exception for memory that cannot be registered.
pub(super) fn wrong<T>(why: impl Into<String>) -> PyResult<T> {
    Err(PyValueError::new_err(why.into()))
}

/// Whether elements follow one another, in the order of the dimensions or in any other.
pub(crate) fn is_dense(shape: &[usize], strides: &[isize], item: usize) -> bool {
    if shape.len() != strides.len() {
        return false;
    }
    let mut axes: Vec<(isize, usize)> =
        strides.iter().copied().zip(shape.iter().copied()).collect();
    axes.retain(|(_, length)| *length != 1);
    axes.sort_unstable();
    let mut expected = item;
    axes.into_iter().all(|(stride, length)| {
        let fits = usize::try_from(stride) == Ok(expected);
        expected = expected.saturating_mul(length);
        fits
    })
}
