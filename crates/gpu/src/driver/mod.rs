//! GPUs behind a vendor's driver: all of a device that does not depend on the vendor, written once over
//! the calls of the trait `Driver`. A vendor's room implements those, finds its devices and opens
//! them: today those of CUDA and HIP. [`open_with`](crate::open_with) chooses among them.
//!
//! Kernels run for long and wait for the NIC, whose copies this crate makes. So nothing here may
//! wait for a kernel, except where it says so:
//!
//! | call | driver calls that may wait for running kernels | what is done about it |
//! |---|---|---|
//! | [`Launch`](crate::Launch) polls, copies between host and device, [`Gpu::read`](crate::Gpu::read), [`Gpu::write`](crate::Gpu::write) | none | streams of their own, never the default stream; DMA engines, and `cuMemset` only where it has room |
//! | copies inside a device or between two | all but those by way of host memory | [by room](CopyPolicy::ByRoom) |
//! | [`Gpu::launch`](crate::Gpu::launch) | none | a kernel that leaves copies no room starts when those already under way have landed |
//! | dropping any buffer or segment | `cuMemFree`, `cuMemHostUnregister`, `cuIpcCloseMemHandle` (`cuMemUnmap` was not seen to) | put off until no launch runs |
//! | [`Gpu::alloc`](crate::Gpu::alloc), [`Gpu::map`](crate::Gpu::map), [`Gpu::enable_peer`](crate::Gpu::enable_peer), opening a device | `cuCtxEnablePeerAccess`; `cuMemAlloc`, `cuMemHostRegister` and all that [`Gpu::arena`](crate::Gpu::arena) leads to were not seen to | small device memory is divided here; else call before launching |
//! | [`Gpu::load`](crate::Gpu::load) | `cuModuleLoadData`, `cuFuncLoad`, `cuCtxSetLimit` | call before launching |
//!
//! At most eight kernels that wait for one another or for copies should run at once on a device
//! unless `CUDA_DEVICE_MAX_CONNECTIONS` (1 to 32, default 8) says more: beyond it, streams share
//! hardware queues, and a kernel may stand behind one that waits for it.
//!
//! `docs/gpu.md` has what was measured on which device.

mod arena;
mod cache;
mod calls;
pub(crate) mod compile;
mod context;
mod copy;
mod copy_policy;
mod counted_stream;
mod device;
#[cfg(test)]
mod fake;
pub(crate) mod find;
mod graph;
mod heap;
mod launch;
mod lock;
mod memory;
mod modules;
mod occupancy;
mod options;
mod owned;
mod pinned;
mod ranges;
pub(crate) mod rtc;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;

pub use cache::{CACHE_ENV, Cache};
pub use compile::Origin;
pub use copy::{CopyCounts, CopyEngine};
pub use copy_policy::{COPY_ENV, CopyPath, CopyPolicy};
pub use device::DriverGpu;
pub use options::OpenOptions;
pub use rtc::{CompileFailure, Compiled, Compiler};

#[cfg(all(test, feature = "cuda"))]
pub(crate) use cache::SourceKey;
pub(crate) use calls::{
    Copy, Driver, Function, Functions, Kernels, Memory, Prepared, Priority, Resource,
};
pub(crate) use context::Context;
pub(crate) use find::Vendor;
#[cfg(feature = "hip")]
pub(crate) use find::none;
#[cfg(feature = "cuda")]
pub(crate) use lock::lock;
pub(crate) use modules::check_parameters;
