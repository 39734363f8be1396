//! The registers of a context.

use super::library::IonicDv;
use crate::CallError;
use crate::call::check;
use crate::register::region;
use crate::vendor::VendorError;
use nix::errno::Errno;
use std::fmt;
use std::sync::Arc;
use warpverbs_ionic::doorbell::REGISTERS;
use warpverbs_ionic::dv::DvCtx;
use warpverbs_mem::Region;

/// Eight registers, one for each kind of queue, which all queues of a context share. Doorbells say which queue they
/// are for.
#[derive(Clone)]
pub struct Registers {
    told: DvCtx,
    dv: IonicDv,
}

impl fmt::Debug for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registers({:#x})", self.told.db_ptr)
    }
}

impl Registers {
    /// Those of the context, which the library has mapped when it was opened.
    ///
    /// # Errors
    /// The library does not say where they are.
    pub fn of_context(dv: &IonicDv) -> Result<Self, VendorError> {
        let (call, mut told) = ("ionic_dv_get_ctx", DvCtx::default());
        // SAFETY: a live context, and room for the answer.
        check(call, unsafe {
            (dv.api().ionic_dv_get_ctx)(&mut told, dv.context().ptr().as_ptr())
        })?;
        let kinds = [told.sq_qtype, told.rq_qtype, told.cq_qtype];
        if told.db_ptr == 0 || kinds.iter().any(|kind| usize::from(*kind) >= REGISTERS / 8) {
            return Err(CallError { call, errno: Errno::ENODATA }.into());
        }
        Ok(Self { told, dv: dv.clone() })
    }

    /// The eight registers, 64 bytes: each is written by one store and never read.
    pub fn region(&self) -> Region {
        // SAFETY: the page is mapped until the context is closed, which the library's holder keeps open. On
        // `warpverbs run` a store to it raises SIGBUS, whose handler executes it.
        unsafe { region(self.told.db_ptr, REGISTERS, Arc::new(self.dv.clone())) }
    }

    /// Offsets there: of the register of send queues, of receive queues, and of CQs.
    pub fn offsets(&self) -> [u64; 3] {
        [self.told.sq_qtype, self.told.rq_qtype, self.told.cq_qtype].map(|kind| 8 * u64::from(kind))
    }
}
