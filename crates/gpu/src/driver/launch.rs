//! Launches: each kernel on a stream of its own, polled, never synchronised with.

use super::calls::{Function, Prepared, Priority};
use super::context::Context;
use super::lock::lock;
use super::occupancy::{Claim, footprint};
use super::owned::{abandon, ended, launching};
use super::stream::Stream;
use crate::launch::{Dim, LaunchState};
use crate::{Entry, GpuError, KernelArgs, LaunchError};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Idle streams of one context.
pub(crate) struct Streams {
    context: &'static Context,
    idle: Mutex<Vec<Stream>>,
    /// Blocks that fit on a multiprocessor, by function, threads of a block and its dynamic shared
    /// memory. Functions are never unloaded.
    fitting: Mutex<HashMap<(u64, u32, u32), u32>>,
}

impl Streams {
    /// The device's context.
    pub(crate) fn context(&self) -> &'static Context {
        self.context
    }

    pub(crate) fn new(context: &'static Context) -> Arc<Self> {
        Arc::new(Self { context, idle: Mutex::default(), fitting: Mutex::default() })
    }

    /// As [`Kernels::fitting`](super::calls::Kernels::fitting), asking the driver once: every launch needs it.
    pub(crate) fn fitting(
        &self,
        function: Function,
        name: &'static str,
        dim: Dim,
    ) -> Result<u32, GpuError> {
        let key = (function.raw, dim.threads(), dim.shared);
        if let Some(known) = lock(&self.fitting).get(&key) {
            return Ok(*known);
        }
        let found = self.context.driver().fitting(function, name, dim)?;
        lock(&self.fitting).insert(key, found);
        Ok(found)
    }

    /// A kernel whose shape and arguments have been checked, and the part of the device that it takes. Its parameters
    /// are those of `args`, which has to stay until they are copied. The context is current.
    pub(crate) fn prepare(
        &self,
        function: Function,
        entry: &Entry,
        dim: Dim,
        args: &KernelArgs,
    ) -> Result<(Prepared, u64), GpuError> {
        check(entry.name, dim, function.max_threads, entry.params.len(), args.len())?;
        let fitting = self.fitting(function, entry.name, dim)?;
        let footprint = footprint(dim.blocks(), self.context.driver().info().sm_count, fitting);
        let params = args.pointers().into_iter().map(|p| p.cast_mut()).collect();
        Ok((Prepared { function, dim, params }, footprint))
    }

    fn take(&self) -> Result<Stream, GpuError> {
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| Stream::new(self.context.driver(), Priority::Usual), Ok)
    }
}

/// A kernel on its stream, with what must outlive it.
struct Running {
    stream: Stream,
    /// The kernel's parameters, with what they refer to; of all kernels of a graph.
    _held: Box<dyn Any + Send>,
    /// Keeps copies inside the device off its kernel slots.
    _claim: Claim,
}

impl Running {
    /// Whether the kernel has ended, well or badly.
    fn is_over(&self) -> bool {
        !matches!(self.stream.is_idle(), Ok(false))
    }
}

/// A started kernel.
pub(crate) struct Started {
    streams: Arc<Streams>,
    kernel: &'static str,
    dim: Dim,
    // None once the kernel has been seen to end.
    running: Option<Running>,
}

impl Started {
    /// # Safety
    /// As [`Gpu::launch_unchecked`](crate::Gpu::launch_unchecked).
    pub(crate) unsafe fn start(
        streams: &Arc<Streams>,
        function: Function,
        (entry, args): (&'static Entry, KernelArgs),
        dim: Dim,
        deadline: Duration,
    ) -> Result<Self, GpuError> {
        let driver = streams.context.driver();
        let _entered = driver.entered()?;
        let (mut prepared, footprint) = streams.prepare(function, entry, dim, &args)?;
        Self::enqueue(streams, (entry.name, dim), footprint, deadline, args, |stream| {
            // SAFETY: a loaded function; as many pointers as it has parameters, each to as many
            // bytes as the parameter has (`Kernel`'s contract, checked when it was loaded), copied
            // by the call; the kernel touches what lies behind its pointers alone (the caller's
            // obligation), which stays valid until it has ended, since `Running` keeps `args`.
            unsafe { driver.launch(&mut prepared, stream) }
        })
    }

    /// Starts work on a stream of its own by `start`. `held` is kept until it has ended. The context is
    /// current.
    pub(crate) fn enqueue(
        streams: &Arc<Streams>,
        (kernel, dim): (&'static str, Dim),
        footprint: u64,
        deadline: Duration,
        held: impl Any + Send,
        start: impl FnOnce(u64) -> Result<(), GpuError>,
    ) -> Result<Self, GpuError> {
        let stream = streams.take()?;
        // Waits for copies that the launch would keep from landing.
        let claim = streams.context.occupancy().claim(footprint, deadline)?;
        launching(|| start(stream.raw()))?;
        let running = Some(Running { stream, _held: Box::new(held), _claim: claim });
        Ok(Self { streams: streams.clone(), kernel, dim, running })
    }

    fn failure(&self, error: GpuError) -> LaunchError {
        match error {
            GpuError::Driver { code, name, .. } => {
                let (kernel, device) = (self.kernel, self.streams.context.driver().label());
                GpuError::KernelFailed { kernel, device, code, name }.into()
            }
            other => other.into(),
        }
    }
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

impl LaunchState for Started {
    fn poll(&mut self) -> Result<bool, LaunchError> {
        let Some(running) = &self.running else { return Ok(true) };
        match running.stream.is_idle() {
            Ok(false) => Ok(false),
            Ok(true) => {
                if let Some(Running { stream, .. }) = self.running.take() {
                    lock(&self.streams.idle).push(stream);
                }
                ended();
                Ok(true)
            }
            Err(error) => {
                // The kernel has stopped; its stream belongs to a lost context.
                self.running = None;
                ended();
                Err(self.failure(error))
            }
        }
    }

    fn kill(&mut self) -> String {
        format!(
            "{}: kernel {} of {} blocks of {} threads has not ended. A GPU kernel cannot be ended \
             from outside: it runs on until its own deadlines or the end of the process, and its \
             buffers are kept until then.",
            self.streams.context.driver().label(),
            self.kernel,
            self.dim.grid,
            self.dim.block
        )
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // By a method, so that the closure takes all of it: its stream alone would leave the kernel
            // without its memory.
            abandon(Box::new(move || running.is_over()));
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
