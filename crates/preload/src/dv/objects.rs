//! Objects of libibverbs as far as functions of a vendor's library look at them.

use std::ffi::{c_int, c_void};

/// `struct ibv_context` up to its descriptor.
#[repr(C)]
pub struct VerbsContext {
    device: *const c_void,
    ops: [*const c_void; 32],
    pub(super) fd: c_int,
}

/// `struct ibv_pd`.
#[repr(C)]
pub struct VerbsPd {
    pub(super) context: *const VerbsContext,
    pub(super) handle: u32,
}

/// `struct ibv_cq` up to its handle.
#[repr(C)]
pub struct VerbsCq {
    pub(super) context: *const VerbsContext,
    channel: *const c_void,
    user: *const c_void,
    pub(super) handle: u32,
}

/// `struct ibv_qp` up to its handle.
#[repr(C)]
pub struct VerbsQp {
    pub(super) context: *const VerbsContext,
    user: *const c_void,
    pd: *const VerbsPd,
    send_cq: *const VerbsCq,
    recv_cq: *const VerbsCq,
    srq: *const c_void,
    pub(super) handle: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInit {
    pub(super) user: *const c_void,
    pub(super) send_cq: *const VerbsCq,
    pub(super) recv_cq: *const VerbsCq,
    pub(super) srq: *const c_void,
    /// Sends, receives, entries of each, inline bytes.
    pub(super) cap: [u32; 5],
    pub(super) kind: u32,
    pub(super) signal_all: c_int,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use warpverbs_verbs::sys;

    #[test]
    fn members_are_those_of_libibverbs() {
        macro_rules! same {
            ($($own:ident.$member:ident = $theirs:ident.$name:ident;)*) => {$(
                let (own, theirs) = (offset_of!($own, $member), offset_of!(sys::$theirs, $name));
                assert_eq!(own, theirs, "{}.{}", stringify!($theirs), stringify!($name));
            )*};
        }
        same! {
            VerbsContext.fd = ibv_context.cmd_fd;
            VerbsPd.context = ibv_pd.context;
            VerbsPd.handle = ibv_pd.handle;
            VerbsCq.context = ibv_cq.context;
            VerbsCq.handle = ibv_cq.handle;
            VerbsQp.context = ibv_qp.context;
            VerbsQp.handle = ibv_qp.handle;
            QpInit.send_cq = ibv_qp_init_attr.send_cq;
            QpInit.recv_cq = ibv_qp_init_attr.recv_cq;
            QpInit.srq = ibv_qp_init_attr.srq;
            QpInit.cap = ibv_qp_init_attr.cap;
            QpInit.kind = ibv_qp_init_attr.qp_type;
            QpInit.signal_all = ibv_qp_init_attr.sq_sig_all;
        }
        assert_eq!(size_of::<QpInit>(), size_of::<sys::ibv_qp_init_attr>());
    }
}
