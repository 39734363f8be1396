//! A symmetric heap: the same offsets in every rank's memory, reached by kernels with loads and
//! stores where that is possible and by RDMA elsewhere.
//!
//! [`layout`] is what kernels read (`kernels/include/warpverbs/heap.h`), [`Export`] makes it.
#![deny(unsafe_code)]

mod export;
pub mod layout;

pub use export::{Export, ExportError, Rank, RdmaRoute};
