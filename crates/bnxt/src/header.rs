//! The formats as a C++ header, `kernels/include/warpverbs/bnxt/layout.h`.

use crate::cqe::{CQE, CqeType, RecvCqe, SendCqe, TAIL_OFFSET};
use crate::doorbell::{DoorbellWord, Kind};
use crate::opcode::{WqeFlags, WqeType};
use crate::packets::Msn;
use crate::recv::ID_BITS;
use crate::slot::{
    AtomicHeader, AtomicSlot, HEADERS, RdmaSlot, RecvHeader, SLOT, SendHeader, SgeSlot,
};
use crate::status::{RecvStatus, SendStatus};
use warpverbs_layout::{Constant, Header, Item};

/// The parts of these formats that kernels write and read.
pub const HEADER: Header = Header {
    path: "bnxt/layout.h",
    table: "bnxt/src/header.rs; fields are little-endian",
    namespace: "wv::bnxt",
    includes: &["arch/types.h"],
    items: &[
        Item::Constants(&[
            Constant::new("u32", "slot_bytes", &[], SLOT as u64),
            Constant::new("u32", "header_slots", &[], HEADERS as u64),
            Constant::new("u32", "cqe_bytes", &[], CQE as u64),
            Constant::new("u32", "cqe_tail_offset", &[], TAIL_OFFSET as u64),
            Constant::new("u32", "recv_id_bits", &[], ID_BITS as u64),
        ]),
        WqeType::LAYOUT,
        Item::Constants(&[
            Constant::new(
                "u8",
                "signaled",
                &[" Flags of a WQE."],
                WqeFlags::SIGNALED.bits() as u64,
            ),
            Constant::new("u8", "fence", &[], WqeFlags::FENCE.bits() as u64),
            Constant::new("u8", "solicited", &[], WqeFlags::SOLICITED.bits() as u64),
            Constant::new("u8", "inline_data", &[], WqeFlags::INLINE.bits() as u64),
        ]),
        SendHeader::LAYOUT,
        AtomicHeader::LAYOUT,
        RdmaSlot::LAYOUT,
        AtomicSlot::LAYOUT,
        SgeSlot::LAYOUT,
        RecvHeader::LAYOUT,
        Msn::LAYOUT,
        Kind::LAYOUT,
        DoorbellWord::LAYOUT,
        CqeType::LAYOUT,
        SendCqe::LAYOUT,
        RecvCqe::LAYOUT,
        SendStatus::LAYOUT,
        RecvStatus::LAYOUT,
    ],
};
