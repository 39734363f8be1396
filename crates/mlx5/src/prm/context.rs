//! Contexts of queues and keys, and what else mailboxes carry.

use super::field::mailbox;

mailbox! {
    /// Context of a CQ.
    CqContext, 0x40 {
        status: u32 = (0x00, 31, 28),
        dbr_umem_valid: u32 = (0x00, 25, 25),
        /// 0: 64 bytes; 1: 128.
        cqe_size: u32 = (0x00, 23, 21),
        /// Every CQE goes into the first entry.
        collapsed: u32 = (0x00, 20, 20),
        ignore_overrun: u32 = (0x00, 17, 17),
        state: u32 = (0x00, 11, 8),
        dbr_umem_id: u32 = (0x04, 31, 0),
        log_cq_size: u32 = (0x0c, 28, 24),
        uar_page: u32 = (0x0c, 23, 0),
        c_eqn: u32 = (0x14, 7, 0),
        log_page_size: u32 = (0x18, 28, 24),
        consumer_counter: u32 = (0x28, 23, 0),
        producer_counter: u32 = (0x2c, 23, 0),
        /// Offset in the umem.
        dbr_addr: u64 = (0x38, 63, 0),
    }
    /// Where a QP's peer is.
    AddressPath, 0x2c {
        pkey_index: u32 = (0x00, 15, 0),
        grh: u32 = (0x04, 23, 23),
        mlid: u32 = (0x04, 22, 16),
        rlid: u32 = (0x04, 15, 0),
        ack_timeout: u32 = (0x08, 31, 27),
        src_addr_index: u32 = (0x08, 23, 16),
        stat_rate: u32 = (0x08, 11, 8),
        hop_limit: u32 = (0x08, 7, 0),
        tclass: u32 = (0x0c, 27, 20),
        flow_label: u32 = (0x0c, 19, 0),
        /// First half of the peer's GID.
        rgid_high: u64 = (0x10, 63, 0),
        /// Second half of the peer's GID.
        rgid_low: u64 = (0x18, 63, 0),
        dscp: u32 = (0x20, 21, 16),
        udp_sport: u32 = (0x20, 15, 0),
        eth_prio: u32 = (0x24, 30, 28),
        sl: u32 = (0x24, 27, 24),
        vhca_port_num: u32 = (0x24, 23, 16),
        rmac_high: u32 = (0x24, 15, 0),
        rmac_low: u32 = (0x28, 31, 0),
    }
    /// Context of a QP, but for its [`AddressPath`] at byte 0x18.
    QpContext, 0xe8 {
        state: u32 = (0x00, 31, 28),
        /// Service: 0 RC, 1 UC, 2 UD, 5 initiator of DC.
        service: u32 = (0x00, 23, 16),
        /// 3: migrated, the only state without alternate paths.
        path_migration: u32 = (0x00, 12, 11),
        pd: u32 = (0x04, 23, 0),
        mtu: u32 = (0x08, 31, 29),
        log_msg_max: u32 = (0x08, 28, 24),
        log_rq_size: u32 = (0x08, 22, 19),
        /// In units of 16 bytes.
        log_rq_stride: u32 = (0x08, 18, 16),
        no_sq: u32 = (0x08, 15, 15),
        log_sq_size: u32 = (0x08, 14, 11),
        /// Clock of time stamps in CQEs: 0 free-running, 1 the default, 2 real time.
        ts_format: u32 = (0x08, 7, 6),
        uar_page: u32 = (0x0c, 23, 0),
        user_index: u32 = (0x10, 23, 0),
        log_page_size: u32 = (0x14, 28, 24),
        remote_qpn: u32 = (0x14, 23, 0),
        log_ack_req_freq: u32 = (0x70, 31, 28),
        log_sra_max: u32 = (0x70, 23, 21),
        retry_count: u32 = (0x70, 18, 16),
        rnr_retry: u32 = (0x70, 15, 13),
        next_send_psn: u32 = (0x78, 23, 0),
        cqn_send: u32 = (0x7c, 23, 0),
        log_rra_max: u32 = (0x90, 23, 21),
        atomic_mode: u32 = (0x90, 19, 16),
        remote_read: u32 = (0x90, 15, 15),
        remote_write: u32 = (0x90, 14, 14),
        remote_atomic: u32 = (0x90, 13, 13),
        page_offset: u32 = (0x90, 11, 6),
        min_rnr_nak: u32 = (0x94, 28, 24),
        next_receive_psn: u32 = (0x94, 23, 0),
        cqn_receive: u32 = (0x9c, 23, 0),
        /// Offset in the umem.
        dbr_addr: u64 = (0xa0, 63, 0),
        /// 0: an own queue; 1: an SRQ or RMP; 3: none.
        rq_type: u32 = (0xac, 26, 24),
        srqn: u32 = (0xac, 23, 0),
        sq_wqebb_counter: u32 = (0xb4, 31, 16),
        /// Payload in CQEs of requests: 0 none, 0x11 up to 32 bytes, 0x22 up to 64.
        cs_req: u32 = (0xc4, 15, 8),
        /// The same of receives: 0, 1 or 2.
        cs_res: u32 = (0xc4, 7, 0),
        /// Of dynamic connections: what an initiator must know of its targets.
        dc_access_key: u64 = (0xc8, 63, 0),
        dbr_umem_valid: u32 = (0xd0, 28, 28),
        dbr_umem_id: u32 = (0xe4, 31, 0),
    }
    /// Context of a receive memory pool, with that of its queue at byte 0x30.
    RmpContext, 0x68 {
        state: u32 = (0x00, 23, 20),
        /// 0: a list, 1: a ring.
        wq_type: u32 = (0x30, 31, 28),
        /// An event is raised when fewer receives are left; 0 for none.
        limit: u32 = (0x34, 15, 0),
        pd: u32 = (0x38, 23, 0),
        dbr_addr: u64 = (0x40, 63, 0),
        log_stride: u32 = (0x50, 19, 16),
        log_size: u32 = (0x50, 4, 0),
        dbr_umem_id: u32 = (0x58, 31, 0),
        wq_umem_id: u32 = (0x5c, 31, 0),
        wq_umem_offset: u64 = (0x60, 63, 0),
    }
    /// Context of a memory key.
    MkeyContext, 0x40 {
        free: u32 = (0x00, 30, 30),
        access_mode_high: u32 = (0x00, 28, 26),
        relaxed_ordering_write: u32 = (0x00, 18, 18),
        umr_enabled: u32 = (0x00, 15, 15),
        atomic: u32 = (0x00, 14, 14),
        remote_write: u32 = (0x00, 13, 13),
        remote_read: u32 = (0x00, 12, 12),
        local_write: u32 = (0x00, 11, 11),
        local_read: u32 = (0x00, 10, 10),
        /// 0: addresses as they are, 1: pages, 2: pieces, 3: pieces of one size.
        access_mode_low: u32 = (0x00, 9, 8),
        /// 0xffffff: any.
        qpn: u32 = (0x04, 31, 8),
        /// The key's low byte.
        variant: u32 = (0x04, 7, 0),
        length64: u32 = (0x0c, 31, 31),
        pd: u32 = (0x0c, 23, 0),
        start: u64 = (0x10, 63, 0),
        len: u64 = (0x18, 63, 0),
        translations_octword_size: u32 = (0x34, 31, 0),
        relaxed_ordering_read: u32 = (0x38, 6, 6),
        log_entity_size: u32 = (0x38, 4, 0),
    }
    /// An address of a port.
    RoceAddress, 0x20 {
        gid_high: u64 = (0x00, 63, 0),
        gid_low: u64 = (0x08, 63, 0),
        mac_high: u32 = (0x10, 15, 0),
        mac_low: u32 = (0x14, 31, 0),
        /// 0: IPv4, 1: IPv6.
        l3_type: u32 = (0x18, 11, 8),
        /// 2: RoCEv2.
        roce_version: u32 = (0x18, 7, 0),
    }
}
