//! Segments beside those of plain data movement: the SRQ's link, address vectors, WAIT, and those of
//! WQEs that the parser names but does not take apart.

use crate::num::Be24;
use zerocopy::Unaligned;
use zerocopy::byteorder::{BE, U16, U32, U64};

warpverbs_layout::layout! {
    /// First segment of an SRQ WQE, 16 bytes.
    pub struct SrqNextSeg[16]: Default, PartialEq, Eq, Unaligned {
        /// Software's own.
        pub reserved0: [u8; 2],
        /// Index of the next free WQE: software's own free list.
        pub next_wqe_index: U16<BE>,
        /// Of signed WQEs.
        pub signature: u8,
        /// Software's own.
        pub reserved1: [u8; 11],
    }

    /// Address vector of UD and DC, 48 bytes; between control and remote address.
    pub struct DatagramSeg[48]: Default, PartialEq, Eq, Unaligned {
        /// DC key, or the queue key in the first four bytes and four that are not looked at.
        pub dc_key: U64<BE>,
        /// Bit 31 of these four bytes: the long form follows. The rest is not looked at.
        pub ext: u8,
        /// Destination QP or DCT number.
        pub dqp_dct: Be24,
        /// Static rate and service level.
        pub stat_rate_sl: u8,
        /// Force-loopback bit and low LID bits.
        pub fl_mlid: u8,
        /// Remote LID, or UDP source port.
        pub rlid: U16<BE>,
        /// Not looked at.
        pub reserved: [u8; 4],
        /// Remote MAC.
        pub rmac: [u8; 6],
        /// Traffic class.
        pub tclass: u8,
        /// Hop limit.
        pub hop_limit: u8,
        /// GRH bit, GID index, flow label.
        pub grh_gid_fl: U32<BE>,
        /// Remote GID.
        pub rgid: [u8; 16],
    }

    /// XRC segment, 16 bytes.
    pub struct XrcSeg[16]: Default, PartialEq, Eq, Unaligned {
        /// SRQ at the responder.
        pub xrc_srqn: U32<BE>,
        /// Zero.
        pub reserved: [u8; 12],
    }

    /// WAIT segment, 16 bytes.
    pub struct WaitSeg[16]: Default, PartialEq, Eq, Unaligned {
        /// Not looked at.
        pub reserved: [u8; 8],
        /// Index of the CQE to wait for; the low 24 bits count, as in every index of a CQ.
        pub max_index: U32<BE>,
        /// The CQ.
        pub cqn: U32<BE>,
    }

    /// UMR control segment, 48 bytes.
    pub struct UmrCtrlSeg[48]: Default, PartialEq, Eq, Unaligned {
        /// Inline, check-free and offset bits.
        pub flags: u8,
        /// Zero.
        pub reserved0: [u8; 3],
        /// Octowords of the translation list.
        pub klm_octowords: U16<BE>,
        /// Offset into the translation list, or octowords of the signature block.
        pub translation_offset: U16<BE>,
        /// Which fields of the memory key to change.
        pub mkey_mask: U64<BE>,
        /// Zero.
        pub reserved1: [u8; 32],
    }
}
