//! For those who go below the promised names: the crates that the rest is built of, whole.
//!
//! Nothing here is promised; names may change with every version.
//!
//! ```
//! use warpverbs::raw::nic::Config;
//! use warpverbs::transport::Context;
//!
//! # fn main() -> Result<(), warpverbs::transport::TransportError> {
//! // A software NIC with room for few queue pairs.
//! let config = Config { max_qps: 4, ..Config::default() };
//! let nic = Context::builder().soft_config(config).build()?.open("soft")?;
//! assert_eq!(nic.info().provider, "soft");
//! # Ok(())
//! # }
//! ```

/// Agents.
#[cfg(feature = "agent")]
pub use warpverbs_agent as agent;
/// Device-memory TCP.
#[cfg(feature = "devmem")]
pub use warpverbs_devmem as devmem;
/// Expert parallelism.
#[cfg(feature = "ep")]
pub use warpverbs_ep as ep;
/// Devices that run kernels, and what generated launchers name.
pub use warpverbs_gpu as gpu;
/// Registered memory.
pub use warpverbs_mem as mem;
/// Queue formats.
pub use warpverbs_mlx5 as mlx5;
/// The software NIC.
pub use warpverbs_nic as nic;
/// Memory of other processes of this machine, pair by pair.
#[cfg(any(feature = "agent", feature = "shmem"))]
pub use warpverbs_peer as peer;
/// Where processes meet.
pub use warpverbs_rendezvous as rendezvous;
/// Symmetric heaps.
#[cfg(feature = "shmem")]
pub use warpverbs_shmem as shmem;
/// Messages, writes and reads over TCP sockets.
#[cfg(feature = "devmem")]
pub use warpverbs_tcp as tcp;
/// Contexts, devices and endpoints.
pub use warpverbs_transport as transport;
/// libibverbs, loaded at run time.
#[cfg(feature = "verbs")]
pub use warpverbs_verbs as verbs;
