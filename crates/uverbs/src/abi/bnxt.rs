//! `rdma/bnxt_re-abi.h`: what libbnxt_re and its driver say to each other beside the common structures. Later kernels
//! have more at the ends of some, which are left out: zeros there ask for nothing and offer nothing.

super::structures! { BNXT_LAYOUTS:
    /// An opened context.
    BnxtUcontextResp = bnxt_re_uctx_resp {
        dev_id: u32,
        max_qp: u32,
        pg_size: u32,
        cqe_sz: u32,
        max_cqd: u32,
        rsvd: u32,
        comp_mask: u64,
        chip_id0: u32,
        chip_id1: u32,
        mode: u32,
        rsvd1: u32,
    }
    /// A protection domain, and the offset of the doorbell page for `mmap`, in two halves: the structure is
    /// packed.
    BnxtPdResp = bnxt_re_pd_resp {
        pdid: u32,
        dpi: u32,
        /// Low half first.
        dbr: [u32; 2],
    }
    /// Where a CQ lies.
    BnxtCreateCq = bnxt_re_cq_req {
        cq_va: u64,
        cq_handle: u64,
    }
    /// Number of a CQ, and where its library begins.
    BnxtCreateCqResp = bnxt_re_cq_resp {
        cqid: u32,
        tail: u32,
        phase: u32,
        rsvd: u32,
    }
    /// Where a QP lies, and its name in CQEs.
    BnxtCreateQp = bnxt_re_qp_req {
        qpsva: u64,
        qprva: u64,
        qp_handle: u64,
    }
    /// Number of a QP.
    BnxtCreateQpResp = bnxt_re_qp_resp {
        qpid: u32,
        rsvd: u32,
    }
    /// Where an SRQ lies.
    BnxtCreateSrq = bnxt_re_srq_req {
        srqva: u64,
        srq_handle: u64,
    }
    /// Number of an SRQ.
    BnxtCreateSrqResp = bnxt_re_srq_resp {
        srqid: u32,
    }
}

super::structures! { BNXT_FIXED_LAYOUTS:
    /// Where a CQ lies, of which the program says how many entries it has.
    BnxtFixedCq = bnxt_re_cq_req {
        cq_va: u64,
        cq_handle: u64,
        comp_mask: u64,
    }
    /// Where a QP lies, of which the program says what its send queue has.
    BnxtFixedQp = bnxt_re_qp_req {
        qpsva: u64,
        qprva: u64,
        qp_handle: u64,
        comp_mask: u64,
        sq_slots: u32,
        sq_npsn: u32,
    }
}

super::structures! { OWN_LAYOUTS:
    /// Behind [`BnxtFixedQp`], from the preloaded library alone: no public source says how the vendor's tells
    /// its driver of the receive queue.
    BnxtFixedReceives = warpverbs_bnxt_receives {
        /// Slots of the receive queue.
        slots: u32,
        /// Slots of a receive.
        each: u32,
    }
}

/// `comp_mask` of [`BnxtFixedCq`] and [`BnxtFixedQp`]: sizes are the program's.
pub const FIXED: u64 = 1;

/// `comp_mask` of [`BnxtUcontextResp`]: the chip's number is valid.
pub const UCONTEXT_HAS_CHIP: u64 = 1;
/// `comp_mask` of [`BnxtUcontextResp`]: `mode` is valid, 0 for static WQEs.
pub const UCONTEXT_HAS_MODE: u64 = 2;
