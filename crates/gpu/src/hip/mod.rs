//! AMD GPUs, through ROCm's libraries, which are loaded at run time: the calls of HIP for what every driver
//! has to offer. Devices are opened by [`open`](crate::open()) and [`open_with`](crate::open_with); the names here
//! are for diagnosis and for looking at compiled code. `docs/hip.md` says what has run where.

mod abi;
mod api;
mod attributes;
mod compile;
mod driver;
pub(crate) mod find;
mod memory;
mod metadata;
mod module;
#[cfg(test)]
mod tests;

pub use api::{HIP_ENV, hip_version};
pub use compile::{code, hiprtc, options};
pub(crate) use driver::open;
pub(crate) use memory::owner;
