//! Registered memory, of this agent and of others.

use super::blocks::{Blocks, Wanted, slice};
use super::errors::Raise;
use crate::fork::Origin;
use crate::wait;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use warpverbs_agent::{AgentError, Registration, RemoteMemory};
use warpverbs_gpu::Buffer;
use warpverbs_mem::Kind;

/// Memory that an agent has registered. Closing it deregisters; so does dropping it, without waiting.
#[pyclass(frozen, module = "warpverbs", name = "Memory")]
pub(crate) struct Memory {
    inner: RwLock<Option<Arc<Registration>>>,
    label: String,
    len: u64,
    /// Of memory that this library has allocated: arrays may share it. They keep this object, which may be closed
    /// before they end.
    ours: Option<Buffer>,
    origin: Origin,
}

impl Memory {
    /// Memory of an object of the program's.
    pub(crate) fn new(inner: Registration) -> Self {
        let (label, len) = (inner.label().to_owned(), inner.len());
        let inner = RwLock::new(Some(Arc::new(inner)));
        Self { inner, label, len, ours: None, origin: Origin::here() }
    }

    /// Memory that was allocated to be registered.
    pub(crate) fn allocated(inner: Registration) -> Self {
        let ours = Some(inner.buffer().clone());
        let mut made = Self::new(inner);
        made.ours = ours;
        made
    }

    pub(crate) fn registration(&self) -> PyResult<Arc<Registration>> {
        self.origin.check()?;
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner
            .clone()
            .ok_or_else(|| PyRuntimeError::new_err(format!("memory {:?} is closed", self.label)))
    }

    fn take(&self) -> Option<Arc<Registration>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn list(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&Registration) -> Result<warpverbs_agent::BlockList, AgentError>,
    ) -> PyResult<Blocks> {
        make(&*self.registration()?).map(Blocks).raise(py)
    }
}

#[pymethods]
impl Memory {
    /// The name under which peers find it.
    #[getter]
    fn label(&self) -> &str {
        &self.label
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.len
    }

    fn __len__(&self) -> usize {
        self.len as usize
    }

    /// Blocks of `size` bytes: `count` of them, by default as many as fit, each `stride` bytes after the one before
    /// it, by default one after the other, from `offset` on.
    #[pyo3(signature = (size, count=None, *, offset=0, stride=None))]
    fn blocks(
        &self,
        py: Python<'_>,
        size: u64,
        count: Option<usize>,
        offset: u64,
        stride: Option<u64>,
    ) -> PyResult<Blocks> {
        let Wanted { offset, size, count, stride } =
            Wanted::of(self.len, size, count, offset, stride)?;
        self.list(py, |memory| memory.strided(offset, size, stride, count))
    }

    /// Blocks of `size` bytes at each of `offsets`, an array or a sequence of integers.
    fn blocks_at(&self, py: Python<'_>, offsets: &Bound<'_, PyAny>, size: u64) -> PyResult<Blocks> {
        let offsets = crate::indices::numbers(offsets)?;
        self.list(py, |memory| memory.blocks_at(&offsets, size))
    }

    /// One block: `memory[start:stop]`.
    fn __getitem__(&self, py: Python<'_>, range: &Bound<'_, PySlice>) -> PyResult<Blocks> {
        let (offset, len) = slice(range, self.len)?;
        self.list(py, |memory| memory.blocks(offset, len, 1))
    }

    /// A copy of the bytes from `offset` on.
    #[pyo3(signature = (offset=0, size=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let memory = self.registration()?;
        let rest = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let size = size.unwrap_or(rest);
        // Before memory is taken for it.
        if size > rest {
            let why = format!("{size} bytes at {offset} of {} bytes", self.len);
            return Err(pyo3::exceptions::PyValueError::new_err(why));
        }
        let read = py.detach(|| {
            let mut bytes = vec![0; size];
            memory.read(offset, &mut bytes).map(|()| bytes)
        });
        Ok(PyBytes::new(py, &read.raise(py)?))
    }

    /// Copies bytes in, from `offset` on.
    #[pyo3(signature = (data, offset=0))]
    fn write(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<()> {
        let memory = self.registration()?;
        py.detach(|| memory.write(offset, data)).raise(py)
    }

    /// Deregisters, and waits until nothing touches the memory any more.
    ///
    /// Raises `Timeout` if a peer has not confirmed that after `timeout` seconds: the registration has ended, and the
    /// memory is kept until the peer confirms.
    #[pyo3(signature = (timeout=30.0))]
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = wait::seconds(Some(timeout))?.unwrap_or(Duration::MAX);
        let Some(inner) = self.take() else { return Ok(()) };
        match Arc::try_unwrap(inner) {
            // Nobody frees it while this object lives, which arrays may share.
            Ok(inner) if self.ours.is_some() => {
                py.detach(|| drop(inner));
                Ok(())
            }
            Ok(inner) => wait::done(py, move || inner.deregister(timeout))?.raise(py),
            // Another thread is within a call on it, which ends it.
            Err(shared) => {
                py.detach(|| drop(shared));
                Ok(())
            }
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_how))]
    fn __exit__(&self, py: Python<'_>, _how: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py, 30.0)
    }

    /// Host memory as an array of bytes, without a copy. The array keeps the memory in place, also after `close`.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        interface(slf, Kind::Host)
    }

    /// GPU memory as an array of bytes, without a copy.
    #[getter]
    fn __cuda_array_interface__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        interface(slf, Kind::Cuda(0))
    }

    fn __repr__(&self) -> String {
        let closed = self.inner.read().unwrap_or_else(PoisonError::into_inner).is_none();
        let state = if closed { ", closed" } else { "" };
        format!("<Memory {:?}: {} bytes{state}>", self.label, self.len)
    }
}

fn interface<'py>(slf: &Bound<'py, Memory>, wanted: Kind) -> PyResult<Bound<'py, PyDict>> {
    let py = slf.py();
    let absent = |why: String| Err(pyo3::exceptions::PyAttributeError::new_err(why));
    let Some(ours) = &slf.get().ours else {
        return absent("the object that was registered has the array of this memory".into());
    };
    let region = ours.region();
    if (region.kind() == Kind::Host) != (wanted == Kind::Host) {
        return absent(format!("this is {}", region.kind()));
    }
    let interface = PyDict::new(py);
    interface.set_item("shape", (region.len(),))?;
    interface.set_item("typestr", "|u1")?;
    interface.set_item("data", (region.addr(), false))?;
    interface.set_item("version", 3)?;
    Ok(interface)
}

impl Drop for Memory {
    fn drop(&mut self) {
        let inner = self.take();
        Python::attach(|py| py.detach(|| drop(inner)));
    }
}

/// Memory of a peer, as its metadata describe it.
#[pyclass(frozen, module = "warpverbs", name = "RemoteMemory")]
pub(crate) struct PyRemoteMemory(pub(crate) RemoteMemory);

#[pymethods]
impl PyRemoteMemory {
    /// The peer's name for it.
    #[getter]
    fn label(&self) -> &str {
        self.0.label()
    }

    /// The name of the peer.
    #[getter]
    fn agent(&self) -> &str {
        &self.0.owner().name
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.len()
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    /// As `Memory.blocks`.
    #[pyo3(signature = (size, count=None, *, offset=0, stride=None))]
    fn blocks(
        &self,
        py: Python<'_>,
        size: u64,
        count: Option<usize>,
        offset: u64,
        stride: Option<u64>,
    ) -> PyResult<Blocks> {
        let Wanted { offset, size, count, stride } =
            Wanted::of(self.0.len(), size, count, offset, stride)?;
        self.0.strided(offset, size, stride, count).map(Blocks).raise(py)
    }

    /// As `Memory.blocks_at`.
    fn blocks_at(&self, py: Python<'_>, offsets: &Bound<'_, PyAny>, size: u64) -> PyResult<Blocks> {
        let offsets = crate::indices::numbers(offsets)?;
        self.0.blocks_at(&offsets, size).map(Blocks).raise(py)
    }

    /// One block: `memory[start:stop]`.
    fn __getitem__(&self, py: Python<'_>, range: &Bound<'_, PySlice>) -> PyResult<Blocks> {
        let (offset, len) = slice(range, self.0.len())?;
        self.0.blocks(offset, len, 1).map(Blocks).raise(py)
    }

    fn __repr__(&self) -> String {
        format!("<RemoteMemory {:?} of {}: {} bytes>", self.label(), self.agent(), self.0.len())
    }
}
