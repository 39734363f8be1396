//! Capabilities that the software device claims. What is claimed gets used, so the least is.

use super::Field;

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
    /// What did not fit into [`Self::General`].
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

/// A capability that is claimed.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Where it is.
    pub field: Field,
    /// What is claimed.
    pub value: u32,
}

const fn claim(name: &'static str, at: u16, high: u8, low: u8, value: u32) -> Claim {
    Claim { field: Field { name, at, high, low }, value }
}

/// [`CapabilityKind::General`].
pub const GENERAL: &[Claim] = &[
    claim("hca_cap_2", 0x04, 31, 31, 1),
    claim("log_max_srq_sz", 0x10, 31, 24, 15),
    claim("log_max_qp_sz", 0x10, 23, 16, 15),
    claim("log_max_qp", 0x10, 4, 0, 16),
    claim("log_max_cq_sz", 0x18, 23, 16, 22),
    claim("log_max_cq", 0x18, 4, 0, 20),
    claim("log_max_mkey", 0x1c, 21, 16, 20),
    // 8 << value entries.
    claim("gid_table_size", 0x2c, 15, 0, 0),
    claim("port_type", 0x34, 9, 8, 1),
    claim("num_ports", 0x34, 7, 0, 1),
    claim("log_max_msg", 0x38, 28, 24, 30),
    claim("roce", 0x40, 2, 2, 1),
    claim("atomic", 0x40, 1, 1, 1),
    claim("rc", 0x44, 0, 0, 1),
    claim("uar_4k", 0x48, 31, 31, 1),
    claim("bf", 0x4c, 31, 31, 1),
    claim("log_bf_reg_size", 0x4c, 20, 16, 9),
    claim("num_lag_ports", 0x4c, 3, 0, 1),
    claim("max_wqe_sz_sq", 0x50, 15, 0, 1024),
    claim("max_wqe_sz_rq", 0x54, 15, 0, 512),
];

/// [`CapabilityKind::Atomic`].
pub const ATOMIC: &[Claim] = &[
    // Results of 8 bytes come in the host's byte order.
    claim("req_8B_endianness_mode", 0x08, 31, 30, 1),
    claim("supported_8B_endianness_mode_1", 0x08, 25, 25, 1),
    // Compare-swap, fetch-add, and both with masks.
    claim("atomic_operations", 0x10, 15, 0, 0xf),
    // 4 and 8 bytes.
    claim("atomic_size_qp", 0x14, 15, 0, 0xc),
];

/// Writes the capabilities of a kind into `out`, 0x1000 bytes of zeros.
pub fn capabilities(kind: CapabilityKind, out: &mut [u8]) {
    let claims = match kind {
        CapabilityKind::General => GENERAL,
        CapabilityKind::Atomic => ATOMIC,
        _ => &[],
    };
    for claim in claims {
        claim.field.set(out, claim.value.into());
    }
}
