//! Functions of vendors' own libraries that rdma-core's do not have, for queues that kernels post to.
//!
//! `call` has what they share and replaces what the device is told, `objects` has libibverbs' objects, [`bnxt`]
//! the functions of Broadcom's libbnxt_re, [`ionic`] those of AMD's libionic.

pub mod bnxt;
mod call;
pub mod ionic;
mod objects;

pub(crate) use call::placed;
