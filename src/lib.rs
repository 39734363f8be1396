//! GPU kernels post RDMA work themselves, through queues in the format of a real NIC; the NIC may be
//! software, and the GPU may be the host.
//!
//! # Tour
//!
//! [`gpu::open`] gives a place where kernels run. A [`Context`] knows the NICs, and a [`Device`] is
//! one of them, opened: it registers memory and makes endpoints. Endpoints of two processes are
//! connected by exchanging their handles; [`Device::pair`] makes two that are connected already.
//! [`Endpoint::device_qp`] is what a kernel needs to post by itself;
//! [`Endpoint::host`] posts from the CPU through the same queues. The kernels of this package, with
//! a launcher for each, are in [`kernels`]; your own are built in the same way by
//! `warpverbs-kernel-build`. [`World`] is where processes meet and exchange handles.
//!
//! ```
//! use std::time::Duration;
//! use warpverbs::gpu::{self, Dim, GpuChoice, Place};
//! use warpverbs::kernels::loopback::Write;
//! use warpverbs::{Access, Context, EndpointConfig, KernelStatus};
//!
//! # fn main() -> warpverbs::Result<()> {
//! // `auto` takes the best there is; `simt` runs on any machine.
//! let gpu = gpu::open(GpuChoice::Simt)?;
//! let nic = Context::new()?.open("soft")?;
//!
//! let src = nic.register(gpu.alloc(4096, Place::Device)?, Access::empty())?;
//! let dst = gpu.alloc(4096, Place::Device)?;
//! let dst = nic.register(dst, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! gpu.write(src.buffer(), 0, &[42; 4096])?;
//!
//! let (a, _b) = nic.pair(&EndpointConfig::for_gpu(&gpu))?;
//!
//! // 64 threads, each of which writes 64 bytes to the peer and waits for its completion.
//! let status = KernelStatus::new(&gpu)?;
//! let kernel = Write {
//!     qp: a.device_qp(),
//!     from: src.local().into(),
//!     to: dst.remote().into(),
//!     bytes: 64,
//!     status: status.pointer(),
//! };
//! gpu.launch(&kernel, Dim::new(1, 64), Duration::from_secs(10))?.wait()?;
//! status.check(&[&a])?;
//!
//! assert_eq!(dst.to_vec()?, [42; 4096]);
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - Every wait has a deadline, on the host and in a kernel; an expired wait says what it waited for.
//! - Nothing is freed under a NIC or a kernel: memory that they may access lives until they are done.
//! - The first error of an endpoint stays, and [`Endpoint::health`] explains it.
//!
//! # Features
//!
//! Nothing is linked for any of them. These are on by default:
//!
//! - `cuda`: kernels on NVIDIA GPUs. Without it they run on the host SIMT device.
//! - `verbs`: RDMA devices by libibverbs.
//! - `udp`: a link of the software NIC to other hosts. Without it the software NIC is loopback.
//!
//! These are not, and `full` is all of them:
//!
//! - `agent`: lists of blocks between named agents, in the module `agent`.
//! - `devmem`: payload from the network into GPU memory over plain TCP, in the modules `tcp` and
//!   `devmem`.
//! - `shmem`: memory at the same offsets on every rank, in the module `shmem`.
//! - `ep`: dispatch and combine of mixture-of-experts layers, in the module `ep`; with it `shmem`.
//!
//! # What is promised
//!
//! | module | for whom |
//! |---|---|
//! | [`transport`] | programs that own their queues |
//! | [`gpu`] | programs that launch kernels |
//! | [`rendezvous`] | jobs of several processes |
//! | `agent` | services whose peers come and go |
//! | `shmem` | jobs whose ranks share memory |
//! | `ep` | jobs whose layers have experts on several ranks |
//! | `tcp` | machines without RDMA |
//! | `devmem` | receivers whose network card writes to device memory |
//! | [`kernels`] | whoever runs or copies the examples |
//! | [`raw`] | those who go below the rest: promises nothing |
#![deny(unsafe_code)]

// Generated code names this crate.
extern crate self as warpverbs;

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "devmem")]
pub mod devmem;
#[cfg(feature = "ep")]
pub mod ep;
mod error;
pub mod gpu;
pub mod raw;
pub mod rendezvous;
#[cfg(feature = "shmem")]
pub mod shmem;
#[cfg(feature = "devmem")]
pub mod tcp;
pub mod transport;

pub use error::{Error, Result};
#[doc(inline)]
pub use warpverbs_rendezvous::World;
#[doc(inline)]
pub use warpverbs_transport::{
    Access, Context, Device, Endpoint, EndpointConfig, KernelStatus, MemoryRegion,
};

/// The kernels of the examples that this package's features cover: one module per file of
/// `kernels/src`, one launcher per kernel.
#[allow(unsafe_code)]
pub mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// A launch that could corrupt memory needs `unsafe`, and arguments of another type do not compile.
/// This is good:
///
/// ```no_run
/// use std::time::Duration;
/// use warpverbs::gpu::{Dim, Gpu, GpuError, Kernel, KernelPtr, Launch, SafeKernel};
/// use warpverbs::kernels::loopback::Check;
/// fn safe(gpu: &dyn Gpu, kernel: &dyn SafeKernel) -> Result<Launch, GpuError> {
///     gpu.launch(kernel, Dim::new(1, 1), Duration::from_secs(1))
/// }
/// fn raw(gpu: &dyn Gpu, kernel: &dyn Kernel) -> Result<Launch, GpuError> {
///     // SAFETY: for this example, that of the caller.
///     unsafe { gpu.launch_unchecked(kernel, Dim::new(1, 1), Duration::from_secs(1)) }
/// }
/// fn typed(data: KernelPtr<u8>, wrong: KernelPtr<u64>) -> Check {
///     Check { data, bytes: 1, seed: 1, wrong }
/// }
/// ```
///
/// A kernel of which nothing was promised has no safe launch:
///
/// ```compile_fail,E0308
/// use std::time::Duration;
/// use warpverbs::gpu::{Dim, Gpu, GpuError, Kernel, Launch};
/// fn raw(gpu: &dyn Gpu, kernel: &dyn Kernel) -> Result<Launch, GpuError> {
///     gpu.launch(kernel, Dim::new(1, 1), Duration::from_secs(1))
/// }
/// ```
///
/// The other launch is unsafe:
///
/// ```compile_fail,E0133
/// use std::time::Duration;
/// use warpverbs::gpu::{Dim, Gpu, GpuError, Kernel, Launch};
/// fn raw(gpu: &dyn Gpu, kernel: &dyn Kernel) -> Result<Launch, GpuError> {
///     gpu.launch_unchecked(kernel, Dim::new(1, 1), Duration::from_secs(1))
/// }
/// ```
///
/// So is what makes a buffer of any address:
///
/// ```compile_fail,E0133
/// use warpverbs::gpu::Buffer;
/// fn forge(buffer: &Buffer) -> Buffer {
///     Buffer::new(buffer.region().clone(), 42, None)
/// }
/// ```
///
/// Pointers to different types are not to be swapped:
///
/// ```compile_fail,E0308
/// use warpverbs::gpu::KernelPtr;
/// use warpverbs::kernels::loopback::Check;
/// fn typed(data: KernelPtr<u8>, wrong: KernelPtr<u32>) -> Check {
///     Check { data, bytes: 1, seed: 1, wrong }
/// }
/// ```
///
/// Plain memory is no queue pair:
///
/// ```compile_fail,E0277
/// use warpverbs::gpu::{Buffer, KernelPtr, Qp};
/// fn forge(buffer: &Buffer) -> KernelPtr<Qp> {
///     KernelPtr::<Qp>::from(buffer)
/// }
/// ```
#[cfg(doctest)]
struct WhatDoesNotCompile;

/// The code in the pages: it compiles, and runs where nothing else is needed. That of `docs/device-api.md`
/// is a crate of its own, which `cargo xtask package` builds.
#[cfg(all(doctest, feature = "agent", feature = "devmem", feature = "shmem"))]
mod pages {
    macro_rules! pages {
        ($($name:ident $page:literal)*) => {
            $(#[doc = include_str!(concat!("../", $page))] struct $name;)*
        };
    }
    pages! {
        Readme "README.md"
        Agent "docs/agent.md"
        DeviceGuide "docs/device-guide.md"
        Devmem "docs/devmem.md"
        Rendezvous "docs/rendezvous.md"
        Ep "docs/ep.md"
        Shmem "docs/shmem.md"
        Tcp "docs/tcp.md"
        Transport "docs/transport.md"
    }
}
