//! Kernels loaded into a context, eagerly and for good.
//!
//! The driver loads a function on its first use unless configured otherwise, and loading, like growing
//! the memory for stacks, waits for kernels that run. Setting `CUDA_MODULE_LOADING=EAGER` before
//! `cuInit` would do, but a library cannot set a variable soundly (another thread may be reading
//! the environment) nor know that it is first to call `cuInit`. So every function is loaded by
//! name here (`cuFuncLoad`, or on drivers before CUDA 12.4 by asking for an attribute of its code),
//! and the stack limit is raised to what the hungriest of them needs.

use super::api::Api;
use super::compile::cubin;
use super::driver::Cuda;
use crate::driver::{
    Cache, Function, Functions, Kernels, Origin, Prepared, check_parameters, lock,
};
use crate::launch::{Dim, TOO_MUCH_SHARED};
use crate::{Entry, GpuError, Image};
use cudarc::driver::sys;
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use std::ffi::CString;
use std::sync::Mutex;

impl Kernels for Cuda {
    fn compile(&self, image: &Image, cache: &Cache) -> Result<(Vec<u8>, bool), GpuError> {
        let (cubin, origin) = cubin(image, &self.info.arch, cache)?;
        Ok((cubin, origin != Origin::Compiled))
    }

    fn load(&self, image: &'static Image, cubin: &[u8]) -> Result<Functions, GpuError> {
        let driver = self.api;
        let mut module = std::ptr::null_mut();
        // SAFETY: a whole cubin, which carries its own lengths and is copied; the pointer is to a live
        // local; a context is current.
        unsafe { driver.cuModuleLoadData(&mut module, cubin.as_ptr().cast()) }?;
        let (mut functions, mut stack) = (Functions::new(), 0);
        for entry in image.entries {
            let (function, local_bytes) = load_function(driver, module, entry)?;
            stack = stack.max(local_bytes);
            functions.insert(entry.name, function);
        }
        reserve_stack(driver, stack)?;
        Ok(functions)
    }

    fn fitting(&self, function: Function, kernel: &'static str, dim: Dim) -> Result<u32, GpuError> {
        let raw = function.raw as sys::CUfunction;
        if dim.shared != 0 {
            // More than 48 KiB has to be asked for, once for a function.
            let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let get = || {
                let mut value = 0;
                // SAFETY: a pointer to a live local; a loaded function; a context is current.
                unsafe { self.api.cuFuncGetAttribute(&mut value, most, raw) }.map(|()| value)
            };
            // SAFETY: a loaded function; a context is current.
            let set = |value| unsafe { self.api.cuFuncSetAttribute(raw, most, value) };
            raise(dim.shared as i32, get, set).map_err(|_| {
                let (field, value) = ("shared", dim.shared.into());
                GpuError::BadLaunch { kernel, field, value, expected: TOO_MUCH_SHARED }
            })?;
        }
        let (mut fitting, threads, shared) = (0, dim.threads() as i32, dim.shared as usize);
        // SAFETY: the pointer is to a live local; a loaded function; a context is current.
        unsafe {
            self.api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut fitting, raw, threads, shared)
        }?;
        Ok(fitting as u32)
    }

    unsafe fn launch(&self, kernel: &mut Prepared, stream: u64) -> Result<(), GpuError> {
        let Prepared { function, dim, params } = kernel;
        // SAFETY: the caller's function, stream and parameters.
        unsafe {
            self.api.cuLaunchKernel(
                function.raw as sys::CUfunction,
                dim.grid.x,
                dim.grid.y,
                dim.grid.z,
                dim.block.x,
                dim.block.y,
                dim.block.z,
                dim.shared,
                stream as sys::CUstream,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }
}

/// Brings a value of a function to at least `wanted`. Never below what it was: a launch of another shape may
/// need that, on another thread too.
fn raise<E>(
    wanted: i32,
    get: impl FnOnce() -> Result<i32, E>,
    set: impl FnOnce(i32) -> Result<(), E>,
) -> Result<(), E> {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _held = lock(&ONE_BY_ONE);
    if get()? < wanted { set(wanted) } else { Ok(()) }
}

/// A kernel, and the bytes of stack that a thread of it needs.
fn load_function(
    driver: &Api,
    module: sys::CUmodule,
    entry: &'static Entry,
) -> Result<(Function, usize), GpuError> {
    let name = CString::new(entry.name).map_err(|_| GpuError::BadEntry {
        kernel: entry.name,
        what: "a NUL byte in the name",
        declared: 1,
        compiled: 0,
    })?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: a live module, a NUL-terminated name, a pointer to a live local.
    unsafe { driver.cuModuleGetFunction(&mut raw, module, name.as_ptr()) }?;
    if driver.has_func_load() {
        // SAFETY: a function of a live module.
        unsafe { driver.cuFuncLoad(raw) }?;
    }
    let get = |attribute| {
        let mut value = 0;
        // SAFETY: a pointer to a live local; a function of a live module.
        unsafe { driver.cuFuncGetAttribute(&mut value, attribute, raw) }?;
        Ok::<_, GpuError>(value as u32)
    };
    let max_threads = get(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    let local_bytes = get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
    if let Some(compiled) = parameters(driver, raw, entry) {
        check_parameters(entry, &compiled)?;
    }
    Ok((Function { raw: raw as u64, max_threads }, local_bytes as usize))
}

/// Bytes of each parameter, as compiled; no more than one beyond the declared ones. Nothing if the driver does not
/// tell them.
fn parameters(driver: &Api, function: sys::CUfunction, entry: &Entry) -> Option<Vec<usize>> {
    let size = |index| {
        let (mut offset, mut len) = (0, 0);
        // SAFETY: pointers to live locals; an index past the last parameter is refused.
        unsafe { driver.cuFuncGetParamInfo(function, index, &mut offset, &mut len) }.ok()?;
        Some(len)
    };
    driver.has_param_info().then(|| (0..=entry.params.len()).map_while(size).collect())
}

/// A launch that needs more stack than was ever reserved waits for the whole device.
fn reserve_stack(driver: &Api, need: usize) -> Result<(), GpuError> {
    let stack = sys::CUlimit::CU_LIMIT_STACK_SIZE;
    let mut have = 0;
    // SAFETY: a pointer to a live local; a context is current.
    unsafe { driver.cuCtxGetLimit(&mut have, stack) }?;
    if have < need {
        // SAFETY: takes no pointer; a context is current.
        unsafe { driver.cuCtxSetLimit(stack, need) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    #[test]
    fn what_a_launch_of_more_shared_memory_needs_is_not_lowered() {
        let value = AtomicI32::new(48 << 10);
        let ask = |wanted| {
            let set = |more| {
                value.store(more, SeqCst);
                Ok(())
            };
            raise::<()>(wanted, || Ok(value.load(SeqCst)), set).unwrap();
        };
        for (wanted, after) in [(1, 48), (100, 100), (64, 100), (100, 100), (227, 227)] {
            ask(wanted << 10);
            assert_eq!(value.load(SeqCst), after << 10, "after {wanted} KiB");
        }
        value.store(0, SeqCst);
        std::thread::scope(|scope| {
            for thread in 1..=8 {
                let ask = &ask;
                scope.spawn(move || (1..=100).for_each(|kib| ask((thread * 100 - kib) << 10)));
            }
        });
        assert_eq!(value.load(SeqCst), 799 << 10);
        assert_eq!(raise(1, || Ok(0), |_| Err("too much")), Err("too much"));
    }
}
