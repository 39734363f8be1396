//! Structures of the vendor's own interface to queues in memory of the program ("direct verbs"), `bnxt_re_dv_*`
//! of Broadcom's libbnxt_re; rdma-core's has none of it. They are native structures of 64-bit machines:
//! pointers are addresses.
//!
//! They were read in the header that MORI carries, and no hardware has confirmed them.

/// The functions that a program of queues needs.
pub const NEEDED: [&str; 8] = [
    "bnxt_re_dv_umem_reg",
    "bnxt_re_dv_umem_dereg",
    "bnxt_re_dv_create_cq",
    "bnxt_re_dv_destroy_cq",
    "bnxt_re_dv_init_obj",
    "bnxt_re_dv_create_qp",
    "bnxt_re_dv_destroy_qp",
    "bnxt_re_dv_modify_qp",
];

/// Bit of a CQ in the kinds of `bnxt_re_dv_init_obj`.
pub const OBJ_CQ: u64 = 1 << 1;
/// Bit of a protection domain there.
pub const OBJ_PD: u64 = 1 << 4;
/// Bit of a dmabuf in [`UmemRegAttr::comp_mask`].
pub const UMEM_DMABUF: u64 = 1;
/// Bytes of an entry of packet numbers in [`QpInitAttr::sq_psn_sz`]: the table of messages.
pub const MSN_ENTRY: u32 = 8;

/// Entries of the table of packet numbers behind a send queue of so many slots: half of their number,
/// rounded up to a power of two. `None` of more than 2^31 slots.
pub const fn msn_entries(slots: u32) -> Option<u32> {
    match slots.checked_next_power_of_two() {
        Some(rounded) => Some(rounded / 2),
        None => None,
    }
}

warpverbs_layout::layout! {
    /// Memory for queues.
    pub struct UmemRegAttr[48] as "bnxt_re_dv_umem_reg_attr": Default {
        /// Its address, or the offset in a dmabuf.
        pub addr: u64,
        /// Bytes.
        pub size: u64,
        /// `IBV_ACCESS_*`.
        pub access_flags: u32,
        /// Zero.
        pub reserved: u32,
        /// Sizes of pages that may be used; 0 for any.
        pub pgsz_bitmap: u64,
        /// [`UMEM_DMABUF`].
        pub comp_mask: u64,
        /// The dmabuf, if it is one.
        pub dmabuf_fd: i32,
        /// Zero.
        pub reserved2: u32,
    }

    /// A CQ.
    pub struct CqInitAttr[32] as "bnxt_re_dv_cq_init_attr": Default {
        /// The program's name of it.
        pub cq_handle: u64,
        /// Handle of its memory, from `bnxt_re_dv_umem_reg`.
        pub umem_handle: u64,
        /// Where it begins there.
        pub cq_umem_offset: u64,
        /// Entries.
        pub ncqe: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// A QP.
    pub struct QpInitAttr[136] as "bnxt_re_dv_qp_init_attr": Default {
        /// `IBV_QPT_*`.
        pub qp_type: u32,
        /// Sends.
        pub max_send_wr: u32,
        /// Receives.
        pub max_recv_wr: u32,
        /// Entries of a send.
        pub max_send_sge: u32,
        /// Entries of a receive.
        pub max_recv_sge: u32,
        /// Inline bytes of a send.
        pub max_inline_data: u32,
        /// `struct ibv_cq`.
        pub send_cq: u64,
        /// `struct ibv_cq`.
        pub recv_cq: u64,
        /// `struct ibv_srq`, or 0.
        pub srq: u64,
        /// The name of the QP in its CQEs.
        pub qp_handle: u64,
        /// [`DbRegionAttr`] of its own doorbell page; 0 for that of the context.
        pub dbr_handle: u64,
        /// Memory of the send queue.
        pub sq_umem_handle: u64,
        /// Where it begins there.
        pub sq_umem_offset: u64,
        /// Bytes of the send queue with its table of packet numbers.
        pub sq_len: u32,
        /// Slots of the send queue.
        pub sq_slots: u32,
        /// Memory of the receive queue.
        pub rq_umem_handle: u64,
        /// Where it begins there.
        pub rq_umem_offset: u64,
        /// Bytes of a send WQE.
        pub sq_wqe_sz: u32,
        /// Bytes of an entry of packet numbers.
        pub sq_psn_sz: u32,
        /// Entries of packet numbers.
        pub sq_npsn: u32,
        /// Bytes of the receive queue.
        pub rq_len: u32,
        /// Its slots.
        pub rq_slots: u32,
        /// Bytes of a receive.
        pub rq_wqe_sz: u32,
        /// Zero.
        pub comp_mask: u64,
    }

    /// A doorbell page.
    pub struct DbRegionAttr[24] as "bnxt_re_dv_db_region_attr": Default {
        /// The kernel's number of it.
        pub handle: u32,
        /// The device's number of it.
        pub dpi: u32,
        /// Its bus address or offset for `mmap`.
        pub umdbr: u64,
        /// Where it is mapped; the register is its first 8 bytes.
        pub dbr: u64,
    }

    /// A question about one object each: `{in, out}`, addresses of the object and of its structure here.
    pub struct Obj[80] as "bnxt_re_dv_obj": Default {
        /// A QP.
        pub qp: [u64; 2],
        /// A CQ, and [`CqInfo`].
        pub cq: [u64; 2],
        /// An SRQ.
        pub srq: [u64; 2],
        /// An address handle.
        pub ah: [u64; 2],
        /// A protection domain, and [`PdInfo`].
        pub pd: [u64; 2],
    }

    /// Properties of a CQ, as the device has them.
    pub struct CqInfo[16] as "bnxt_re_dv_cq": Default {
        /// Its number.
        pub cqn: u32,
        /// Bytes of an entry.
        pub cqe_size: u32,
        /// Zero.
        pub comp_mask: u64,
    }

    /// Properties of a protection domain, likewise.
    pub struct PdInfo[16] as "bnxt_re_dv_pd": Default {
        /// Its number.
        pub pdn: u32,
        /// Zero.
        pub reserved: u32,
        /// Zero.
        pub comp_mask: u64,
    }
}
