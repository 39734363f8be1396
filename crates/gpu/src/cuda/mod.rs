//! NVIDIA GPUs, through a driver and a compiler that are loaded at run time: the calls of CUDA's driver
//! for what every driver has to offer. Devices are opened by [`open`](crate::open()) and
//! [`open_with`](crate::open_with); the names here are for diagnosis and for looking at compiled code.

mod api;
mod attributes;
mod compile;
mod driver;
pub(crate) mod find;
mod graph;
mod memory;
mod module;
mod nvrtc;

pub use crate::driver::{CompileFailure, Compiled, Compiler, Origin};
pub use api::driver_version;
pub use compile::{cubin, options};
pub(crate) use driver::open;
pub(crate) use memory::owner;
pub use nvrtc::{NVRTC_ENV, nvrtc};
