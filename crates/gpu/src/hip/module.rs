//! Kernels loaded on a device, for good.

use super::api::Handle;
use super::compile::code;
use super::driver::Hip;
use super::{abi, metadata};
use crate::driver::{Cache, Function, Functions, Kernels, Origin, Prepared};
use crate::launch::{Dim, TOO_MUCH_SHARED};
use crate::{GpuError, Image};
use std::ffi::CString;

impl Kernels for Hip {
    fn compile(&self, image: &Image, cache: &Cache) -> Result<(Vec<u8>, bool), GpuError> {
        let (code, origin) = code(image, &self.info.arch, self.clock, cache)?;
        Ok((code, origin != Origin::Compiled))
    }

    fn load(&self, image: &'static Image, code: &[u8]) -> Result<Functions, GpuError> {
        metadata::check(image, code)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: a whole code object, which carries its own lengths and is copied; the pointer is to a
        // live local.
        unsafe { self.api.hipModuleLoadData(&mut module, code.as_ptr().cast()) }?;
        let function = |name: &'static str| {
            // A name of the metadata, which has been found there.
            let symbol = CString::new(name).unwrap_or_default();
            let (mut raw, mut most): (Handle, _) = (std::ptr::null_mut(), 0);
            // SAFETY: a live module, a NUL-terminated name, a pointer to a live local.
            unsafe { self.api.hipModuleGetFunction(&mut raw, module, symbol.as_ptr()) }?;
            let attribute = abi::FUNCTION_MAX_THREADS;
            // SAFETY: a pointer to a live local; a function of a live module.
            unsafe { self.api.hipFuncGetAttribute(&mut most, attribute, raw) }?;
            Ok((name, Function { raw: raw as u64, max_threads: most as u32 }))
        };
        image.entries.iter().map(|entry| function(entry.name)).collect()
    }

    fn fitting(&self, function: Function, kernel: &'static str, dim: Dim) -> Result<u32, GpuError> {
        if dim.shared > self.shared {
            let (field, value) = ("shared", dim.shared.into());
            return Err(GpuError::BadLaunch { kernel, field, value, expected: TOO_MUCH_SHARED });
        }
        let (mut fitting, threads, shared) = (0, dim.threads() as i32, dim.shared as usize);
        let raw = function.raw as Handle;
        // SAFETY: the pointer is to a live local; a loaded function.
        unsafe {
            self.api.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut fitting,
                raw,
                threads,
                shared,
            )
        }?;
        Ok(fitting as u32)
    }

    unsafe fn launch(&self, kernel: &mut Prepared, stream: u64) -> Result<(), GpuError> {
        let Prepared { function, dim, params } = kernel;
        // SAFETY: the caller's function, stream and parameters.
        unsafe {
            self.api.hipModuleLaunchKernel(
                function.raw as Handle,
                dim.grid.x,
                dim.grid.y,
                dim.grid.z,
                dim.block.x,
                dim.block.y,
                dim.block.z,
                dim.shared,
                stream as Handle,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }
}
