//! Kernels that wait for other ranks, and ranks that are lost while they do.

use crate::{Heap, ShmemError};
use std::time::{Duration, Instant};
use warpverbs_gpu::{DeviceStatus, Dim, KernelPtr, SafeKernel};
use warpverbs_rendezvous::World;
use warpverbs_transport::KernelStatus;

/// How often it is asked, while a kernel runs, whether all ranks are there.
const LOOK: Duration = Duration::from_millis(100);
/// How long a rank that does not answer may take to be known as lost.
const VERDICT: Duration = Duration::from_secs(1);
/// A kernel that runs for longer leaves the processor to others; it may be on the host.
const SHORT: Duration = Duration::from_millis(1);
/// Between two looks at such a kernel.
const NAP: Duration = Duration::from_micros(50);

impl Heap {
    /// Runs a kernel that works on this heap to its end, and gives how long that took. All its blocks
    /// run at once, because those of other ranks may wait for any of them. `kernel` gets the heap,
    /// and where to leave its status.
    ///
    /// A rank that is lost meanwhile [aborts](Heap::abort) the heap, which ends the kernel's waits.
    ///
    /// # Errors
    /// The rank that is lost, or else the kernel's bad status and this heap's health; the device
    /// refuses, or the kernel is not done by `deadline`.
    pub fn run<K: SafeKernel>(
        &mut self,
        world: &mut World,
        dim: Dim,
        deadline: Duration,
        kernel: impl FnOnce(KernelPtr<warpverbs_gpu::DeviceHeap>, KernelPtr<DeviceStatus>) -> K,
    ) -> Result<Duration, ShmemError> {
        let status = KernelStatus::new(&self.parts.gpu)?;
        let kernel = kernel(self.device(), status.pointer());
        let (begun, mut looked) = (Instant::now(), Instant::now());
        let mut launch = self.parts.gpu.launch_resident(&kernel, dim, deadline)?;
        while !launch.is_done()? {
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                if let Err(lost) = world.check() {
                    self.abort()?;
                    return Err(lost.into());
                }
            }
            match begun.elapsed() < SHORT {
                true => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
        }
        let took = begun.elapsed();
        let Err(cause) = status.check(&[]) else { return Ok(took) };
        // A rank that was killed is first noticed by its silence.
        match world.loss_within(VERDICT) {
            Some(lost) => Err(lost.into()),
            None => {
                let health = self.health()?.to_string();
                Err(ShmemError::Kernel { health, cause: Box::new(cause) })
            }
        }
    }
}
