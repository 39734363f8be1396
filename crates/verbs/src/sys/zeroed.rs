//! Structures that begin as zeroes, as C code makes them with `= {}`.

use super::bindings::*;

/// A C structure of which all zeroes is a valid value.
///
/// # Safety
/// Every field must allow an all-zero bit pattern: integers, raw pointers, optional functions, and
/// arrays, unions and structures of those.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ident)*) => {
        $(
            // SAFETY: integers, raw pointers, and structures and unions of those.
            unsafe impl Plain for $name {}
        )*
    };
}

plain! {
    ibv_async_event
    ibv_cq_init_attr_ex
    ibv_device_attr
    ibv_device_attr_ex
    ibv_gid
    ibv_gid_entry
    ibv_modify_cq_attr
    ibv_poll_cq_attr
    ibv_port_attr
    ibv_qp_attr
    ibv_qp_init_attr
    ibv_qp_init_attr_ex
    ibv_recv_wr
    ibv_send_wr
    ibv_sge
    ibv_srq_attr
    ibv_srq_init_attr
    ibv_wc
}

/// All zeroes.
pub fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` promises that zeroes are a value.
    unsafe { std::mem::zeroed() }
}
