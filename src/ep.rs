//! For mixture-of-experts layers over several ranks: tokens go to the ranks of their experts, results come
//! back summed, by kernels on a symmetric heap.
//!
//! ```
//! use std::time::Duration;
//! use warpverbs::ep::{EpConfig, Ep, Tokens};
//! use warpverbs::gpu::{self, GpuChoice, Place};
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
//!
//! // Up to 16 tokens of 64 elements, each of which goes to 2 of 4 experts.
//! let mut ep = Ep::new(&mut heap, &mut world, &EpConfig::new(16, 64, 2, 4))?;
//! let buffer = |bytes| gpu.alloc(bytes, Place::Device);
//! let (rows, experts, weights) = (buffer(128)?, buffer(16)?, buffer(16)?);
//! let (packed, sums) = (ep.packed()?, buffer(128)?);
//! // One token, to experts 0 and 3, with weights 0.5 and 2.
//! gpu.write(&rows, 0, &[0x80, 0x3f].repeat(64))?; // bf16 1.0
//! gpu.write(&experts, 0, &[0i32, 3].map(i32::to_le_bytes).concat())?;
//! gpu.write(&weights, 0, &[0.5f32, 2.0].map(f32::to_le_bytes).concat())?;
//! let tokens = Tokens::new(1, &rows, &experts, &weights);
//! let routed = ep.dispatch(&heap, 0, &tokens, &packed)?;
//! // Here a kernel of one's own makes something of `packed.rows`.
//! ep.combine(&heap, routed, &packed.rows, &sums)?;
//!
//! let mut sum = [0; 2];
//! gpu.read(&sums, 0, &mut sum)?;
//! assert_eq!(sum, [0x20, 0x40]); // 2.5
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use warpverbs_ep::{
    Combine, Ep, EpConfig, EpError, Failed, Layout, Packed, Payload, Replay, Returned, Routed,
    Scale, ScaleOrder, Sent, Tokens, Ways,
};
