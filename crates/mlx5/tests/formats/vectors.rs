//! The golden vectors against parser, builder and completions.

use crate::golden::{Vector, hex_bytes, vectors};
use crate::request::{Bytes, Request};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::cqe::{Cqe, ErrorSide, ReceivedKind, owned_by_software};
use warpverbs_mlx5::cqe::{CqeTail, CqeViolation};
use warpverbs_mlx5::doorbell::{CqArm, Doorbell, record_word, set_ci_word};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{Lkey, Qpn, Rkey, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::recv;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Local, Position, Remote, SendWith, Sge, parse};

fn qpn(v: &Vector) -> Qpn {
    Qpn::new(v.number("qpn") as u32).expect("24 bits")
}

fn sges(v: &Vector) -> Vec<Sge> {
    let entries = v.all("data").into_iter();
    let entries = entries.map(|n| Sge { addr: n[0], len: n[1] as u32, lkey: Lkey(n[2] as u32) });
    entries.filter(|sge| sge.len != 0).collect()
}

/// The 32-bit numbers of a line.
fn narrow(v: &Vector, key: &str) -> Vec<u32> {
    v.all(key).remove(0).into_iter().map(|n| n as u32).collect()
}

/// The vector's atomic.
fn atomic(v: &Vector, opcode: SendOpcode, remote: Remote) -> Request {
    let one = |key| v.all(key).remove(0);
    let narrow = |key| narrow(v, key);
    let result = sges(v).first().map(|s| Local { addr: s.addr, lkey: s.lkey }).expect("an SGE");
    match (opcode, v.number("opmod")) {
        (SendOpcode::AtomicCs, 0) => {
            let n = one("atomic");
            Request::CompareSwap(remote, n[1], n[0], result)
        }
        (SendOpcode::AtomicFa, 0) => Request::FetchAdd(remote, one("atomic")[0], result),
        (SendOpcode::MaskedFa, 8) => {
            let n = narrow("masked_fa4");
            let o = MaskedFetchAdd::B4(MaskedFa { add: n[0], boundary: n[1] });
            Request::MaskedFetchAdd(remote, o, result)
        }
        (SendOpcode::MaskedFa, 9) => {
            let n = one("masked_fa8");
            let o = MaskedFetchAdd::B8(MaskedFa { add: n[0], boundary: n[1] });
            Request::MaskedFetchAdd(remote, o, result)
        }
        (SendOpcode::MaskedCs, 8) => {
            let n = narrow("masked_cs4");
            let (swap, compare, swap_mask, compare_mask) = (n[0], n[1], n[2], n[3]);
            let o = MaskedCompareSwap::B4(MaskedCs { compare, compare_mask, swap, swap_mask });
            Request::MaskedCompareSwap(remote, o, result)
        }
        (SendOpcode::MaskedCs, 9) => {
            let n = one("masked_cs8");
            let (swap, compare, swap_mask, compare_mask) = (n[0], n[1], n[2], n[3]);
            let o = MaskedCompareSwap::B8(MaskedCs { compare, compare_mask, swap, swap_mask });
            Request::MaskedCompareSwap(remote, o, result)
        }
        other => panic!("{}: {other:?}", v.name),
    }
}

/// The vector's send WQE, as its lines tell it.
fn request(v: &Vector) -> Request {
    let imm = v.number("imm") as u32;
    let remote = || {
        let n = v.all("raddr").remove(0);
        Remote { addr: n[0], rkey: Rkey(n[1] as u32) }
    };
    let bytes = || match v.values("inline") {
        Some(bytes) => Bytes::Inline(hex_bytes(bytes)),
        None => Bytes::Sges(sges(v)),
    };
    match SendOpcode::from_value(v.number("opcode") as u8) {
        SendOpcode::Nop => Request::Nop,
        SendOpcode::Send => Request::Send(SendWith::Nothing, bytes()),
        SendOpcode::SendImm => Request::Send(SendWith::Imm(imm), bytes()),
        SendOpcode::SendInval => Request::Send(SendWith::Invalidate(Rkey(imm)), bytes()),
        SendOpcode::LocalInval => Request::LocalInval(Rkey(imm)),
        SendOpcode::Wait => {
            let n = narrow(v, "wait");
            Request::Wait(n[1], n[0])
        }
        SendOpcode::Dump => Request::Dump(sges(v)[0]),
        SendOpcode::RdmaWrite => Request::Write(remote(), None, bytes()),
        SendOpcode::RdmaWriteImm => Request::Write(remote(), Some(imm), bytes()),
        SendOpcode::RdmaRead => Request::Read(remote(), sges(v)),
        opcode => atomic(v, opcode, remote()),
    }
}

#[test]
fn builder_and_parser_agree_with_the_vectors() {
    for v in vectors(&["send_wqe"]) {
        let at = Position { qpn: qpn(&v), index: WqeIndex(v.number("index") as u16) };
        let flags = Flags::from_byte(v.number("fm_ce_se") as u8).expect("valid flags");
        assert_eq!(request(&v).build(at, flags), v.bytes, "{}", v.name);
        let wqe = parse(&v.bytes, at).unwrap_or_else(|e| panic!("{}: {e}", v.name));
        assert_eq!(Request::of(&wqe.op), request(&v), "{}", v.name);
        assert_eq!(wqe.op.byte_len(), request(&v).byte_len(), "{}", v.name);
        assert_eq!(u64::from(wqe.ds), v.number("ds"), "{}", v.name);
        assert_eq!(wqe.wqebbs() * 64, v.bytes.len(), "{}", v.name);
        assert_eq!(u64::from(wqe.flags.to_byte()), v.number("fm_ce_se"), "{}", v.name);
        assert_eq!(u64::from(wqe.op.opcode().value()), v.number("opcode"), "{}", v.name);
        let remote = wqe.op.remote().map(|r| vec![r.addr, u64::from(r.rkey.0)]);
        assert_eq!(remote, v.all("raddr").pop(), "{}", v.name);
    }
}

#[test]
fn receive_wqes() {
    for v in vectors(&["recv_wqe", "srq_wqe"]) {
        let mut slot = vec![0; v.bytes.len()];
        let list = if v.kind() == "srq_wqe" {
            let next = v.number("next") as u16;
            recv::build_srq(&mut slot, next, &sges(&v)).expect("room");
            let (link, list) = recv::parse_srq(&v.bytes).expect("well formed");
            assert_eq!(link, next, "{}", v.name);
            list
        } else {
            recv::build(&mut slot, &sges(&v)).expect("room");
            recv::parse(&v.bytes).expect("well formed")
        };
        assert_eq!(list.iter().collect::<Vec<_>>(), sges(&v), "{}", v.name);
        assert_eq!(slot, v.bytes, "{}", v.name);
    }
}

fn completion(v: &Vector) -> Cqe {
    let qpn = qpn(v);
    let n = |key| v.number(key) as u32;
    let wqe_counter = n("wqe_counter") as u16;
    let opcode = SendOpcode::from_value(n("wqe_opcode") as u8);
    let error = |side| Cqe::Error {
        side,
        qpn,
        wqe_counter,
        opcode,
        syndrome: Syndrome::from_value(n("syndrome") as u8),
        vendor: n("vendor") as u8,
        srqn: v.values("srqn").map_or(0, |_| n("srqn")),
    };
    let kind = match n("cqe_opcode") {
        0 => return Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt: n("byte_cnt") },
        1 => ReceivedKind::WriteImm(n("imm")),
        2 => ReceivedKind::Send,
        3 => ReceivedKind::SendImm(n("imm")),
        4 => ReceivedKind::SendInvalidate(Rkey(n("imm"))),
        13 => return error(ErrorSide::Requester),
        14 => return error(ErrorSide::Responder),
        other => panic!("{}: opcode {other}", v.name),
    };
    Cqe::Receive {
        qpn,
        wqe_counter,
        kind,
        byte_cnt: n("byte_cnt"),
        srqn: n("srqn"),
        solicited: n("solicited") != 0,
        from: None,
    }
}

#[test]
fn completions() {
    for v in vectors(&["cqe"]) {
        let raw: [u8; 64] = v.bytes.as_slice().try_into().expect("64 bytes");
        let owner = v.number("owner") != 0;
        assert_eq!(Cqe::parse(&raw), Ok(completion(&v)), "{}", v.name);
        assert_eq!(completion(&v).emit(owner), raw, "{}", v.name);
        let tail = CqeTail::from_ne(u64::from_ne_bytes(raw[56..].try_into().expect("8 bytes")));
        assert!(owned_by_software(tail, u64::from(owner) << 7 | 5, 7), "{}", v.name);
        assert!(!owned_by_software(tail, u64::from(!owner) << 7 | 5, 7), "{}", v.name);
    }
}

#[test]
fn public_error_cqe() {
    for v in vectors(&["err_cqe_end"]) {
        let mut raw = [0; 64];
        raw[48..].copy_from_slice(&v.bytes);
        let cqe = Cqe::parse(&raw).expect("a completion");
        assert_eq!(cqe, completion(&v));
        assert!(matches!(cqe, Cqe::Error { syndrome: Syndrome::LocalQpOp, vendor: 0x61, .. }));
    }
}

#[test]
fn unwritten_and_foreign_entries_are_refused() {
    let unwritten = Cqe::parse(&[0xff; 64]);
    assert_eq!(unwritten, Err(CqeViolation::Unwritten { op_own: 0xff }));
    let mut raw = [0; 64];
    for nibble in [5, 6, 7, 8, 9, 10, 11, 12] {
        raw[63] = nibble << 4;
        assert!(matches!(Cqe::parse(&raw), Err(CqeViolation::Opcode { .. })), "{nibble}");
    }
    raw[63] = 3 << 2;
    assert_eq!(Cqe::parse(&raw), Err(CqeViolation::Format { format: 3 }));
}

#[test]
fn doorbells() {
    for v in vectors(&["doorbell"]) {
        let bytes = v.bytes.as_slice().try_into().expect("8 bytes");
        let doorbell = Doorbell::parse(bytes);
        assert_eq!(doorbell.qpn(), qpn(&v), "{}", v.name);
        assert_eq!(u64::from(doorbell.next().0), v.number("next"), "{}", v.name);
        assert_eq!(doorbell.bytes(), bytes, "{}", v.name);
        assert_eq!(Doorbell::from_ne(doorbell.to_ne()), doorbell);
        assert_eq!(matches!(doorbell, Doorbell::Last { .. }), v.values("last_index").is_some());
    }
}

#[test]
fn doorbell_records() {
    for v in vectors(&["qp_dbr"]) {
        let [rcv, snd] = [v.number("received"), v.number("sent")];
        let words = [record_word(rcv), record_word(snd)];
        assert_eq!(words.map(u32::to_ne_bytes).concat(), v.bytes);
    }
    for v in vectors(&["cq_dbr", "cq_arm"]) {
        let arm = CqArm {
            sn: v.number("sn") as u8,
            solicited_only: v.number("solicited_only") != 0,
            ci: v.number("ci") as u32 & 0xff_ffff,
        };
        if v.kind() == "cq_arm" {
            let cqn = v.number("cqn") as u32;
            assert_eq!(arm.doorbell(cqn).as_slice(), v.bytes);
        } else {
            let words = [set_ci_word(v.number("ci")), arm.word().to_be()];
            assert_eq!(words.map(u32::to_ne_bytes).concat(), v.bytes);
        }
        assert_eq!(CqArm::from_word(arm.word()), arm);
    }
}
