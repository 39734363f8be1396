//! For programs that launch kernels: devices, their memory, and what kernels take as arguments.
//!
//! ```
//! use warpverbs::gpu::{self, GpuChoice, Place};
//!
//! # fn main() -> warpverbs::Result<()> {
//! // `GpuChoice::Auto` takes a CUDA GPU if there is one; the host SIMT device is everywhere.
//! let gpu = gpu::open(GpuChoice::Simt)?;
//! let buffer = gpu.alloc(16, Place::Device)?;
//! gpu.write(&buffer, 0, b"as a kernel sees")?;
//! let mut found = [0; 16];
//! gpu.read(&buffer, 0, &mut found)?;
//! assert_eq!(&found, b"as a kernel sees");
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use warpverbs_gpu::{
    Buffer, ChoiceError, DeviceEp, DeviceHeap, DeviceStatus, Dim, Element, Extent, Found, Gpu,
    GpuChoice, GpuError, GpuInfo, GpuKind, Graph, Image, Kernel, KernelPtr, Launch, LaunchError,
    LaunchState, Local, LocalView, Opened, Place, Qp, Remote, RemoteView, SafeKernel, Step, list,
    open, open_explained, open_for_rank,
};

/// For tests of kernels on a CPU: the host SIMT device, whose runs a seed repeats.
///
/// ```
/// use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
///
/// # fn main() -> warpverbs::Result<()> {
/// let gpu = SimtDevice::new(SimtConfig::default())?;
/// # drop(gpu);
/// # Ok(())
/// # }
/// ```
pub mod simt {
    #[doc(inline)]
    pub use warpverbs_gpu::simt::{Collective, Counts, Mode, SimtConfig, SimtDevice, SimtFault};
}
