//! `rdma/ionic-abi.h`: what libionic and its driver say to each other beside the common structures.

super::structures! { IONIC_LAYOUTS:
    /// An opened context: where doorbells are, and how queues are numbered there.
    IonicCtxResp = ionic_ctx_resp {
        rsvd: u32,
        /// log2 of the bytes of a page.
        page_shift: u32,
        dbell_offset: u64,
        /// The firmware's protocol.
        version: u16,
        qp_opcodes: u8,
        admin_opcodes: u8,
        sq_qtype: u8,
        rq_qtype: u8,
        cq_qtype: u8,
        admin_qtype: u8,
        /// log2 of the bytes of the longest WQE.
        max_stride: u8,
        max_spec: u8,
        udma_count: u8,
        expdb_mask: u8,
        expdb_qtypes: u8,
        rsvd2: [u8; 3],
    }
    /// Number of an address handle.
    IonicAhResp = ionic_ah_resp {
        ahid: u32,
        pad: u32,
    }
    /// A ring: its bytes, its entries but one, and both as logarithms.
    IonicQdesc = ionic_qdesc {
        addr: u64,
        size: u32,
        mask: u16,
        depth_log2: u8,
        stride_log2: u8,
    }
    /// Where a CQ lies, by the pipelines that write to it.
    IonicCqReq = ionic_cq_req {
        cq: [IonicQdesc; 2],
        udma_mask: u8,
        rsvd: [u8; 7],
    }
    /// Numbers of a CQ, by pipelines.
    IonicCqResp = ionic_cq_resp {
        cqid: [u32; 2],
        udma_mask: u8,
        rsvd: [u8; 7],
    }
    /// Where a QP lies.
    IonicQpReq = ionic_qp_req {
        sq: IonicQdesc,
        rq: IonicQdesc,
        sq_spec: u8,
        rq_spec: u8,
        sq_cmb: u8,
        rq_cmb: u8,
        udma_mask: u8,
        rsvd: [u8; 3],
    }
    /// Number of a QP, and where its queues lie in the device's memory, if they do.
    IonicQpResp = ionic_qp_resp {
        qpid: u32,
        sq_cmb: u8,
        rq_cmb: u8,
        udma_idx: u8,
        rsvd: [u8; 1],
        sq_cmb_offset: u64,
        rq_cmb_offset: u64,
    }
}

/// The types of queues that [`IonicCtxResp`] tells: each has the register of this number in a doorbell page.
pub const IONIC_SENDS: u8 = 1;
/// Receives.
pub const IONIC_RECEIVES: u8 = 2;
/// CQs.
pub const IONIC_CQES: u8 = 3;
