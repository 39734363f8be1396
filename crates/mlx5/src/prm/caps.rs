//! Capabilities, and those that the software device claims: as few as possible, since drivers use
//! all that are claimed.

use super::field::mailbox;

/// Kinds of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum CapabilityKind {
    /// Sizes, numbers and services.
    General = 0,
    /// Offloads of Ethernet.
    Ethernet = 1,
    /// On-demand paging.
    Odp = 2,
    /// Atomics.
    Atomic = 3,
    /// RoCE.
    Roce = 4,
    /// Rates.
    Qos = 0xc,
    /// Capabilities that did not fit into [`Self::General`].
    General2 = 0x20,
}

impl CapabilityKind {
    /// The kind of this number.
    pub fn from_number(number: u16) -> Option<Self> {
        let all = [
            Self::General,
            Self::Ethernet,
            Self::Odp,
            Self::Atomic,
            Self::Roce,
            Self::Qos,
            Self::General2,
        ];
        all.into_iter().find(|kind| *kind as u16 == number)
    }
}

mailbox! {
    /// [`CapabilityKind::General`], as far as it is used.
    GeneralCaps, 0x1000 {
        hca_cap_2: u32 = (0x04, 31, 31),
        log_max_srq_sz: u32 = (0x10, 31, 24),
        log_max_qp_sz: u32 = (0x10, 23, 16),
        log_max_qp: u32 = (0x10, 4, 0),
        log_max_cq_sz: u32 = (0x18, 23, 16),
        log_max_cq: u32 = (0x18, 4, 0),
        log_max_mkey: u32 = (0x1c, 21, 16),
        /// 8 << value entries.
        gid_table_size: u32 = (0x2c, 15, 0),
        /// 0: InfiniBand, 1: Ethernet.
        port_type: u32 = (0x34, 9, 8),
        num_ports: u32 = (0x34, 7, 0),
        log_max_msg: u32 = (0x38, 28, 24),
        cqe_version: u32 = (0x3c, 3, 0),
        roce: u32 = (0x40, 2, 2),
        atomic: u32 = (0x40, 1, 1),
        rc: u32 = (0x44, 0, 0),
        uar_4k: u32 = (0x48, 31, 31),
        bf: u32 = (0x4c, 31, 31),
        log_bf_reg_size: u32 = (0x4c, 20, 16),
        num_lag_ports: u32 = (0x4c, 3, 0),
        max_wqe_sz_sq: u32 = (0x50, 15, 0),
        max_wqe_sz_rq: u32 = (0x54, 15, 0),
        log_max_rmp: u32 = (0x70, 28, 24),
    }
    /// [`CapabilityKind::Atomic`], as far as it is used.
    AtomicCaps, 0x1000 {
        /// 1: results of 8 bytes come in the host's byte order.
        req_8b_endianness_mode: u32 = (0x08, 31, 30),
        supported_8b_endianness_mode_1: u32 = (0x08, 25, 25),
        /// Bits 0 to 3: compare-swap, fetch-add, and both with masks.
        operations: u32 = (0x10, 15, 0),
        /// Sizes in bytes, a bit each, on reliable connections.
        size_qp: u32 = (0x14, 15, 0),
        /// The same on dynamic connections.
        size_dc: u32 = (0x18, 15, 0),
    }
    /// [`CapabilityKind::Roce`], as far as it is used.
    RoceCaps, 0x1000 {
        /// UDP ports that a path may send from.
        max_src_udp_port: u32 = (0x18, 31, 16),
        min_src_udp_port: u32 = (0x18, 15, 0),
        /// Entries of the table of addresses: GIDs that a path may name.
        address_table_size: u32 = (0x1c, 15, 0),
    }
}

/// The software device's [`CapabilityKind::General`].
pub const GENERAL: GeneralCaps = GeneralCaps {
    hca_cap_2: 1,
    log_max_srq_sz: 15,
    log_max_qp_sz: 15,
    log_max_qp: 13,
    log_max_cq_sz: 22,
    log_max_cq: 20,
    log_max_mkey: 20,
    gid_table_size: 0,
    port_type: 1,
    num_ports: 1,
    log_max_msg: 30,
    cqe_version: 1,
    roce: 1,
    atomic: 1,
    rc: 1,
    uar_4k: 1,
    bf: 1,
    log_bf_reg_size: 9,
    num_lag_ports: 1,
    max_wqe_sz_sq: 1024,
    max_wqe_sz_rq: 512,
    log_max_rmp: 16,
};

/// The software device's [`CapabilityKind::Atomic`].
pub const ATOMIC: AtomicCaps = AtomicCaps {
    req_8b_endianness_mode: 1,
    supported_8b_endianness_mode_1: 1,
    operations: 0xf,
    // 4 and 8 bytes.
    size_qp: 0xc,
    // Dynamic connections carry nothing; NVSHMEM refuses a device that does not claim the sizes.
    size_dc: 0xc,
};

/// The software device's [`CapabilityKind::Roce`]: addresses as many as GIDs are in [`GENERAL`],
/// which 0 stands for there.
pub const ROCE: RoceCaps =
    RoceCaps { max_src_udp_port: 0xffff, min_src_udp_port: 0xc000, address_table_size: 8 };

/// Writes the capabilities of a kind into `out`, 0x1000 bytes of zeros.
pub fn capabilities(kind: CapabilityKind, out: &mut [u8]) {
    match kind {
        CapabilityKind::General => GENERAL.emit(out),
        CapabilityKind::Atomic => ATOMIC.emit(out),
        CapabilityKind::Roce => ROCE.emit(out),
        _ => {}
    }
}
