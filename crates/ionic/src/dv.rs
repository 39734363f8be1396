//! Structures of the vendor's own interface to queues of kernels ("direct verbs"), `ionic_dv_*` of AMD's
//! libionic, and what its parent domains say of the memory that they ask for. They are native structures of
//! 64-bit machines: pointers are addresses.
//!
//! rdma-core's libionic has those functions that restrict a protection domain, from v64 on, and none that tells
//! where queues lie. The others were read in the header that MORI carries, and no hardware has confirmed them.

/// The functions that a program of queues needs; rdma-core's libionic does not have the first four.
pub const NEEDED: [&str; 7] = [
    "ionic_dv_get_ctx",
    "ionic_dv_get_cq",
    "ionic_dv_get_qp",
    "ionic_dv_qp_get_udma_idx",
    "ionic_dv_pd_set_udma_mask",
    "ionic_dv_pd_set_sqcmb",
    "ionic_dv_pd_set_rqcmb",
];

/// `RDMA_DRIVER_IONIC`, in the upper half of what allocators of parent domains are told.
const DRIVER: u64 = 21 << 32;
/// Memory for a CQ.
pub const TAG_CQ: u64 = DRIVER | 1;
/// Memory for a send queue.
pub const TAG_SQ: u64 = DRIVER | 2;
/// Memory for a receive queue.
pub const TAG_RQ: u64 = DRIVER | 3;

/// Bytes of a ring at least, and what its address is a multiple of.
pub const PAGE: usize = 4096;
/// CQEs that libionic adds to those that are asked for, before it rounds up to a power of two.
pub const SPARE_CQES: u32 = 100;

/// The number to ask libionic for where a ring of 2^`log` CQEs is meant; `None` if it makes none of this size.
pub const fn cqes_to_ask(log: u8) -> Option<u32> {
    match log {
        7..=16 => Some((1 << log) - 1 - SPARE_CQES),
        _ => None,
    }
}

/// The number to ask libionic for where a ring of 2^`log` WQEs of 2^`log_stride` bytes is meant: one entry stays
/// free. `None` if it makes none of this size.
pub const fn wqes_to_ask(log: u8, log_stride: u8) -> Option<u32> {
    if log > 16 || log_stride < 6 || log_stride > 16 || log + log_stride < PAGE.ilog2() as u8 {
        return None;
    }
    Some((1 << log) - 1)
}

warpverbs_layout::layout! {
    /// The registers of a context.
    pub struct DvCtx[24] as "ionic_dv_ctx": Default {
        /// Where the page with the registers is mapped.
        pub db_page: u64,
        /// The first of the eight registers.
        pub db_ptr: u64,
        /// Number of the register of send queues.
        pub sq_qtype: u8,
        /// Of receive queues.
        pub rq_qtype: u8,
        /// Of CQs.
        pub cq_qtype: u8,
        /// Zero.
        pub reserved: [u8; 5],
    }

    /// A ring.
    pub struct DvQueue[32] as "ionic_dv_queue": Default {
        /// Its address.
        pub ptr: u64,
        /// Bytes.
        pub size: u64,
        /// Its doorbells, but for the index.
        pub db_val: u64,
        /// Entries, less one.
        pub mask: u16,
        /// log2 of the entries.
        pub depth_log2: u8,
        /// log2 of the bytes of an entry.
        pub stride_log2: u8,
        /// Zero.
        pub reserved: u32,
    }
}

/// `struct ionic_dv_qp`: the receive queue comes first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DvQp {
    /// Receives.
    pub rq: DvQueue,
    /// Sends.
    pub sq: DvQueue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_rounded_up_to_what_is_meant() {
        // As libionic rounds: to the number of bits.
        let bits = |n: u32| (32 - n.leading_zeros()) as u8;
        for log in 0..20 {
            match cqes_to_ask(log) {
                Some(asked) => assert_eq!(bits(asked + SPARE_CQES), log, "{asked} CQEs"),
                None => assert!(!(7..=16).contains(&log)),
            }
            match wqes_to_ask(log, 6) {
                Some(asked) => assert_eq!(bits(asked), log, "{asked} WQEs"),
                None => assert!(!(6..=16).contains(&log)),
            }
        }
        assert_eq!((wqes_to_ask(5, 7), wqes_to_ask(4, 7)), (Some(31), None));
        assert_eq!(wqes_to_ask(10, 5), None, "the shortest WQE has 64 bytes");
    }
}
