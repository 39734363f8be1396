//! Places where kernels run, for programs that launch some, behind one trait: [`Gpu`].
//!
//! `cuda` and `hip`, features that are on by default, drive GPUs of NVIDIA and AMD through libraries loaded at run time; `simt` runs the
//! same kernel source, compiled for the host, with one coroutine per lane. Nothing above this crate asks which.

mod absent;
mod adopt;
mod arena;
mod args;
mod blocks;
mod bounds;
mod buffer;
mod choice;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
#[cfg(feature = "driver")]
pub mod driver;
mod error;
mod graph;
mod headers;
#[cfg(feature = "hip")]
pub mod hip;
mod image;
mod launch;
#[cfg(feature = "driver")]
mod library;
mod open;
mod pieces;
mod pointer;
pub mod simt;
mod stop;
pub mod views;

pub use adopt::{AdoptError, Adopter};
pub use arena::{Arena, ArenaError, Segment};
pub use args::{
    ArgBytes, DeviceEp, DeviceHeap, DeviceStatus, Element, KernelArg, Local, LocalView, Qp, Remote,
    RemoteView, Vec16,
};
pub use blocks::{BlockError, BlockRun, BlockSide, Blocks};
pub use bounds::{Bounds, Count};
pub use buffer::{Buffer, Keep, Mapping, Place};
pub use choice::{ChoiceError, Found, GpuChoice};
pub use device::{Gpu, GpuInfo, GpuKind};
pub use error::{GpuError, LaunchError};
pub use graph::{Graph, Step};
pub use headers::HEADERS_HASH;
pub use image::{Entry, Image, Kernel, KernelArgs, SafeKernel};
pub use launch::{Dim, Extent, Launch, LaunchState};
pub use open::{Opened, list, open, open_explained, open_for_rank};
#[cfg(feature = "driver")]
pub use open::{open_with, owner};
pub use pieces::{CopyError, CopyRing, RangeCopy};
pub use pointer::KernelPtr;
pub use stop::{Stop, Stops};
pub use warpverbs_layout::StopRecord;

/// Structures that host and kernels exchange as plain memory.
pub use warpverbs_layout as layout;

mod kernels {
    #![allow(unreachable_pub)]
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
