//! Expert parallelism: the tokens of a mixture-of-experts layer go to the ranks of their experts, and
//! results come back summed, by kernels on a symmetric heap.
//!
//! [`Ep::new`] makes the channels on all ranks together. [`Ep::dispatch`] and [`Ep::combine`], or their
//! halves, launch one kernel each; a kernel of one's own does the same by the calls of
//! `kernels/include/warpverbs/ep.h`. [`mod@reference`] computes what they do, bit for bit. Rows are bf16
//! or fp8 e4m3, results bf16.
#![deny(unsafe_code)]

mod buffers;
mod config;
mod ep;
mod error;
mod export;
mod members;
mod place;
pub mod reference;
mod regions;
mod regroup;
mod replay;
mod stage;

pub use buffers::{Packed, Tokens};
pub use config::{Combine, EpConfig, Layout, Payload, Scale, ScaleOrder, Ways};
pub use ep::Ep;
pub use error::{EpError, Failed};
#[doc(hidden)]
pub use export::plan_bytes;
pub use export::{Channel, Export, Start};
pub use members::Regrouped;
pub use regions::Regions;
pub use replay::Replay;
pub use stage::{Returned, Routed, Sent};

mod kernels {
    #![allow(unreachable_pub, unsafe_code)]
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// Dispatch and combine as kernels, for tools that compile them.
pub use kernels::ep::IMAGE;
