//! `rdma/ib_user_verbs.h` and `rdma/ib_user_ioctl_verbs.h`: structures that every driver shares.

super::structures! { CORE_LAYOUTS:
    /// Capabilities of a device.
    QueryDeviceResp = ib_uverbs_query_device_resp {
        fw_ver: u64,
        /// Big-endian.
        node_guid: u64,
        /// Big-endian.
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }
    /// Asks for [`ExQueryDeviceResp`].
    ExQueryDevice = ib_uverbs_ex_query_device {
        comp_mask: u32,
        reserved: u32,
    }
    /// On-demand paging: none.
    OdpCaps = ib_uverbs_odp_caps {
        general_caps: u64,
        per_transport_caps: [u32; 3],
        reserved: u32,
    }
    /// Receive-side scaling: none.
    RssCaps = ib_uverbs_rss_caps {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        reserved: u32,
    }
    /// Tag matching: none.
    TmCaps = ib_uverbs_tm_caps {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
        reserved: u32,
    }
    /// Capabilities of a device, with those added later.
    ExQueryDeviceResp = ib_uverbs_ex_query_device_resp {
        base: QueryDeviceResp,
        comp_mask: u32,
        response_length: u32,
        odp_caps: OdpCaps,
        timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        rss_caps: RssCaps,
        max_wq_type_rq: u32,
        raw_packet_caps: u32,
        tm_caps: TmCaps,
        cq_moderation_caps: [u16; 4],
        max_dm_size: u64,
        xrc_odp_caps: u32,
        reserved: u32,
    }
    /// State of a port.
    QueryPortResp = ib_uverbs_query_port_resp {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
    }
    /// State of a port, and what was added later.
    QueryPortRespEx = ib_uverbs_query_port_resp_ex {
        legacy_resp: QueryPortResp,
        port_cap_flags2: u16,
        reserved: [u8; 6],
    }
    /// One entry of the table of GIDs.
    GidEntry = ib_uverbs_gid_entry {
        gid: [u64; 2],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        netdev_ifindex: u32,
    }
    /// A new protection domain.
    AllocPdResp = ib_uverbs_alloc_pd_resp {
        pd_handle: u32,
    }
    /// Registers memory.
    RegMr = ib_uverbs_reg_mr {
        response: u64,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }
    /// Registered memory.
    RegMrResp = ib_uverbs_reg_mr_resp {
        mr_handle: u32,
        lkey: u32,
        rkey: u32,
    }
    /// A new channel of completion events.
    CreateCompChannelResp = ib_uverbs_create_comp_channel_resp {
        fd: u32,
    }
    /// Numbers of events that were reported of a CQ.
    DestroyCqResp = ib_uverbs_destroy_cq_resp {
        comp_events_reported: u32,
        async_events_reported: u32,
    }
    /// Limits of a QP.
    QpCap = ib_uverbs_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
    /// Where a QP sends to.
    QpDest = ib_uverbs_qp_dest {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    /// A route to an address.
    GlobalRoute = ib_uverbs_global_route {
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved: u8,
    }
    /// Where datagrams go.
    AhAttr = ib_uverbs_ah_attr {
        grh: GlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved: u8,
    }
    /// Makes an address handle.
    CreateAh = ib_uverbs_create_ah {
        response: u64,
        user_handle: u64,
        pd_handle: u32,
        reserved: u32,
        attr: AhAttr,
    }
    /// The address handle.
    CreateAhResp = ib_uverbs_create_ah_resp {
        ah_handle: u32,
    }
    /// Changes attributes of a QP.
    ModifyQp = ib_uverbs_modify_qp {
        dest: QpDest,
        alt_dest: QpDest,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }
    /// How much of the extended answer is valid.
    ExModifyQpResp = ib_uverbs_ex_modify_qp_resp {
        comp_mask: u32,
        response_length: u32,
    }
    /// Asks for attributes of a QP.
    QueryQp = ib_uverbs_query_qp {
        response: u64,
        qp_handle: u32,
        attr_mask: u32,
    }
    /// Attributes of a QP.
    QueryQpResp = ib_uverbs_query_qp_resp {
        dest: QpDest,
        alt_dest: QpDest,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        sq_sig_all: u8,
        reserved: [u8; 5],
    }
    /// Gives a CQ another ring.
    ResizeCq = ib_uverbs_resize_cq {
        response: u64,
        cq_handle: u32,
        cqe: u32,
    }
    /// Size of a CQ's new ring.
    ResizeCqResp = ib_uverbs_resize_cq_resp {
        cqe: u32,
        reserved: u32,
    }
    /// Changes limits of an SRQ.
    ModifySrq = ib_uverbs_modify_srq {
        srq_handle: u32,
        attr_mask: u32,
        max_wr: u32,
        srq_limit: u32,
    }
    /// An asynchronous event.
    AsyncEventDesc = ib_uverbs_async_event_desc {
        element: u64,
        event_type: u32,
        reserved: u32,
    }
    /// Asks for limits of an SRQ.
    QuerySrq = ib_uverbs_query_srq {
        response: u64,
        srq_handle: u32,
        reserved: u32,
    }
    /// Limits of an SRQ.
    QuerySrqResp = ib_uverbs_query_srq_resp {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
        reserved: u32,
    }
}
