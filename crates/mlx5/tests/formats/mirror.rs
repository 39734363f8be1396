//! The Rust side's layouts and numbers as assertions for the C++ side to compile.

use std::fmt::Write as _;
use std::mem::offset_of;
use warpverbs_mlx5::cqe::{Cqe64, CqeTail, ErrCqe, TAIL_OFFSET};
use warpverbs_mlx5::doorbell::{CqDbr, QpDbr};
use warpverbs_mlx5::export::{
    Cause, Cq, ErrorWord, Fault, PostState, Qp, QueueState, SCRATCH_SLOTS,
};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::segment::{
    AtomicSeg, CtrlSeg, DataSeg, MaskedCs4Seg, MaskedCs8Seg, MaskedFa4Seg, MaskedFa8Seg, RaddrSeg,
    SrqNextSeg,
};
use warpverbs_mlx5::syndrome::Syndrome;

/// A translation unit that compiles only if every mirrored field and number is the same.
pub(crate) fn asserts() -> String {
    let mut out = String::from(
        "#include \"warpverbs/mlx5/layout.h\"\n#include \"warpverbs/mlx5/opcode.h\"\n\
         #include \"warpverbs/qp.h\"\nusing namespace wv;\nusing namespace wv::mlx5;\n",
    );
    export(&mut out);
    segments(&mut out);
    completions(&mut out);
    values(&mut out);
    out
}

macro_rules! same_layout {
    ($out:ident, $cpp:literal = $rust:ty { $($field:ident),* $(,)? }) => {
        let size = size_of::<$rust>();
        writeln!($out, "static_assert(sizeof({}) == {size}, \"\");", $cpp).expect("text");
        $(
            let (name, at) = (stringify!($field), offset_of!($rust, $field));
            writeln!($out, "static_assert(__builtin_offsetof({}, {name}) == {at}, \"\");", $cpp)
                .expect("text");
        )*
    };
}

fn export(out: &mut String) {
    same_layout!(out, "wv::Cq" = Cq { buf, dbr, cqn, log_size, mode, reserved });
    same_layout!(
        out,
        "wv::Qp" = Qp {
            sq,
            rq,
            dbr,
            doorbell,
            send_cq,
            recv_cq,
            state,
            sq_ready,
            rq_ready,
            sq_span,
            abort,
            scratch,
            timeout_ns,
            scratch_lkey,
            qpn,
            log_sq,
            log_rq,
            log_rq_stride,
            inline_words,
            reserved,
        }
    );
    same_layout!(
        out,
        "QueueState" =
            QueueState { reserved, pad0, published, ring_token, pad1, pad2, poll, cq_ci, pad3 }
    );
    same_layout!(out, "Fault" = Fault { claim, status, what, qpn, expected, actual, thread });
    same_layout!(out, "PostState" = PostState { sq, rq, error, scratch_free, fault, pad });
}

fn segments(out: &mut String) {
    same_layout!(
        out,
        "CtrlSeg" = CtrlSeg {
            opmod,
            wqe_index,
            opcode,
            qpn,
            ds,
            signature,
            dci_stream_channel_id,
            fm_ce_se,
            imm,
        }
    );
    same_layout!(out, "RaddrSeg" = RaddrSeg { raddr, rkey, reserved });
    same_layout!(out, "DataSeg" = DataSeg { byte_count, lkey, addr });
    same_layout!(out, "AtomicSeg" = AtomicSeg { swap_add, compare });
    same_layout!(out, "MaskedFa4Seg" = MaskedFa4Seg { add, field_boundary, reserved });
    same_layout!(out, "MaskedFa8Seg" = MaskedFa8Seg { add, field_boundary });
    same_layout!(out, "MaskedCs4Seg" = MaskedCs4Seg { swap, compare, swap_mask, compare_mask });
    same_layout!(out, "MaskedCs8Seg" = MaskedCs8Seg { swap, compare, swap_mask, compare_mask });
    same_layout!(
        out,
        "SrqNextSeg" = SrqNextSeg { reserved0, next_wqe_index, signature, reserved1 }
    );
}

fn completions(out: &mut String) {
    same_layout!(
        out,
        "Cqe64" = Cqe64 {
            wqe_id,
            ml_path,
            slid,
            hds_ip_ext,
            l4_hdr_type_etc,
            vlan_info,
            srqn_uidx,
            imm_inval_pkey,
            app,
            app_op,
            app_info,
            byte_cnt,
            timestamp,
        }
    );
    same_layout!(
        out,
        "ErrCqe" =
            ErrCqe { srqn_uidx, hw_error_syndrome, hw_syndrome_type, vendor_err_synd, syndrome }
    );
    same_layout!(out, "QpDbr" = QpDbr { rcv, snd });
    same_layout!(out, "CqDbr" = CqDbr { set_ci, arm });
    for (field, at) in [
        ("wqe_opcode", offset_of!(CqeTail, wqe_opcode)),
        ("qpn", offset_of!(CqeTail, qpn)),
        ("wqe_counter", offset_of!(CqeTail, wqe_counter)),
        ("signature", offset_of!(CqeTail, signature)),
        ("op_own", offset_of!(CqeTail, op_own)),
    ] {
        for cqe in ["Cqe64", "ErrCqe"] {
            let at = TAIL_OFFSET + at;
            writeln!(out, "static_assert(__builtin_offsetof({cqe}, {field}) == {at}, \"\");")
                .expect("text");
        }
    }
}

/// Opcodes and syndromes by their C++ names, values taken from the Rust side.
fn values(out: &mut String) {
    for opcode in SendOpcode::ALL {
        let name = opcode.name().to_lowercase().replace("atomic_masked", "masked");
        let value = opcode.value();
        writeln!(out, "static_assert(static_cast<u8>(opcode::{name}) == {value}, \"\");")
            .expect("text");
    }
    for syndrome in Syndrome::ALL {
        // LocalQpOp → local_qp_op
        let mut name = String::new();
        for c in format!("{syndrome:?}").chars() {
            let separator = if c.is_uppercase() && !name.is_empty() { "_" } else { "" };
            write!(name, "{separator}{}", c.to_lowercase()).expect("text");
        }
        let value = syndrome.value();
        writeln!(out, "static_assert(static_cast<u8>(syndrome::{name}) == {value}, \"\");")
            .expect("text");
    }
    let word = ErrorWord::new(Cause::Requester, 0x13, 0x88, 8, 0x1f3a).0;
    writeln!(out, "static_assert(ErrorWord::pack(0x08881304, 0x1f3a).raw == {word}ull, \"\");")
        .expect("text");
    writeln!(out, "static_assert(scratch_slots == {SCRATCH_SLOTS}, \"\");").expect("text");
}
