//! Moving bytes between regions, whatever they are made of.

use crate::{Kind, MemError, Region};
use std::sync::Arc;

/// Names one copy that a [`Copier`] has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A copy engine for memory that the CPU cannot touch. Copies of one engine finish in the order
/// in which they were started.
///
/// # Safety
/// An implementation must touch exactly the ranges it is given.
pub unsafe trait Copier: Send + Sync {
    /// Starts a copy of `len` bytes and returns at once.
    ///
    /// # Safety
    /// Both ranges must stay valid until [`Copier::is_done`] says so for the returned ticket.
    unsafe fn start(&self, dst: u64, src: u64, len: usize) -> Result<Ticket, MemError>;

    /// Whether the copy, and every earlier one, has landed. Never blocks.
    fn is_done(&self, ticket: Ticket) -> Result<bool, MemError>;
}

/// How far a [`copy`] has come.
pub enum Progress {
    /// All bytes are in place.
    Done,
    /// The engine is at work; both regions are kept alive by this value.
    Pending(Pending),
}

/// A copy in flight.
pub struct Pending {
    copier: Arc<dyn Copier>,
    ticket: Ticket,
    _keep: [Region; 2],
}

impl Pending {
    /// Whether the bytes are in place. Never blocks.
    pub fn is_done(&self) -> Result<bool, MemError> {
        self.copier.is_done(self.ticket)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // The engine must be through with both ranges before they may be freed; it never waits for
        // us, so this ends. A failed engine has stopped touching them.
        while let Ok(false) = self.copier.is_done(self.ticket) {
            std::thread::yield_now();
        }
    }
}

/// Copies `len` bytes from host memory to host memory, as [`copy`] does.
#[inline]
pub fn copy_on_host(
    dst: &Region,
    dst_off: u64,
    src: &Region,
    src_off: u64,
    len: usize,
) -> Result<(), MemError> {
    let to = dst.range(dst_off, len)?;
    let from = src.range(src_off, len)?;
    for region in [dst, src] {
        if region.kind() != Kind::Host {
            return Err(MemError::NotHost { addr: region.addr() });
        }
    }
    crate::region::host_copy(to, from, len);
    Ok(())
}

/// Copies `len` bytes. Host to host is done on return (overlap allowed, a naturally aligned 4- or
/// 8-byte copy is single-copy atomic and has release order); anything else is handed to the copy
/// engine of the side that is not host memory.
pub fn copy(
    dst: &Region,
    dst_off: u64,
    src: &Region,
    src_off: u64,
    len: usize,
) -> Result<Progress, MemError> {
    let to = dst.range(dst_off, len)?;
    let from = src.range(src_off, len)?;
    if len == 0 {
        return Ok(Progress::Done);
    }
    if (dst.kind(), src.kind()) == (Kind::Host, Kind::Host) {
        crate::region::host_copy(to, from, len);
        return Ok(Progress::Done);
    }
    let copier = dst
        .copier()
        .or_else(|| src.copier())
        .ok_or(MemError::NoCopier { from: src.kind(), to: dst.kind() })?;
    // SAFETY: both ranges are inside their regions (checked by `range`), and the regions are kept
    // alive by the `Pending` until the engine is done.
    let ticket = unsafe { copier.start(to, from, len) }?;
    Ok(Progress::Pending(Pending { copier, ticket, _keep: [dst.clone(), src.clone()] }))
}
