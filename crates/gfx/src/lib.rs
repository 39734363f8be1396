//! An emulator of AMD's gfx90a and gfx942 (MI200, MI300): it loads code objects as compilers write them and executes their machine
//! code on the host. A GPU's address is the address in this process, atomic operations are the host's, so a kernel
//! shares memory with other threads, a NIC in software among them. Every access is checked against the memory
//! that was registered, so what a broken or hostile kernel does is an error.
//!
//! Waves of 64 lanes take turns in an order drawn from a seed. An instruction has its effect on memory at once, unless
//! launches are to be [lazy](Config::lazy): then accesses complete late and out of order, and go through caches.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use warpverbs_gfx::{Caching, CodeObject, Config, Device, Launch, Rights, Stop};
//!
//! // extern "C" __global__ void fill(unsigned *to, unsigned value): each thread writes one word.
//! let object = CodeObject::parse(&std::fs::read("fill.co")?)?;
//! let device = Device::new(Config::default());
//! let module = device.load(&object)?;
//! let mut words = vec![0_u32; 256];
//! let to = words.as_mut_ptr();
//! // SAFETY: the vector lives longer, and is not looked at before the launch has returned.
//! let registration = unsafe { device.register(to.cast(), 4 * 256, Rights::ReadWrite, Caching::Cached)? };
//! let mut arguments = (to as u64).to_le_bytes().to_vec();
//! arguments.extend(7_u32.to_le_bytes());
//! device.launch(&module, &Launch {
//!     kernel: "fill",
//!     grid: [2, 1, 1],
//!     block: [128, 1, 1],
//!     dynamic_lds: 0,
//!     arguments: &arguments,
//!     deadline: Instant::now() + Duration::from_secs(10),
//!     stop: Stop::default(),
//! })?;
//! drop(registration);
//! assert!(words.iter().all(|&word| word == 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod code;
mod decode;
mod device;
mod error;
mod execute;
mod flat;
mod grid;
mod inst;
mod late;
mod launch;
mod lines;
mod memory;
mod module;
mod object;
mod table;
mod target;
mod text;
mod wave;

pub use decode::decode;
pub use device::Device;
pub use error::{
    Access, Cause, DecodeError, LaunchError, LoadError, MemoryFault, Place, RangeError,
};
pub use inst::Inst;
pub use launch::{Config, Launch, Stop};
pub use memory::{Caching, Registration, Rights};
pub use module::Module;
pub use object::{CodeObject, Kernel};
pub use table::opcodes;
pub use target::{Target, UnknownTarget};
pub use warpverbs_code_object::{Argument, Kernel as Metadata, MetadataError};
