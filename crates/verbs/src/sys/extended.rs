//! What the header defines inline for extended CQs and QPs: functions that each object carries.
//!
//! A reader or an operation that the object was not made for is a null pointer, `None` here, where
//! C code would crash. Of `ibv_qp_ex`, whose end grows, only what every version has is read.

use super::bindings::*;
use libc::EINVAL;
use std::ffi::{c_int, c_uint};

/// A function of the object's own, if it has it.
macro_rules! own {
    ($object:expr, $function:ident) => {{
        // SAFETY: a live object, says the caller of the function that uses this.
        unsafe { (*$object).$function }
    }};
}

/// Begins to poll: 0 with a completion, after which `ibv_end_poll` is due; `ENOENT` without.
///
/// # Safety
/// `cq` is live and not being polled by this thread, `attr` readable.
#[inline]
pub unsafe fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: forwarded to the caller.
    own!(cq, start_poll).map_or(EINVAL, |call| unsafe { call(cq, attr) })
}

/// Goes to the next completion: 0, or `ENOENT` if there is none.
///
/// # Safety
/// Between [`ibv_start_poll`] and [`ibv_end_poll`].
#[inline]
pub unsafe fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: forwarded to the caller.
    own!(cq, next_poll).map_or(EINVAL, |call| unsafe { call(cq) })
}

/// Ends what [`ibv_start_poll`] began.
///
/// # Safety
/// Once, after a start that found something, on the same thread.
#[inline]
pub unsafe fn ibv_end_poll(cq: *mut ibv_cq_ex) {
    if let Some(call) = own!(cq, end_poll) {
        // SAFETY: forwarded to the caller.
        unsafe { call(cq) }
    }
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident: $function:ident -> $kind:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// While a completion is being looked at.
        #[inline]
        pub unsafe fn $name(cq: *mut ibv_cq_ex) -> Option<$kind> {
            // SAFETY: forwarded to the caller.
            own!(cq, $function).map(|call| unsafe { call(cq) })
        }
    )*};
}

readers! {
    /// What the completion is of.
    ibv_wc_read_opcode: read_opcode -> ibv_wc_opcode;
    /// The vendor's code of a failure.
    ibv_wc_read_vendor_err: read_vendor_err -> u32;
    /// Bytes that arrived.
    ibv_wc_read_byte_len: read_byte_len -> u32;
    /// Immediate data, or the key that was invalidated.
    ibv_wc_read_imm_data: read_imm_data -> __be32;
    /// The own QP.
    ibv_wc_read_qp_num: read_qp_num -> u32;
    /// The peer's QP.
    ibv_wc_read_src_qp: read_src_qp -> u32;
    /// Which fields are valid (`enum ibv_wc_flags`).
    ibv_wc_read_wc_flags: read_wc_flags -> c_uint;
    /// Ticks of the device's clock.
    ibv_wc_read_completion_ts: read_completion_ts -> u64;
    /// Nanoseconds of the host's clock.
    ibv_wc_read_completion_wallclock_ns: read_completion_wallclock_ns -> u64;
}

/// Whether the functions that every batch needs are there.
///
/// # Safety
/// `qp` is live.
pub unsafe fn can_batch(qp: *mut ibv_qp_ex) -> bool {
    own!(qp, wr_start).is_some()
        && own!(qp, wr_complete).is_some()
        && own!(qp, wr_abort).is_some()
        && own!(qp, wr_set_sge).is_some()
        && own!(qp, wr_set_sge_list).is_some()
        && own!(qp, wr_set_inline_data).is_some()
}

/// Begins a batch of work requests: takes the send queue's lock.
///
/// # Safety
/// `qp` is live and has no batch begun by this thread.
#[inline]
pub unsafe fn ibv_wr_start(qp: *mut ibv_qp_ex) {
    if let Some(call) = own!(qp, wr_start) {
        // SAFETY: forwarded to the caller.
        unsafe { call(qp) }
    }
}

/// Posts the batch, or nothing of it.
///
/// # Safety
/// Once after [`ibv_wr_start`], on the same thread.
#[inline]
pub unsafe fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: forwarded to the caller.
    own!(qp, wr_complete).map_or(EINVAL, |call| unsafe { call(qp) })
}

/// Forgets the batch.
///
/// # Safety
/// As [`ibv_wr_complete`], instead of it.
#[inline]
pub unsafe fn ibv_wr_abort(qp: *mut ibv_qp_ex) {
    if let Some(call) = own!(qp, wr_abort) {
        // SAFETY: forwarded to the caller.
        unsafe { call(qp) }
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident: $function:ident($($arg:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Inside a batch; memory that arguments point to is readable.
        #[inline]
        pub unsafe fn $name(qp: *mut ibv_qp_ex, $($arg: $kind),*) -> Option<()> {
            // SAFETY: forwarded to the caller.
            own!(qp, $function).map(|call| unsafe { call(qp, $($arg),*) })
        }
    )*};
}

requests! {
    /// SEND.
    ibv_wr_send: wr_send();
    /// SEND with immediate data.
    ibv_wr_send_imm: wr_send_imm(imm: __be32);
    /// SEND that takes back a key of the peer's.
    ibv_wr_send_inv: wr_send_inv(rkey: u32);
    /// WRITE.
    ibv_wr_rdma_write: wr_rdma_write(rkey: u32, addr: u64);
    /// WRITE with immediate data.
    ibv_wr_rdma_write_imm: wr_rdma_write_imm(rkey: u32, addr: u64, imm: __be32);
    /// READ.
    ibv_wr_rdma_read: wr_rdma_read(rkey: u32, addr: u64);
    /// Compare and swap.
    ibv_wr_atomic_cmp_swp: wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64);
    /// Fetch and add.
    ibv_wr_atomic_fetch_add: wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64);
    /// Takes back a key of one's own; has no data.
    ibv_wr_local_inv: wr_local_inv(rkey: u32);
    /// The one entry of the request begun last.
    ibv_wr_set_sge: wr_set_sge(lkey: u32, addr: u64, length: u32);
    /// All its entries.
    ibv_wr_set_sge_list: wr_set_sge_list(count: usize, sges: *const ibv_sge);
    /// Its inline data, which are copied.
    ibv_wr_set_inline_data: wr_set_inline_data(addr: *mut std::ffi::c_void, length: usize);
    /// Its inline data from several places.
    ibv_wr_set_inline_data_list: wr_set_inline_data_list(count: usize, list: *const ibv_data_buf);
}
