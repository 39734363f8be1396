//! GPU kernels post RDMA work themselves, through queues in the format of a real NIC.
#![deny(unsafe_code)]

/// Devices that run kernels.
pub use warpverbs_gpu as gpu;
/// Registered memory.
pub use warpverbs_mem as mem;
/// Queue formats.
pub use warpverbs_mlx5 as mlx5;
/// The software NIC.
pub use warpverbs_nic as nic;
/// Context, Device, Endpoint, MemoryRegion.
pub use warpverbs_transport as transport;

/// Every kernel of this package: one module per file of `kernels/src`, one launcher per kernel.
#[allow(unsafe_code)]
pub mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
