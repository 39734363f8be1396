//! The golden vectors against parser, builder and completions.

use crate::golden::{Vector, hex_bytes, vectors};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::cqe::{Cqe, ErrorSide, ReceivedKind, owned_by_software};
use warpverbs_mlx5::cqe::{CqeTail, CqeViolation};
use warpverbs_mlx5::doorbell::{CqArm, Doorbell, record_word, set_ci_word};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{Lkey, Qpn, Rkey, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::recv;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Local, Op, Payload, Position, Remote, SendWith, Sge, WqeBuilder, parse};

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

/// The vector's atomic by the builder.
fn build_atomic<'b>(
    v: &Vector,
    buf: &'b mut [u8],
    at: Position,
    opcode: SendOpcode,
    remote: Remote,
) -> WqeBuilder<'b> {
    let one = |key| v.all(key).remove(0);
    let narrow = |key| narrow(v, key);
    let result = sges(v).first().map(|s| Local { addr: s.addr, lkey: s.lkey }).expect("an SGE");
    match (opcode, v.number("opmod")) {
        (SendOpcode::AtomicCs, 0) => {
            let n = one("atomic");
            WqeBuilder::compare_swap(buf, at, remote, n[1], n[0], result)
        }
        (SendOpcode::AtomicFa, 0) => {
            WqeBuilder::fetch_add(buf, at, remote, one("atomic")[0], result)
        }
        (SendOpcode::MaskedFa, 8) => {
            let n = narrow("masked_fa4");
            let o = MaskedFetchAdd::B4(MaskedFa { add: n[0], boundary: n[1] });
            WqeBuilder::masked_fetch_add(buf, at, remote, o, result)
        }
        (SendOpcode::MaskedFa, 9) => {
            let n = one("masked_fa8");
            let o = MaskedFetchAdd::B8(MaskedFa { add: n[0], boundary: n[1] });
            WqeBuilder::masked_fetch_add(buf, at, remote, o, result)
        }
        (SendOpcode::MaskedCs, 8) => {
            let n = narrow("masked_cs4");
            let (swap, compare, swap_mask, compare_mask) = (n[0], n[1], n[2], n[3]);
            let o = MaskedCompareSwap::B4(MaskedCs { compare, compare_mask, swap, swap_mask });
            WqeBuilder::masked_compare_swap(buf, at, remote, o, result)
        }
        (SendOpcode::MaskedCs, 9) => {
            let n = one("masked_cs8");
            let (swap, compare, swap_mask, compare_mask) = (n[0], n[1], n[2], n[3]);
            let o = MaskedCompareSwap::B8(MaskedCs { compare, compare_mask, swap, swap_mask });
            WqeBuilder::masked_compare_swap(buf, at, remote, o, result)
        }
        other => panic!("{}: {other:?}", v.name),
    }
}

/// The vector's WQE by the builder.
fn build<'b>(v: &Vector, buf: &'b mut [u8], at: Position) -> &'b [u8] {
    let imm = v.number("imm") as u32;
    let remote = || {
        let n = v.all("raddr").remove(0);
        Remote { addr: n[0], rkey: Rkey(n[1] as u32) }
    };
    let mut payload = true;
    let mut builder = match SendOpcode::from_value(v.number("opcode") as u8) {
        SendOpcode::Nop => WqeBuilder::nop(buf, at),
        SendOpcode::Send => WqeBuilder::send(buf, at),
        SendOpcode::SendImm => WqeBuilder::send_imm(buf, at, imm),
        SendOpcode::SendInval => WqeBuilder::send_inval(buf, at, Rkey(imm)),
        SendOpcode::LocalInval => WqeBuilder::local_inval(buf, at, Rkey(imm)),
        SendOpcode::Wait => {
            let n = narrow(v, "wait");
            WqeBuilder::wait(buf, at, n[1], n[0])
        }
        SendOpcode::Dump => {
            payload = false;
            WqeBuilder::dump(buf, at, sges(v)[0])
        }
        SendOpcode::RdmaWrite => WqeBuilder::write(buf, at, remote()),
        SendOpcode::RdmaWriteImm => WqeBuilder::write_imm(buf, at, remote(), imm),
        SendOpcode::RdmaRead => WqeBuilder::read(buf, at, remote()),
        atomic => {
            payload = false;
            build_atomic(v, buf, at, atomic, remote())
        }
    };
    let flags = Flags::from_byte(v.number("fm_ce_se") as u8).expect("valid flags");
    builder = builder.fence(flags.fence).completion(flags.completion);
    if flags.solicited {
        builder = builder.solicited();
    }
    if let Some(bytes) = v.values("inline") {
        builder = builder.inline(&hex_bytes(bytes));
    }
    for sge in sges(v).into_iter().filter(|_| payload) {
        builder = builder.sge(sge);
    }
    builder.finish().unwrap_or_else(|e| panic!("{}: {e}", v.name))
}

#[test]
fn builder_makes_the_bytes() {
    for v in vectors(&["send_wqe"]) {
        let at = Position { qpn: qpn(&v), index: WqeIndex(v.number("index") as u16) };
        let mut buf = [0xa5; 1024];
        assert_eq!(build(&v, &mut buf, at), v.bytes, "{}", v.name);
    }
}

#[test]
fn parser_reads_the_fields() {
    for v in vectors(&["send_wqe"]) {
        let at = Position { qpn: qpn(&v), index: WqeIndex(v.number("index") as u16) };
        let wqe = parse(&v.bytes, at).unwrap_or_else(|e| panic!("{}: {e}", v.name));
        assert_eq!(u64::from(wqe.ds), v.number("ds"), "{}", v.name);
        assert_eq!(wqe.wqebbs() * 64, v.bytes.len(), "{}", v.name);
        assert_eq!(u64::from(wqe.flags.to_byte()), v.number("fm_ce_se"), "{}", v.name);
        assert_eq!(u64::from(wqe.op.opcode().value()), v.number("opcode"), "{}", v.name);
        let remote = wqe.op.remote().map(|r| vec![r.addr, u64::from(r.rkey.0)]);
        assert_eq!(remote, v.all("raddr").pop(), "{}", v.name);
        check_op(&v, &wqe.op);
    }
}

fn check_op(v: &Vector, op: &Op<'_>) {
    let imm = v.number("imm") as u32;
    let expected = sges(v);
    let total: u64 = expected.iter().map(|s| u64::from(s.len)).sum();
    let check_payload = |payload: &Payload<'_>| match (payload, v.values("inline")) {
        (Payload::Inline(bytes), Some(values)) => assert_eq!(*bytes, hex_bytes(values)),
        (Payload::Sges(list), None) => {
            assert_eq!(list.iter().collect::<Vec<_>>(), expected);
            assert_eq!(list.byte_len(), total);
        }
        other => panic!("{}: {other:?}", v.name),
    };
    match op {
        Op::Nop => assert_eq!(v.bytes.len(), 64),
        Op::LocalInval { rkey } => assert_eq!(rkey.0, imm),
        Op::Wait { cqn, index } => {
            assert_eq!(vec![u64::from(*index), u64::from(*cqn)], v.all("wait")[0]);
        }
        Op::Dump { local } => assert_eq!(vec![*local], expected),
        Op::SendTo { .. } => unreachable!("only parse_datagram gives it"),
        Op::Send { with, payload } => {
            check_payload(payload);
            match with {
                SendWith::Nothing => assert_eq!(imm, 0),
                SendWith::Imm(value) => assert_eq!(*value, imm),
                SendWith::Invalidate(rkey) => assert_eq!(rkey.0, imm),
            }
        }
        Op::Write { payload, imm: found, .. } => {
            check_payload(payload);
            assert_eq!(found.unwrap_or(0), imm);
        }
        Op::Read { local, .. } => assert_eq!(local.iter().collect::<Vec<_>>(), expected),
        Op::CompareSwap { compare, swap, result, .. } => {
            assert_eq!(vec![*swap, *compare], v.all("atomic")[0]);
            assert_eq!(*result, expected[0]);
        }
        Op::FetchAdd { add, result, .. } => {
            assert_eq!(vec![*add, 0], v.all("atomic")[0]);
            assert_eq!(*result, expected[0]);
        }
        Op::MaskedFetchAdd { operands, result, .. } => {
            let (key, n) = match operands {
                MaskedFetchAdd::B4(o) => {
                    ("masked_fa4", vec![u64::from(o.add), u64::from(o.boundary), 0, 0])
                }
                MaskedFetchAdd::B8(o) => ("masked_fa8", vec![o.add, o.boundary]),
            };
            assert_eq!(n, v.all(key)[0]);
            assert_eq!(*result, expected[0]);
        }
        Op::MaskedCompareSwap { operands, result, .. } => {
            let (key, n) = match operands {
                MaskedCompareSwap::B4(o) => (
                    "masked_cs4",
                    [o.swap, o.compare, o.swap_mask, o.compare_mask].map(u64::from).to_vec(),
                ),
                MaskedCompareSwap::B8(o) => {
                    ("masked_cs8", vec![o.swap, o.compare, o.swap_mask, o.compare_mask])
                }
            };
            assert_eq!(n, v.all(key)[0]);
            assert_eq!(*result, expected[0]);
        }
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
