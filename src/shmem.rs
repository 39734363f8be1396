//! For jobs whose ranks share memory: the same offsets on every rank, which kernels of all ranks reach.
//!
//! ```
//! use std::time::Duration;
//! use warpverbs::gpu::{self, GpuChoice};
//! use warpverbs::rendezvous::{Host, Limits, Server, World, WorldConfig};
//! use warpverbs::shmem::{Heap, HeapConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = Server::bind(([127, 0, 0, 1], 0).into(), Limits::default())?;
//! # let port = server.local_addr().port();
//! let gpu = gpu::open(GpuChoice::Simt)?;
//! // A world of this process alone, which meets at a store that is there already.
//! let config = WorldConfig::at(0, 1, "127.0.0.1", port).host(Host::Elsewhere);
//! let mut world = World::join(&config.timeout(Duration::from_secs(10)))?;
//! let mut heap = Heap::create(&mut world, &gpu, None, &HeapConfig::new(1 << 20))?;
//! let place = heap.alloc::<u64>(64)?;
//! // A kernel takes `heap.device()` and `place.offset()`; `wv::put` of device code does the rest.
//! heap.write(&place, &[1; 512])?;
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use warpverbs_shmem::layout::{TEAM_BLOCK_BYTES, mail_block_bytes};
#[doc(inline)]
pub use warpverbs_shmem::{
    AllocError, Decision, Heap, HeapConfig, HeapFaultReport, HeapHealth, HeapReport, PeerReport,
    Reason, Route, RoutePolicy, ShmemError, Signal, Sym, Team,
};
