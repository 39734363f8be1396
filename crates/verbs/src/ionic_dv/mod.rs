//! The own interface of AMD's libionic ("direct verbs"), loaded at run time: where the queues of a QP and the
//! doorbell registers lie. CQs and QPs are libibverbs', and lie in memory of the program, which libionic asks a
//! parent domain's allocator for.
//!
//! ```no_run
//! use warpverbs_mem::HostBuf;
//! use warpverbs_verbs::ionic_dv::{IonicDv, QpPlace, Registers};
//! use warpverbs_verbs::{Pd, Verbs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dv = IonicDv::of(&Verbs::load()?.device("ionic_0")?.open()?)?;
//! let pd = Pd::new(dv.context())?;
//! let registers = Registers::of_context(&dv)?;
//! let (sq, cqs) = (HostBuf::region(1 << 13)?, [HostBuf::region(1 << 13)?, HostBuf::region(1 << 12)?]);
//! let [sent, received] = cqs;
//! let cqs = [(sent, 8), (received, 7)];
//! let place = QpPlace { sq, log_sq: 7, rq: None, cqs, inline_bytes: 32 };
//! let (qp, cqns) = place.create(&dv, &pd, 0)?;
//! # let _ = (registers, qp, cqns);
//! # Ok(())
//! # }
//! ```
//!
//! rdma-core's libionic does not tell where queues lie in any version: the vendor's package does, and `warpverbs run
//! --device ionic` has the functions for programs on the software device. Their structures are in
//! [`warpverbs_ionic::dv`]; no hardware has confirmed them.

mod domain;
mod library;
mod queue;
mod registers;
pub mod sys;

pub use library::{IonicDv, LIBIONIC_ENV, PENSANDO};
pub use queue::QpPlace;
pub use registers::Registers;
