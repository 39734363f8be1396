//! libibverbs for Rust programs, loaded at run time: nothing is linked, nothing is needed to build.
//!
//! Two layers: [`sys`] has the declarations and the functions, and the types of this page own what
//! they stand for. [`call`] makes a `Result` of what a function returns.
//!
//! ```no_run
//! use warpverbs_mem::{Access, HostBuf};
//! use warpverbs_verbs::{Cq, Mr, Pd, Qp, QpAttrs, QpOptions, QpState, Registration, Verbs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let verbs = Verbs::load()?;
//! let context = verbs.device("rxe0")?.open()?;
//! let gid = context.choose_gid(1)?;
//! let pd = Pd::new(&context)?;
//! let cq = Cq::new(&context, 256)?;
//! let mr = Mr::register(&pd, &HostBuf::region(4096)?, Registration::new(Access::LOCAL_WRITE))?;
//! let qp = Qp::new(&pd, &QpOptions::new(&cq))?;
//! qp.modify(QpState::Init, &QpAttrs::init(1, Access::REMOTE_WRITE))?;
//! # let _ = (gid, mr);
//! # Ok(())
//! # }
//! ```
//!
//! [`mlx5dv`] is libmlx5's own interface: objects made by firmware commands. [`bnxt_dv`] is that of Broadcom's
//! libbnxt_re, [`ionic_dv`] that of AMD's libionic: queues in memory of the program.
//!
//! An object keeps alive the objects it was made from, so everything may be dropped in any
//! order. A memory region keeps its memory until the device has given it up. Addresses and keys in
//! work requests are plain numbers: the device checks them against what is registered.
//!
//! CQs that are polled field by field, QPs that are posted to in batches, memory that is not pinned
//! and alternate paths are in `warpverbs-verbs-extra`, which stands on this crate's `made_by`,
//! `modify_with` and `ptr`.

pub mod bnxt_dv;
pub mod call;
pub mod ionic_dv;
pub mod mlx5dv;
mod register;
mod safe;
pub mod sys;
#[cfg(feature = "test-utils")]
pub mod testing;
pub mod vendor;

pub use call::CallError;
pub use safe::*;
