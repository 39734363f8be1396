//! `nixl._utils`: memory for tests and examples. Unlike NIXL's, a wrong address is an exception.

use pyo3::exceptions::{PyAssertionError, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use warpverbs_mem::Mapped;

/// As direct access to files wants it.
const ALIGNMENT: usize = 4096;

static ALLOCATED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn layout(size: usize) -> PyResult<Layout> {
    let layout = Layout::from_size_align(size.max(1), ALIGNMENT);
    layout.map_err(|wrong| PyValueError::new_err(format!("{size} bytes: {wrong}")))
}

/// Bytes of zeros at a multiple of 4096; returns the address.
#[pyfunction]
fn malloc_passthru(size: usize) -> PyResult<usize> {
    let layout = layout(size)?;
    // SAFETY: the layout is of one byte at least.
    let address = unsafe { alloc_zeroed(layout) } as usize;
    if address == 0 {
        return Err(PyMemoryError::new_err(format!("no memory for {size} bytes")));
    }
    ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).insert(address, layout.size());
    Ok(address)
}

/// Gives memory of `malloc_passthru` back.
#[pyfunction]
fn free_passthru(buf: usize) -> PyResult<()> {
    let found = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).remove(&buf);
    let Some(size) = found else {
        return Err(PyValueError::new_err(format!("{buf:#x} is no memory of malloc_passthru")));
    };
    let layout = layout(size)?;
    // SAFETY: allocated with this layout, and no longer in the table: it is given back once.
    unsafe { dealloc(buf as *mut u8, layout) };
    Ok(())
}

fn check(addr: usize, size: usize) -> PyResult<()> {
    let checked = Mapped::now()?.check(addr as u64, size as u64);
    checked.map_err(|error| PyValueError::new_err(format!("{size} bytes at {addr:#x}: {error}")))
}

/// Fills memory with 0xba.
#[pyfunction]
fn ba_buf(addr: usize, size: usize) -> PyResult<()> {
    check(addr, size)?;
    // SAFETY: the range was found to be writable just now; who else uses it, the caller says by calling.
    unsafe { std::ptr::write_bytes(addr as *mut u8, 0xba, size) };
    Ok(())
}

/// Compares two ranges; raises `AssertionError` where they differ.
#[pyfunction]
fn verify_transfer(addr1: usize, addr2: usize, size: usize) -> PyResult<()> {
    check(addr1, size)?;
    check(addr2, size)?;
    for offset in 0..size {
        // SAFETY: the first range was found to be readable just now.
        let one = unsafe { std::ptr::read_volatile((addr1 + offset) as *const u8) };
        // SAFETY: the second range was found to be readable just now.
        let other = unsafe { std::ptr::read_volatile((addr2 + offset) as *const u8) };
        if one != other {
            let why = format!("byte {offset} of {size} differs: {one:#04x} and {other:#04x}");
            return Err(PyAssertionError::new_err(why));
        }
    }
    Ok(())
}

/// Puts the functions into the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(malloc_passthru, module)?)?;
    module.add_function(wrap_pyfunction!(free_passthru, module)?)?;
    module.add_function(wrap_pyfunction!(ba_buf, module)?)?;
    module.add_function(wrap_pyfunction!(verify_transfer, module)?)
}
