//! Kernels loaded into a context, eagerly and for good.
//!
//! The driver loads a function on its first use unless told otherwise, and loading, like growing
//! the memory for stacks, waits for kernels that run. Setting `CUDA_MODULE_LOADING=EAGER` before
//! `cuInit` would do, but a library cannot set a variable soundly (another thread may be reading
//! the environment) nor know that it is first to call `cuInit`. So every function is loaded by
//! name here (`cuFuncLoad`, or on drivers before CUDA 12.4 by asking for an attribute of its code),
//! and the stack limit is raised to what the hungriest of them needs.
//!
//! Modules are never unloaded, since that waits too; an image is `'static`, so there are few.

use super::cache::Cache;
use super::compile::{Origin, cubin};
use super::context::Context;
use super::{deferred_free, lock};
use crate::{Entry, GpuError, Image};
use cudarc::driver::sys;
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Mutex;

/// One loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) raw: sys::CUfunction,
    pub(crate) max_threads: u32,
    local_bytes: u32,
}

// SAFETY: a function handle may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

type Functions = HashMap<&'static str, Function>;

/// The images of one context, by address.
#[derive(Default)]
pub(crate) struct Modules {
    loaded: Mutex<HashMap<usize, &'static Functions>>,
}

impl Modules {
    /// Every function of `image`, compiled and loaded if this is the first time.
    pub(crate) fn get(
        &self,
        context: &'static Context,
        image: &'static Image,
        cache: &Cache,
    ) -> Result<&'static Functions, GpuError> {
        let mut loaded = lock(&self.loaded);
        let key = std::ptr::from_ref(image) as usize;
        if let Some(functions) = loaded.get(&key) {
            return Ok(functions);
        }
        if deferred_free::is_busy() {
            tracing::warn!(image = image.name, "loading while a kernel runs; this may wait for it");
        }
        let (cubin, origin) = cubin(image, &context.arch()?, cache)?;
        match load_functions(context, image, &cubin) {
            Ok(functions) => {
                tracing::debug!(image = image.name, ?origin, device = context.label(), "loaded");
                let functions: &'static Functions = Box::leak(Box::new(functions));
                loaded.insert(key, functions);
                Ok(functions)
            }
            Err(error) if origin != Origin::Compiled => {
                // Nothing says how the cached file came to be; the compiler's word is better.
                tracing::warn!(%error, image = image.name, "cached kernel refused, compiling");
                let (cubin, _) = super::compile::cubin(image, &context.arch()?, &Cache::Off)?;
                let functions: &'static Functions =
                    Box::leak(Box::new(load_functions(context, image, &cubin)?));
                loaded.insert(key, functions);
                Ok(functions)
            }
            Err(error) => Err(error),
        }
    }
}

fn load_functions(
    context: &'static Context,
    image: &'static Image,
    cubin: &[u8],
) -> Result<Functions, GpuError> {
    let _entered = context.enter()?;
    let driver = context.driver();
    let mut module = std::ptr::null_mut();
    // SAFETY: a whole cubin, which carries its own lengths and is copied; the pointer is to a live
    // local; a context is current.
    unsafe { driver.cuModuleLoadData(&mut module, cubin.as_ptr().cast()) }?;
    let functions: Functions = image
        .entries
        .iter()
        .map(|entry| Ok((entry.name, load_function(context, module, entry)?)))
        .collect::<Result<_, GpuError>>()?;
    reserve_stack(context, &functions)?;
    Ok(functions)
}

fn load_function(
    context: &Context,
    module: sys::CUmodule,
    entry: &'static Entry,
) -> Result<Function, GpuError> {
    let driver = context.driver();
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
    let function = Function {
        raw,
        max_threads: get(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        local_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
    };
    check_parameters(context, raw, entry)?;
    Ok(function)
}

/// The declared parameters, which `cuLaunchKernel` will read from memory, are the compiled ones.
fn check_parameters(
    context: &Context,
    function: sys::CUfunction,
    entry: &'static Entry,
) -> Result<(), GpuError> {
    let driver = context.driver();
    if !driver.has_param_info() {
        return Ok(());
    }
    let info = |index| {
        let (mut offset, mut len) = (0, 0);
        // SAFETY: pointers to live locals; an index past the last parameter is refused.
        unsafe { driver.cuFuncGetParamInfo(function, index, &mut offset, &mut len) }.map(|()| len)
    };
    for (index, &declared) in entry.params.iter().enumerate() {
        let compiled = info(index).unwrap_or(0);
        if compiled != declared {
            return Err(GpuError::BadEntry {
                kernel: entry.name,
                what: "bytes of a parameter",
                declared: declared as u64,
                compiled: compiled as u64,
            });
        }
    }
    let declared = entry.params.len();
    if info(declared).is_ok() {
        return Err(GpuError::BadEntry {
            kernel: entry.name,
            what: "parameters",
            declared: declared as u64,
            compiled: declared as u64 + 1,
        });
    }
    Ok(())
}

/// A launch that needs more stack than was ever reserved waits for the whole device.
fn reserve_stack(context: &Context, functions: &Functions) -> Result<(), GpuError> {
    let driver = context.driver();
    let need = functions.values().map(|function| function.local_bytes as usize).max().unwrap_or(0);
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
