//! The Rust side's layouts and numbers, for the C++ side to compile.

use std::mem::offset_of;
use warpverbs_kernel_build::{Mirror, mirrored};
use warpverbs_mlx5::cqe::{Cqe64, CqeTail, ErrCqe, TAIL_OFFSET};
use warpverbs_mlx5::doorbell::{CqDbr, QpDbr};
use warpverbs_mlx5::export::{
    Cause, Cq, ErrorWord, Fault, PostState, Qp, QueueState, SCRATCH_SLOTS,
};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::segment::{
    AtomicSeg, CtrlSeg, DataSeg, MaskedCs4Seg, MaskedCs8Seg, MaskedFa4Seg, MaskedFa8Seg, RaddrSeg,
    SrqNextSeg, WaitSeg,
};
use warpverbs_mlx5::syndrome::Syndrome;

/// Every mirrored structure and number.
pub(crate) fn all() -> Mirror {
    let mut mirror = Mirror::new(
        "#include \"warpverbs/mlx5/layout.h\"
#include \"warpverbs/mlx5/opcode.h\"
\
         #include \"warpverbs/qp.h\"
using namespace wv;
using namespace wv::mlx5;",
    );
    export(&mut mirror);
    segments(&mut mirror);
    completions(&mut mirror);
    values(&mut mirror);
    mirror
}

fn export(mirror: &mut Mirror) {
    mirrored!(mirror, "wv::Cq" = Cq { buf, dbr, cqn, log_size, mode, reserved });
    mirrored!(
        mirror,
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
    mirrored!(
        mirror,
        "QueueState" =
            QueueState { reserved, pad0, published, ring_token, pad1, pad2, poll, cq_ci, pad3 }
    );
    mirrored!(mirror, "Fault" = Fault { claim, status, what, qpn, expected, actual, thread });
    mirrored!(mirror, "PostState" = PostState { sq, rq, error, scratch_free, fault, pad });
}

fn segments(mirror: &mut Mirror) {
    mirrored!(
        mirror,
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
    mirrored!(mirror, "RaddrSeg" = RaddrSeg { raddr, rkey, reserved });
    mirrored!(mirror, "DataSeg" = DataSeg { byte_count, lkey, addr });
    mirrored!(mirror, "AtomicSeg" = AtomicSeg { swap_add, compare });
    mirrored!(mirror, "MaskedFa4Seg" = MaskedFa4Seg { add, field_boundary, reserved });
    mirrored!(mirror, "MaskedFa8Seg" = MaskedFa8Seg { add, field_boundary });
    mirrored!(mirror, "MaskedCs4Seg" = MaskedCs4Seg { swap, compare, swap_mask, compare_mask });
    mirrored!(mirror, "MaskedCs8Seg" = MaskedCs8Seg { swap, compare, swap_mask, compare_mask });
    mirrored!(mirror, "WaitSeg" = WaitSeg { reserved, max_index, cqn });
    mirrored!(
        mirror,
        "SrqNextSeg" = SrqNextSeg { reserved0, next_wqe_index, signature, reserved1 }
    );
}

fn completions(mirror: &mut Mirror) {
    mirrored!(
        mirror,
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
    mirrored!(
        mirror,
        "ErrCqe" =
            ErrCqe { srqn_uidx, hw_error_syndrome, hw_syndrome_type, vendor_err_synd, syndrome }
    );
    mirrored!(mirror, "QpDbr" = QpDbr { rcv, snd });
    mirrored!(mirror, "CqDbr" = CqDbr { set_ci, arm });
    for (field, at) in [
        ("wqe_opcode", offset_of!(CqeTail, wqe_opcode)),
        ("qpn", offset_of!(CqeTail, qpn)),
        ("wqe_counter", offset_of!(CqeTail, wqe_counter)),
        ("signature", offset_of!(CqeTail, signature)),
        ("op_own", offset_of!(CqeTail, op_own)),
    ] {
        for cqe in ["Cqe64", "ErrCqe"] {
            mirror.equal(&format!("__builtin_offsetof({cqe}, {field})"), TAIL_OFFSET + at);
        }
    }
}

/// Opcodes and syndromes by their C++ names, values taken from the Rust side.
fn values(mirror: &mut Mirror) {
    for opcode in SendOpcode::ALL {
        let name = opcode.name().to_lowercase().replace("atomic_masked", "masked");
        mirror.equal(&format!("static_cast<u8>(opcode::{name})"), opcode.value());
    }
    for syndrome in Syndrome::ALL {
        // LocalQpOp → local_qp_op
        let mut name = String::new();
        for c in format!("{syndrome:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(c.to_lowercase());
        }
        mirror.equal(&format!("static_cast<u8>(syndrome::{name})"), syndrome.value());
    }
    let word = ErrorWord::new(Cause::Requester, 0x13, 0x88, 8, 0x1f3a).0;
    mirror.equal("ErrorWord::pack(0x08881304, 0x1f3a).raw", format!("{word}ull"));
    mirror.equal("scratch_slots", SCRATCH_SLOTS);
}
