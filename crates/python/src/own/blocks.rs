//! Lists of blocks.

use super::errors::Raise;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use warpverbs_agent::{Agent, AgentError, BlockList, Prepared};

/// Blocks of registered memory of one agent, in order: plain data that may travel.
#[pyclass(frozen, eq, module = "warpverbs", name = "Blocks")]
#[derive(PartialEq)]
pub(crate) struct Blocks(pub(crate) BlockList);

#[pymethods]
impl Blocks {
    /// Reads what `to_bytes` gave. Ranges are checked when the list is used.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        BlockList::from_bytes(data).map(Self).map_err(AgentError::from).raise(py)
    }

    /// Bytes that may travel and be stored.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.to_bytes()))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Bytes of all blocks.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The name of the agent whose memory it is.
    #[getter]
    fn agent(&self) -> &str {
        &self.0.owner().name
    }

    /// The blocks of both lists, of the same agent.
    fn __add__(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let mut sum = self.0.clone();
        sum.append(&other.0).raise(py)?;
        Ok(Self(sum))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (Py<PyBytes>,))> {
        let make = slf.get_type().getattr("from_bytes")?.unbind();
        Ok((make, (slf.get().to_bytes(slf.py()).unbind(),)))
    }

    fn __repr__(&self) -> String {
        format!("<Blocks: {} of {}, {} bytes>", self.0.len(), self.0.owner().name, self.0.bytes())
    }
}

/// A list that was checked: transfers of some of its blocks are made by index.
#[pyclass(frozen, module = "warpverbs", name = "Prepared")]
pub(crate) struct PyPrepared {
    pub(crate) inner: Prepared,
    pub(crate) of: String,
}

#[pymethods]
impl PyPrepared {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __repr__(&self) -> String {
        format!("<Prepared: {} blocks of {}>", self.inner.len(), self.of)
    }
}

/// Which blocks of some memory a program means.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) count: usize,
    pub(crate) stride: u64,
}

impl Wanted {
    /// `count` is by default as many as fit.
    pub(crate) fn of(
        len: u64,
        size: u64,
        count: Option<usize>,
        offset: u64,
        stride: Option<u64>,
    ) -> PyResult<Self> {
        let stride = stride.unwrap_or(size);
        let room = len.checked_sub(offset).and_then(|room| room.checked_sub(size));
        let count = match (count, room) {
            (Some(count), _) => count,
            (None, Some(room)) if size > 0 && stride > 0 => {
                usize::try_from(room / stride + 1).unwrap_or(usize::MAX)
            }
            _ => {
                let why = format!(
                    "no block of {size} bytes, {stride} apart, fits at {offset} into {len} bytes"
                );
                return Err(PyValueError::new_err(why));
            }
        };
        Ok(Self { offset, size, count, stride })
    }
}

/// The bytes `range` of memory of `len` bytes, as one block: offset and length.
pub(crate) fn slice(range: &Bound<'_, pyo3::types::PySlice>, len: u64) -> PyResult<(u64, u64)> {
    let len = isize::try_from(len).unwrap_or(isize::MAX);
    let at = range.indices(len)?;
    if at.step != 1 || at.stop <= at.start {
        let why = format!("bytes {}:{}:{} are no block", at.start, at.stop, at.step);
        return Err(PyValueError::new_err(why));
    }
    Ok((at.start.unsigned_abs() as u64, (at.stop - at.start).unsigned_abs() as u64))
}

/// Checks a list for an agent.
pub(crate) fn prepare(py: Python<'_>, agent: &Agent, list: &Blocks) -> PyResult<PyPrepared> {
    let inner = py.detach(|| agent.prepare(&list.0)).raise(py)?;
    Ok(PyPrepared { inner, of: list.0.owner().name.to_string() })
}
