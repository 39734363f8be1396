//! DLPack (<https://dmlc.github.io/dlpack>), the exchange format of tensors: what its unversioned capsule
//! says of the memory.

use super::found::{Found, is_dense, wrong};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::c_void;
use std::slice;

/// `DLTensor`, the first member of `DLManagedTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `kDLCPU`, `kDLCUDA`, `kDLCUDAHost` and `kDLCUDAManaged`.
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

/// The memory of an object with `__dlpack__`, if it has one. The capsule is kept, and not consumed: its own
/// destructor gives the tensor back.
pub(crate) fn memory_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Found>> {
    let py = object.py();
    let Some(export) = object.getattr_opt(intern!(py, "__dlpack__"))? else { return Ok(None) };
    let exported = export.call0()?;
    let capsule = exported.cast::<PyCapsule>().map_err(PyErr::from)?;
    let pointer = capsule.pointer_checked(Some(c"dltensor"))?;
    // SAFETY: a capsule of this name holds a DLManagedTensor, which begins with its DLTensor, and keeps it
    // as long as the capsule is not consumed.
    let tensor: &Tensor = unsafe { pointer.cast().as_ref() };
    let device = match tensor.device_type {
        CPU | CUDA_HOST => None,
        CUDA | CUDA_MANAGED => Some(tensor.device_id.cast_unsigned()),
        other => {
            return wrong(format!("DLPack: memory of device type {other}, expected CPU or CUDA"));
        }
    };
    let item = (usize::from(tensor.bits) * usize::from(tensor.lanes)).div_ceil(8);
    let ndim = usize::try_from(tensor.ndim).unwrap_or(usize::MAX);
    if ndim > 64 || (ndim > 0 && tensor.shape.is_null()) {
        return wrong(format!("DLPack: {} dimensions", tensor.ndim));
    }
    let shape = numbers(tensor.shape, ndim)?;
    let count = shape.iter().try_fold(1usize, |all, one| all.checked_mul(*one));
    let len = count.and_then(|count| count.checked_mul(item));
    let Some(len) = len else { return wrong(format!("DLPack: {shape:?} is too large")) };
    if !tensor.strides.is_null() && len > 0 {
        let strides: Vec<isize> =
            numbers(tensor.strides, ndim)?.iter().map(|one| one.cast_signed()).collect();
        if !is_dense(&shape, &strides, 1) {
            return wrong(format!("DLPack: not contiguous: shape {shape:?}, strides {strides:?}"));
        }
    }
    let addr = (tensor.data as u64).wrapping_add(tensor.byte_offset);
    Ok(Some(Found { addr, len, device, keep: exported.clone().unbind() }))
}

/// `count` numbers that are not negative.
fn numbers(at: *const i64, count: usize) -> PyResult<Vec<usize>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: DLPack's shape and strides have as many numbers as the tensor has dimensions, and live as
    // long as it.
    let all = unsafe { slice::from_raw_parts(at, count) };
    let number = |one: &i64| usize::try_from(*one);
    let each: Result<Vec<_>, _> = all.iter().map(number).collect();
    each.or_else(|_| wrong(format!("DLPack: {all:?} has a negative number")))
}
