//! Any bytes through every parser: what the fuzz target and the corpus test run.
//!
//! The first byte of the input says where the WQE is taken to stand: even, at a fixed place; odd,
//! at the place that its own control segment names, so that the checks behind are reached.

use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::{CqArm, Doorbell};
use warpverbs_mlx5::num::{MAX_WQE, Qpn, WqeIndex};
use warpverbs_mlx5::recv;
use warpverbs_mlx5::wqe::{Local, Op, Payload, Position, SendWith, Sge, Sges, Wqe};
use warpverbs_mlx5::wqe::{WqeBuilder, parse, peek};

/// Panics if a parser accepts what cannot be built again to the same meaning.
pub(crate) fn exercise(input: &[u8]) {
    let Some((&place, raw)) = input.split_first() else { return };
    let at = match Doorbell::parse(*raw.first_chunk().unwrap_or(&[0; 8])) {
        Doorbell::Last { qpn, index, .. } if place % 2 == 1 => Position { qpn, index },
        _ => Position { qpn: Qpn::MAX, index: WqeIndex(place.into()) },
    };
    match parse(raw, at) {
        Ok(wqe) => accepted(raw, at, &wqe),
        Err(violation) => {
            assert_ne!(violation.field(), "");
            assert!(matches!(violation.syndrome().value(), 1 | 2));
        }
    }
    for list in [recv::parse(raw).ok(), recv::parse_srq(raw).ok().map(|(_, list)| list)] {
        list.iter().for_each(check_list);
    }
    if let Some(Ok(cqe)) = raw.first_chunk().map(Cqe::parse) {
        assert_eq!(Cqe::parse(&cqe.emit(false)), Ok(cqe));
    }
    if let Some(&bytes) = raw.first_chunk() {
        let doorbell = Doorbell::parse(bytes);
        assert_eq!(Doorbell::parse(doorbell.bytes()), doorbell);
        let arm = CqArm::from_word(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        assert_eq!(CqArm::from_word(arm.word()), arm);
    }
}

fn accepted(raw: &[u8], at: Position, wqe: &Wqe<'_>) {
    assert!(usize::from(wqe.ds) * 16 <= raw.len());
    if let Some(first) = raw.first_chunk() {
        assert_eq!(peek(first), wqe.wqebbs());
    }
    let mut buf = [0; MAX_WQE];
    let again = rebuild(&mut buf, at, wqe);
    let parsed = parse(again, at).expect("the builder makes good WQEs");
    assert_eq!(parsed.op, wqe.op);
    assert_eq!(parsed.flags, wqe.flags);
    // Only a NOP may carry a segment without a meaning.
    assert!(parsed.ds == wqe.ds || wqe.op == Op::Nop);
}

fn check_list(list: &Sges<'_>) {
    assert!(list.iter().all(|sge| sge.len > 0 && sge.len >> 31 == 0));
    assert_eq!(list.iter().map(|sge| u64::from(sge.len)).sum::<u64>(), list.byte_len());
}

fn rebuild<'b>(buf: &'b mut [u8], at: Position, wqe: &Wqe<'_>) -> &'b [u8] {
    let local = |sge: Sge| Local { addr: sge.addr, lkey: sge.lkey };
    let entries = |builder: WqeBuilder<'b>, list: &Sges<'_>| {
        check_list(list);
        list.iter().fold(builder, WqeBuilder::sge)
    };
    let bytes = |builder: WqeBuilder<'b>, payload: &Payload<'_>| match payload {
        Payload::Inline(bytes) => builder.inline(bytes),
        Payload::Sges(list) => entries(builder, list),
        Payload::Mixed(mixed) => entries(builder.inline(mixed.inline()), &mixed.local()),
    };
    let builder = match &wqe.op {
        Op::Nop => WqeBuilder::nop(buf, at),
        Op::LocalInval { rkey } => WqeBuilder::local_inval(buf, at, *rkey),
        Op::Wait { cqn, index } => WqeBuilder::wait(buf, at, *cqn, *index),
        Op::Dump { local } => WqeBuilder::dump(buf, at, *local),
        Op::SendTo { .. } => unreachable!("only parse_datagram gives it"),
        Op::Send { with, payload } => {
            let builder = match *with {
                SendWith::Nothing => WqeBuilder::send(buf, at),
                SendWith::Imm(imm) => WqeBuilder::send_imm(buf, at, imm),
                SendWith::Invalidate(rkey) => WqeBuilder::send_inval(buf, at, rkey),
            };
            bytes(builder, payload)
        }
        Op::Write { remote, payload, imm } => {
            let builder = match *imm {
                None => WqeBuilder::write(buf, at, *remote),
                Some(imm) => WqeBuilder::write_imm(buf, at, *remote, imm),
            };
            bytes(builder, payload)
        }
        Op::Read { remote, local } => entries(WqeBuilder::read(buf, at, *remote), local),
        Op::CompareSwap { remote, compare, swap, result } => {
            WqeBuilder::compare_swap(buf, at, *remote, *compare, *swap, local(*result))
        }
        Op::FetchAdd { remote, add, result } => {
            WqeBuilder::fetch_add(buf, at, *remote, *add, local(*result))
        }
        Op::MaskedCompareSwap { remote, operands, result } => {
            WqeBuilder::masked_compare_swap(buf, at, *remote, *operands, local(*result))
        }
        Op::MaskedFetchAdd { remote, operands, result } => {
            WqeBuilder::masked_fetch_add(buf, at, *remote, *operands, local(*result))
        }
    };
    let builder = builder.fence(wqe.flags.fence).completion(wqe.flags.completion);
    let builder = if wqe.flags.solicited { builder.solicited() } else { builder };
    builder.finish().expect("a parsed WQE can be built")
}
