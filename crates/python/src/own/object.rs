//! The memory of Python's objects: arrays, tensors and buffers, none of whose libraries is imported.

use super::dlpack;
use super::found::{Found, is_dense, wrong};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The memory of an object: contiguous, writable, at least one byte.
///
/// # Errors
/// It has none of the interfaces, or its memory is none of that.
pub(crate) fn memory_of(object: &Bound<'_, PyAny>) -> PyResult<Found> {
    let found = match any_of(object)? {
        Some(found) => found,
        None => {
            let class = object.get_type().qualname()?;
            return Err(PyTypeError::new_err(format!(
                "{class} has no memory that can be registered: expected __array_interface__, \
                 __cuda_array_interface__, __dlpack__, data_ptr() of a tensor, or a writable buffer"
            )));
        }
    };
    match found.addr == 0 || found.len == 0 {
        true => {
            wrong(format!("{} bytes at {:#x}, expected at least 1 byte", found.len, found.addr))
        }
        false => Ok(found),
    }
}

fn any_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Found>> {
    if let Some(found) = tensor(object)? {
        return Ok(Some(found));
    }
    for (name, on_device) in [("__array_interface__", false), ("__cuda_array_interface__", true)] {
        if let Some(interface) = object.getattr_opt(name)? {
            return array(object, &interface, on_device).map(Some);
        }
    }
    if let Some(found) = dlpack::memory_of(object)? {
        return Ok(Some(found));
    }
    buffer(object)
}

/// PyTorch's tensors, which describe themselves whatever their gradients are.
fn tensor(object: &Bound<'_, PyAny>) -> PyResult<Option<Found>> {
    let py = object.py();
    let Some(pointer) = object.getattr_opt(intern!(py, "data_ptr"))? else { return Ok(None) };
    let Some(contiguous) = object.getattr_opt(intern!(py, "is_contiguous"))? else {
        return Ok(None);
    };
    if !contiguous.call0()?.is_truthy()? {
        return wrong(
            "the tensor is not contiguous, expected one that is: .contiguous() makes a copy",
        );
    }
    let device = object.getattr(intern!(py, "device"))?;
    let kind: String = device.getattr(intern!(py, "type"))?.extract()?;
    let ordinal: Option<u32> = device.getattr(intern!(py, "index"))?.extract()?;
    let device = match &*kind {
        "cpu" => None,
        "cuda" => Some(ordinal.unwrap_or(0)),
        other => return wrong(format!("a tensor on {other}, expected cpu or cuda")),
    };
    let elements: usize = object.call_method0(intern!(py, "numel"))?.extract()?;
    let size: usize = object.call_method0(intern!(py, "element_size"))?.extract()?;
    let addr: u64 = pointer.call0()?.extract()?;
    let len = elements
        .checked_mul(size)
        .ok_or_else(|| PyValueError::new_err("the tensor is too large"))?;
    Ok(Some(Found { addr, len, device, keep: object.clone().unbind() }))
}

/// NumPy's array interface, version 3, and CUDA's, which is the same for memory of a device.
fn array(
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
    on_device: bool,
) -> PyResult<Found> {
    let interface = interface.cast::<PyDict>().map_err(PyErr::from)?;
    let get = |name: &str| {
        let found = interface.get_item(name)?;
        found.ok_or_else(|| PyValueError::new_err(format!("the array's interface has no {name:?}")))
    };
    let shape: Vec<usize> = get("shape")?.extract()?;
    let kind: String = get("typestr")?.extract()?;
    let (addr, readonly): (u64, bool) = get("data")?.extract()?;
    if readonly {
        return wrong("the array is read-only, expected one that peers may write to");
    }
    let digits: usize = kind.get(2..).and_then(|size| size.parse().ok()).unwrap_or(0);
    let item = if kind.as_bytes().get(1) == Some(&b'U') { digits * 4 } else { digits };
    let count = shape.iter().try_fold(1usize, |all, one| all.checked_mul(*one));
    let len = count.and_then(|count| count.checked_mul(item));
    let len = len.ok_or_else(|| PyValueError::new_err(format!("{shape:?} is too large")))?;
    if let Some(strides) = interface.get_item("strides")?.filter(|strides| !strides.is_none()) {
        let strides: Vec<isize> = strides.extract()?;
        if len > 0 && !is_dense(&shape, &strides, item) {
            return wrong(format!(
                "the array is not contiguous: shape {shape:?}, strides {strides:?}, {item} bytes each"
            ));
        }
    }
    let device = on_device.then(|| device_of(object, addr)).transpose()?;
    Ok(Found { addr, len, device, keep: object.clone().unbind() })
}

/// The CUDA device of an array: what the object says, else what the driver says of the address.
fn device_of(object: &Bound<'_, PyAny>, addr: u64) -> PyResult<u32> {
    let py = object.py();
    if let Some(device) = object.getattr_opt(intern!(py, "device"))?
        && let Some(id) = device.getattr_opt(intern!(py, "id"))?
    {
        return id.extract();
    }
    match warpverbs_gpu::owner(addr) {
        Ok(Some(warpverbs_gpu::GpuChoice::Cuda(ordinal))) => Ok(ordinal),
        Ok(_) => wrong(format!("{addr:#x} is no memory of a CUDA device")),
        Err(error) => wrong(format!("{addr:#x}: {error}")),
    }
}

/// `bytearray`, `mmap`, `array.array`, a writable `memoryview`: their buffer stays exported, so that they
/// cannot be resized meanwhile.
fn buffer(object: &Bound<'_, PyAny>) -> PyResult<Option<Found>> {
    let py = object.py();
    let view = match py.import("builtins")?.getattr("memoryview")?.call1((object,)) {
        Ok(view) => view,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(None),
        Err(error) => return Err(error),
    };
    if view.getattr("readonly")?.extract()? {
        let class = object.get_type().qualname()?;
        return wrong(format!("{class} is read-only, expected memory that peers may write to"));
    }
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        return wrong("the buffer is not contiguous");
    }
    let len: usize = view.getattr("nbytes")?.extract()?;
    if len == 0 {
        return wrong("0 bytes, expected at least 1");
    }
    let ctypes = py.import("ctypes")?;
    let class = ctypes.getattr("c_char")?.mul(len)?;
    let held = class.call_method1("from_buffer", (&view,))?;
    let addr: u64 = ctypes.call_method1("addressof", (&held,))?.extract()?;
    let keep = PyTuple::new(py, [held, view])?.into_any().unbind();
    Ok(Some(Found { addr, len, device: None, keep }))
}
