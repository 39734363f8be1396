//! The formats as C++ headers, `kernels/include/warpverbs/mlx5`.

use crate::cqe::{Cqe64, ErrCqe};
use crate::doorbell::{CqDbr, QpDbr, SrqDbr};
use crate::flags::{Completion, Fence};
use crate::num::{MAX_DS, SEGMENT, TERMINATOR, WQEBB};
use crate::opcode::{CqeOpcode, SendOpcode};
use crate::segment::{
    AtomicSeg, CtrlSeg, DataSeg, DatagramSeg, INLINE_BIT, InlineHeader, MaskedCs4Seg, MaskedCs8Seg,
    MaskedFa4Seg, MaskedFa8Seg, RaddrSeg, SrqNextSeg, UmrCtrlSeg, WaitSeg, XrcSeg,
};
use crate::syndrome::Syndrome;
use crate::wqe::{OPMOD_4B, OPMOD_8B};
use warpverbs_layout::{Constant, Header, Item};

/// Every generated header.
pub const HEADERS: [Header; 2] = [LAYOUTS, NUMBERS];

/// The layouts of segments, CQEs and doorbell records as a C++ header.
const LAYOUTS: Header = Header {
    path: "mlx5/layout.h",
    table: "mlx5/src/{segment,cqe,doorbell.rs}; fields are big-endian",
    namespace: "wv::mlx5",
    includes: &["arch/types.h"],
    items: &[
        CtrlSeg::LAYOUT,
        RaddrSeg::LAYOUT,
        DataSeg::LAYOUT,
        InlineHeader::LAYOUT,
        AtomicSeg::LAYOUT,
        MaskedFa4Seg::LAYOUT,
        MaskedFa8Seg::LAYOUT,
        MaskedCs4Seg::LAYOUT,
        MaskedCs8Seg::LAYOUT,
        WaitSeg::LAYOUT,
        SrqNextSeg::LAYOUT,
        DatagramSeg::LAYOUT,
        XrcSeg::LAYOUT,
        UmrCtrlSeg::LAYOUT,
        Cqe64::LAYOUT,
        ErrCqe::LAYOUT,
        QpDbr::LAYOUT,
        SrqDbr::LAYOUT,
        CqDbr::LAYOUT,
    ],
};

/// Numbers of the queue formats as a C++ header.
const NUMBERS: Header = Header {
    path: "mlx5/opcode.h",
    table: "mlx5/src/{header,opcode,flags,syndrome}.rs",
    namespace: "wv::mlx5",
    includes: &["arch/types.h"],
    items: &[
        Item::Constants(&[
            Constant::new("u32", "wqebb_bytes", &[], WQEBB as u64),
            Constant::new("u32", "segment_bytes", &[], SEGMENT as u64),
            Constant::new("u32", "max_ds", &[], MAX_DS as u64),
            Constant::new(
                "u32",
                "lkey_terminator",
                &[" lkey of the segment that ends a receive WQE early."],
                TERMINATOR.0 as u64,
            ),
            Constant::new("u32", "inline_bit", &[], INLINE_BIT as u64),
        ]),
        SendOpcode::LAYOUT,
        Item::Constants(&[
            Constant::new("u8", "opmod_none", &[" Of masked atomics: the operand size."], 0),
            Constant::new("u8", "opmod_masked_4b", &[], OPMOD_4B as u64),
            Constant::new("u8", "opmod_masked_8b", &[], OPMOD_8B as u64),
        ]),
        Completion::LAYOUT,
        Fence::LAYOUT,
        CqeOpcode::LAYOUT,
        Syndrome::LAYOUT,
    ],
};
