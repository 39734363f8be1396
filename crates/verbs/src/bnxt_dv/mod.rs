//! The own interface of Broadcom's libbnxt_re ("direct verbs"), loaded at run time: queues in memory of the
//! program, and doorbell pages.
//!
//! ```no_run
//! use warpverbs_mem::HostBuf;
//! use warpverbs_verbs::bnxt_dv::{BnxtDv, DbRegion, Umem};
//! use warpverbs_verbs::{Pd, Verbs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dv = BnxtDv::of(&Verbs::load()?.device("bnxt_re0")?.open()?)?;
//! let pd = Pd::new(dv.context())?;
//! let doorbells = DbRegion::of_context(&dv, &pd)?;
//! let (cq, cqn) = Umem::register(&dv, &HostBuf::region(4096)?)?.cq(7)?;
//! # let _ = (doorbells, cq, cqn);
//! # Ok(())
//! # }
//! ```
//!
//! rdma-core's libbnxt_re has none of these functions: the vendor's package does, and `warpverbs run --device
//! bnxt_re` gives them to programs on the software device. Their structures are in [`warpverbs_bnxt::dv`]; no
//! hardware has confirmed them.

mod doorbell;
mod library;
mod queue;
pub mod sys;
mod umem;

pub use doorbell::DbRegion;
pub use library::{BROADCOM, BnxtDv, LIBBNXT_RE_ENV};
pub use queue::QpPlace;
pub use umem::Umem;
