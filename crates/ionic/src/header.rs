//! The formats as a C++ header, `kernels/include/warpverbs/ionic/layout.h`: of protocol 2, the one that
//! GPU libraries know.

use crate::body::{AtomicBody, ENTRY, Entry, Header as WqeHeader, RdmaBody, SendBody, WQE};
use crate::cqe::{CQE, CqeType, MSN_BITS, QueueTypeFlags, RecvCqe, SendCqe, TAIL_OFFSET};
use crate::doorbell::DoorbellWord;
use crate::opcode::{Opcode, Protocol, WqeFlags};
use crate::status::Failure;
use warpverbs_layout::{Constant, Header, Item};

/// The parts of these formats that kernels write and read.
pub const HEADER: Header = Header {
    path: "ionic/layout.h",
    table: "ionic/src/header.rs; fields are big-endian but for indexes and doorbells",
    namespace: "wv::ionic",
    includes: &["arch/types.h"],
    items: &[
        Item::Constants(&[
            Constant::new("u32", "wqe_bytes", &[], WQE as u64),
            Constant::new("u32", "entry_bytes", &[], ENTRY as u64),
            Constant::new("u32", "cqe_bytes", &[], CQE as u64),
            Constant::new("u32", "cqe_tail_offset", &[], TAIL_OFFSET as u64),
            Constant::new("u32", "msn_bits", &[], MSN_BITS as u64),
            opcode("op_send", Opcode::Send),
            opcode("op_send_invalidate", Opcode::SendInvalidate),
            opcode("op_send_imm", Opcode::SendImm),
            opcode("op_read", Opcode::Read),
            opcode("op_write", Opcode::Write),
            opcode("op_write_imm", Opcode::WriteImm),
            opcode("op_compare_swap", Opcode::CompareSwap),
            opcode("op_fetch_add", Opcode::FetchAdd),
            flag("fence", WqeFlags::FENCE),
            flag("solicited", WqeFlags::SOLICITED),
            flag("inline_data", WqeFlags::INLINE),
            flag("signaled", WqeFlags::SIGNALED),
            flag("color", WqeFlags::COLOR),
        ]),
        WqeHeader::LAYOUT,
        RdmaBody::LAYOUT,
        SendBody::LAYOUT,
        Entry::LAYOUT,
        AtomicBody::LAYOUT,
        DoorbellWord::LAYOUT,
        CqeType::LAYOUT,
        QueueTypeFlags::LAYOUT,
        SendCqe::LAYOUT,
        RecvCqe::LAYOUT,
        Failure::LAYOUT,
    ],
};

const fn opcode(name: &'static str, opcode: Opcode) -> Constant {
    Constant::new("u8", name, &[], opcode.value(Protocol::V2) as u64)
}

const fn flag(name: &'static str, flag: WqeFlags) -> Constant {
    Constant::new("u8", name, &[], flag.bits() as u64)
}
