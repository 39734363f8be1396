//! Objects of libibverbs as far as functions of a vendor's library look at them.

use std::ffi::{c_int, c_void};

/// `struct ibv_context` up to its descriptor.
#[repr(C)]
pub struct VerbsContext {
    pub(super) device: *const c_void,
    pub(super) ops: [*const c_void; 32],
    pub(super) fd: c_int,
}

/// `struct ibv_pd`.
#[repr(C)]
pub struct VerbsPd {
    pub(super) context: *const VerbsContext,
    pub(super) handle: u32,
}

/// `struct ibv_cq` up to its number of entries.
#[repr(C)]
pub struct VerbsCq {
    pub(super) context: *const VerbsContext,
    pub(super) channel: *const c_void,
    pub(super) user: *const c_void,
    pub(super) handle: u32,
    pub(super) entries: c_int,
}

/// `struct ibv_qp` up to its type.
#[repr(C)]
pub struct VerbsQp {
    pub(super) context: *const VerbsContext,
    pub(super) user: *const c_void,
    pub(super) pd: *const VerbsPd,
    pub(super) send_cq: *const VerbsCq,
    pub(super) recv_cq: *const VerbsCq,
    pub(super) srq: *const c_void,
    pub(super) handle: u32,
    pub(super) number: u32,
    pub(super) state: u32,
    pub(super) kind: u32,
}

/// An object, zeroed behind its first members: a lock and a condition of libibverbs, which zeros initialise,
/// and what the driver keeps of a QP that it is asked the state of.
#[repr(C)]
pub(super) struct Room<T> {
    object: T,
    rest: [u64; 512],
}

impl<T> Room<T> {
    pub(super) fn leak(object: T) -> *mut T {
        Box::into_raw(Box::new(Self { object, rest: [0; 512] })).cast()
    }

    /// # Safety
    /// From [`Self::leak`], and used no more.
    pub(super) unsafe fn free(object: *mut T) {
        // SAFETY: as the caller says.
        drop(unsafe { Box::from_raw(object.cast::<Self>()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use warpverbs_verbs::sys;

    #[test]
    fn first_members_are_those_of_libibverbs() {
        macro_rules! same {
            ($($own:ident.$member:ident = $theirs:ident.$name:ident;)*) => {$(
                let (own, theirs) = (offset_of!($own, $member), offset_of!(sys::$theirs, $name));
                assert_eq!(own, theirs, "{}.{}", stringify!($theirs), stringify!($name));
            )*};
        }
        same! {
            VerbsContext.fd = ibv_context.cmd_fd;
            VerbsPd.handle = ibv_pd.handle;
            VerbsCq.context = ibv_cq.context;
            VerbsCq.user = ibv_cq.cq_context;
            VerbsCq.handle = ibv_cq.handle;
            VerbsCq.entries = ibv_cq.cqe;
            VerbsQp.context = ibv_qp.context;
            VerbsQp.pd = ibv_qp.pd;
            VerbsQp.send_cq = ibv_qp.send_cq;
            VerbsQp.recv_cq = ibv_qp.recv_cq;
            VerbsQp.handle = ibv_qp.handle;
            VerbsQp.number = ibv_qp.qp_num;
            VerbsQp.state = ibv_qp.state;
            VerbsQp.kind = ibv_qp.qp_type;
        }
        // The rest of libibverbs' members, and of what its driver keeps, have room behind them.
        assert!(size_of::<sys::ibv_qp>() + 1024 < size_of::<Room<VerbsQp>>());
        assert!(size_of::<sys::ibv_cq>() + 1024 < size_of::<Room<VerbsCq>>());
    }
}
