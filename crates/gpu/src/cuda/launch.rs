//! Launches: each kernel on a stream of its own, polled, never synchronised with.

use super::context::{Context, Priority, Stream};
use super::deferred_free::{self, Running};
use super::lock;
use super::module::Function;
use super::occupancy::{Claim, footprint};
use crate::launch::{Dim, LaunchState, TOO_MUCH_SHARED};
use crate::{GpuError, Kernel, LaunchError};
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Idle streams of one context.
pub(crate) struct Streams {
    context: &'static Context,
    idle: Mutex<Vec<Stream>>,
    /// Blocks that fit on a multiprocessor, by function, threads of a block and its dynamic shared
    /// memory. Functions are never unloaded.
    fitting: Mutex<HashMap<(usize, u32, u32), u32>>,
}

impl Streams {
    pub(crate) fn new(context: &'static Context) -> Arc<Self> {
        Arc::new(Self { context, idle: Mutex::default(), fitting: Mutex::default() })
    }

    /// As [`fitting`], asking the driver once: every launch needs it.
    fn fitting(&self, function: Function, name: &'static str, dim: Dim) -> Result<u32, GpuError> {
        let key = (function.raw as usize, dim.threads(), dim.shared);
        if let Some(known) = lock(&self.fitting).get(&key) {
            return Ok(*known);
        }
        let found = fitting(self.context, function, name, dim)?;
        lock(&self.fitting).insert(key, found);
        Ok(found)
    }

    fn take(&self) -> Result<Stream, GpuError> {
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| Stream::new(self.context, Priority::Usual), Ok)
    }
}

/// A started kernel.
pub(crate) struct CudaLaunch {
    streams: Arc<Streams>,
    kernel: &'static str,
    dim: Dim,
    // None once the kernel has been seen to end.
    running: Option<Running>,
}

impl CudaLaunch {
    /// # Safety
    /// As [`Gpu::launch_unchecked`](crate::Gpu::launch_unchecked).
    pub(crate) unsafe fn start(
        streams: &Arc<Streams>,
        function: Function,
        kernel: &dyn Kernel,
        dim: Dim,
    ) -> Result<Self, GpuError> {
        let (context, entry, args) = (streams.context, kernel.entry(), kernel.args());
        check(entry.name, dim, function.max_threads, entry.params.len(), args.len())?;
        let stream = streams.take()?;
        let _entered = context.enter()?;
        let claim = claim(context, streams.fitting(function, entry.name, dim)?, dim)?;
        let mut params: Vec<_> = args.pointers().into_iter().map(|p| p.cast_mut()).collect();
        deferred_free::launching(|| {
            // SAFETY: a loaded function; as many pointers as it has parameters, each to as many
            // bytes as the parameter has (`Kernel`'s contract, checked when it was loaded), copied
            // by the call; the kernel touches what lies behind its pointers alone (the caller's
            // obligation), which stays valid until it has ended, since `Running` keeps `args`.
            unsafe {
                context.driver().cuLaunchKernel(
                    function.raw,
                    dim.grid.x,
                    dim.grid.y,
                    dim.grid.z,
                    dim.block.x,
                    dim.block.y,
                    dim.block.z,
                    dim.shared,
                    stream.raw(),
                    params.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            }
        })?;
        let running = Some(Running { stream, _args: args, _claim: claim });
        Ok(Self { streams: streams.clone(), kernel: entry.name, dim, running })
    }

    fn failure(&self, error: GpuError) -> LaunchError {
        match error {
            GpuError::Driver { code, name, .. } => {
                let (kernel, device) = (self.kernel, self.streams.context.label());
                GpuError::KernelFailed { kernel, device, code, name }.into()
            }
            other => other.into(),
        }
    }
}

/// More dynamic shared memory than 48 KiB has to be asked for, once for a function; less is no harm.
fn allow_shared(
    context: &'static Context,
    function: Function,
    kernel: &'static str,
    dim: Dim,
) -> Result<(), GpuError> {
    if dim.shared == 0 {
        return Ok(());
    }
    let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let driver = context.driver();
    // SAFETY: a loaded function; a context is current.
    unsafe { driver.cuFuncSetAttribute(function.raw, attribute, dim.shared as i32) }.map_err(|_| {
        let (field, value) = ("shared", dim.shared.into());
        GpuError::BadLaunch { kernel, field, value, expected: TOO_MUCH_SHARED }
    })
}

/// Takes room for a launch; waits for copies that it would keep from landing.
fn claim(context: &'static Context, fitting: u32, dim: Dim) -> Result<Claim, GpuError> {
    context.occupancy().claim(footprint(dim.blocks(), context.multiprocessors(), fitting))
}

/// Blocks of this shape that run at once on one multiprocessor. Launches of the shape may have its
/// shared memory from now on. A context is current.
pub(super) fn fitting(
    context: &'static Context,
    function: Function,
    kernel: &'static str,
    dim: Dim,
) -> Result<u32, GpuError> {
    allow_shared(context, function, kernel, dim)?;
    let (driver, threads) = (context.driver(), dim.threads() as i32);
    let (mut fitting, shared) = (0, dim.shared as usize);
    // SAFETY: the pointer is to a live local; a loaded function; a context is current.
    unsafe {
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut fitting,
            function.raw,
            threads,
            shared,
        )
    }?;
    Ok(fitting as u32)
}

fn check(
    kernel: &'static str,
    dim: Dim,
    max_threads: u32,
    params: usize,
    args: usize,
) -> Result<(), GpuError> {
    dim.check(kernel, max_threads)?;
    if params != args {
        let (field, expected) = ("arguments", "as many as the kernel has parameters");
        return Err(GpuError::BadLaunch { kernel, field, value: args as u64, expected });
    }
    Ok(())
}

impl LaunchState for CudaLaunch {
    fn poll(&mut self) -> Result<bool, LaunchError> {
        let Some(running) = &self.running else { return Ok(true) };
        match running.stream.is_idle() {
            Ok(false) => Ok(false),
            Ok(true) => {
                if let Some(Running { stream, .. }) = self.running.take() {
                    lock(&self.streams.idle).push(stream);
                }
                deferred_free::ended();
                Ok(true)
            }
            Err(error) => {
                // The kernel has stopped; its stream belongs to a lost context.
                self.running = None;
                deferred_free::ended();
                Err(self.failure(error))
            }
        }
    }

    fn kill(&mut self) -> String {
        format!(
            "{}: kernel {} of {} blocks of {} threads has not ended. A GPU kernel cannot be ended \
             from outside: it runs on until its own deadlines or the end of the process, and its \
             buffers are kept until then.",
            self.streams.context.label(),
            self.kernel,
            self.dim.grid,
            self.dim.block
        )
    }
}

impl Drop for CudaLaunch {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            deferred_free::abandon(running);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(dim: Dim, params: usize, args: usize) -> Option<(&'static str, u64)> {
        match check("k", dim, 256, params, args) {
            Ok(()) => None,
            Err(GpuError::BadLaunch { kernel: "k", field, value, .. }) => Some((field, value)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn wrong_shapes_and_arguments_are_named() {
        assert_eq!(refused(Dim::new(1, 256), 2, 2), None);
        assert_eq!(refused(Dim::new(1, 257), 2, 2), Some(("threads per block", 257)));
        assert_eq!(refused(Dim::new(1, 1), 3, 2), Some(("arguments", 2)));
    }
}
