//! The bytes of a CQE.

use crate::num::{Be24, Qpn};
use crate::opcode::{CqeOpcode, SendOpcode};
use core::mem::offset_of;
use zerocopy::Unaligned;
use zerocopy::byteorder::{BE, U16, U32, U64};

/// Bytes of a CQE.
pub const CQE: usize = 64;
/// Offset of the [`CqeTail`] in a CQE.
pub const TAIL_OFFSET: usize = offset_of!(Cqe64, tail);

warpverbs_layout::layout! {
    /// A completion queue entry, 64 bytes.
    pub struct Cqe64[64]: Default, PartialEq, Eq, Unaligned {
        /// Zero.
        pub reserved0: [u8; 2],
        /// Work queue number in some receive completions.
        pub wqe_id: U16<BE>,
        /// Tag matching and RSS fields of other queue types.
        pub reserved4: [u8; 13],
        /// Source path bits.
        pub ml_path: u8,
        /// Zero.
        pub reserved18: [u8; 4],
        /// Source LID.
        pub slid: U16<BE>,
        /// GRH in bits 5..4, SL in bits 3..0.
        pub grh_sl: u8,
        /// Source QP.
        pub rqpn: Be24,
        /// Ethernet header checks.
        pub hds_ip_ext: u8,
        /// Ethernet header types.
        pub l4_hdr_type_etc: u8,
        /// VLAN.
        pub vlan_info: U16<BE>,
        /// SRQ number, or the user's index of the QP.
        pub srqn_uidx: U32<BE>,
        /// Immediate, or the invalidated key.
        pub imm_inval_pkey: U32<BE>,
        /// Application.
        pub app: u8,
        /// Operation of the application.
        pub app_op: u8,
        /// Information of the application.
        pub app_info: U16<BE>,
        /// Bytes received, or read by an RDMA READ or atomic.
        pub byte_cnt: U32<BE>,
        /// Clock of the device.
        pub timestamp: U64<BE>,
        /// Opcode, index and owner.
        pub tail: CqeTail as fields,
    }

    /// An error CQE, 64 bytes: [`Cqe64`] with syndromes in place of the timestamp's low half.
    pub struct ErrCqe[64]: Default, PartialEq, Eq, Unaligned {
        /// Zero.
        pub reserved0: [u8; 32],
        /// SRQ number, or the user's index of the QP.
        pub srqn_uidx: U32<BE>,
        /// Zero.
        pub reserved36: [u8; 16],
        /// Syndrome of the hardware unit.
        pub hw_error_syndrome: u8,
        /// Its type, high nibble.
        pub hw_syndrome_type: u8,
        /// Vendor syndrome; advisory.
        pub vendor_err_synd: u8,
        /// See [`crate::syndrome::Syndrome`].
        pub syndrome: u8,
        /// Opcode, index and owner.
        pub tail: CqeTail as fields,
    }

    /// The last 8 bytes of every CQE: 8-byte aligned, so one load or store moves them whole.
    pub struct CqeTail[8]: Default, PartialEq, Eq, Unaligned {
        /// Opcode of the send WQE, in requester completions.
        pub wqe_opcode: u8,
        /// The local QP.
        pub qpn: Be24,
        /// Index of the first WQEBB of a send WQE, or index of a receive WQE; 16 bits.
        pub wqe_counter: U16<BE>,
        /// Zero unless CQEs are signed.
        pub signature: u8,
        /// Opcode in bits 7..4, format in 3..2, solicited event in 1, owner in 0.
        pub op_own: u8,
    }
}

impl CqeTail {
    /// A tail with `owner` as its lowest bit.
    #[inline]
    pub fn new(
        opcode: CqeOpcode,
        wqe_opcode: SendOpcode,
        qpn: Qpn,
        wqe_counter: u16,
        owner: bool,
    ) -> Self {
        Self {
            wqe_opcode: wqe_opcode.value(),
            qpn: qpn.into(),
            wqe_counter: wqe_counter.into(),
            signature: 0,
            op_own: opcode.nibble() << 4 | owner as u8,
        }
    }

    /// The tail of an entry the hardware has not written: all ones.
    pub const UNWRITTEN: u64 = u64::MAX;

    /// From an 8-byte load, in the memory order of this machine.
    #[inline]
    pub fn from_ne(word: u64) -> Self {
        zerocopy::transmute!(word)
    }

    /// For an 8-byte store, in the memory order of this machine.
    #[inline]
    pub fn to_ne(self) -> u64 {
        zerocopy::transmute!(self)
    }

    /// Opcode of the CQE.
    #[inline]
    pub const fn opcode(&self) -> CqeOpcode {
        CqeOpcode::from_nibble(self.op_own >> 4)
    }

    /// Format: 0 plain, 1 and 2 with inline data, 3 compressed.
    #[inline]
    pub const fn format(&self) -> u8 {
        self.op_own >> 2 & 3
    }

    /// Solicited event bit.
    #[inline]
    pub const fn solicited(&self) -> bool {
        self.op_own & 2 != 0
    }

    /// Owner bit.
    #[inline]
    pub const fn owner(&self) -> bool {
        self.op_own & 1 != 0
    }
}
