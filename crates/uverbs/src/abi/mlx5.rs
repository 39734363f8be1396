//! `rdma/mlx5-abi.h`: what libmlx5 and its driver say to each other beside the common structures.

super::structures! { MLX5_LAYOUTS:
    /// Opens a context: how many doorbell registers the library wants, and what it can do.
    AllocUcontext = mlx5_ib_alloc_ucontext_req_v2 {
        total_num_bfregs: u32,
        num_low_latency_bfregs: u32,
        flags: u32,
        comp_mask: u32,
        max_cqe_version: u8,
        reserved0: u8,
        reserved1: u16,
        reserved2: u32,
        lib_caps: u64,
    }
    /// An opened context.
    AllocUcontextResp = mlx5_ib_alloc_ucontext_resp {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }
    /// Number of a protection domain, as WQEs and mailboxes name it.
    Mlx5AllocPdResp = mlx5_ib_alloc_pd_resp {
        pdn: u32,
    }
    /// The Ethernet address behind an address handle.
    Mlx5CreateAhResp = mlx5_ib_create_ah_resp {
        response_length: u32,
        dmac: [u8; 6],
        reserved: [u8; 6],
    }
    /// Where a CQ lies.
    Mlx5CreateCq = mlx5_ib_create_cq {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }
    /// Where a CQ's new ring lies.
    Mlx5ResizeCq = mlx5_ib_resize_cq {
        buf_addr: u64,
        cqe_size: u16,
        reserved0: u16,
        reserved1: u32,
    }
    /// Number of a CQ.
    Mlx5CreateCqResp = mlx5_ib_create_cq_resp {
        cqn: u32,
        reserved: u32,
    }
    /// Where an SRQ lies.
    Mlx5CreateSrq = mlx5_ib_create_srq {
        buf_addr: u64,
        db_addr: u64,
        flags: u32,
        reserved0: u32,
        uidx: u32,
        reserved1: u32,
    }
    /// Number of an SRQ.
    Mlx5CreateSrqResp = mlx5_ib_create_srq_resp {
        srqn: u32,
        reserved: u32,
    }
    /// Where a QP lies.
    Mlx5CreateQp = mlx5_ib_create_qp {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
        sq_buf_addr: u64,
        ece_options: u32,
        dci_streams: u16,
        reserved: u16,
    }
    /// The driver's answer to the creation of a QP.
    Mlx5CreateQpResp = mlx5_ib_create_qp_resp {
        bfreg_index: u32,
        ece_options: u32,
        comp_mask: u32,
        tirn: u32,
        tisn: u32,
        rqn: u32,
        sqn: u32,
        reserved1: u32,
        tir_icm_addr: u64,
    }
    /// The driver's answer to a change of a QP.
    Mlx5ModifyQpResp = mlx5_ib_modify_qp_resp {
        response_length: u32,
        dctn: u32,
        ece_options: u32,
        reserved: u32,
    }
    /// Capabilities of a device beside the common ones: none.
    Mlx5QueryDeviceResp = mlx5_ib_query_device_resp {
        comp_mask: u32,
        response_length: u32,
        tso_caps: [u32; 2],
        rss_caps: [u64; 2],
        cqe_comp_caps: [u32; 2],
        packet_pacing_caps: [u32; 4],
        mlx5_ib_support_multi_pkt_send_wqes: u32,
        flags: u32,
        sw_parsing_caps: [u32; 2],
        striding_rq_caps: [u32; 6],
        tunnel_offloads_caps: u32,
        dci_streams_caps: u16,
        reserved: u16,
    }
}

/// The library takes its doorbell pages one by one.
pub const LIB_CAP_DYN_UAR: u64 = 2;
/// The library may send firmware commands.
pub const UCONTEXT_DEVX: u32 = 1;
/// Flag of [`Mlx5CreateQp`]: completions may carry received data.
pub const QP_FLAG_SCATTER_CQE: u32 = 1 << 1;
/// Flag of [`Mlx5CreateQp`]: a target of dynamic connections, whose key is `sq_buf_addr`.
pub const QP_FLAG_TYPE_DCT: u32 = 1 << 4;
/// Flag of [`Mlx5CreateQp`]: so may those of queues whose size the library did not choose.
pub const QP_FLAG_ALLOW_SCATTER_CQE: u32 = 1 << 8;
/// Flag of [`Mlx5CreateQp`]: `bfreg_index` is the number of a doorbell page.
pub const QP_FLAG_UAR_PAGE_INDEX: u32 = 1 << 10;
/// Flag of [`Mlx5CreateCq`]: `uar_page_index` is valid.
pub const CQ_FLAG_UAR_PAGE_INDEX: u16 = 1 << 1;
