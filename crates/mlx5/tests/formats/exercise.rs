//! Any bytes through every parser: what the fuzz target and the corpus test run.
//!
//! The first byte of the input says where the WQE is taken to stand: even, at a fixed place; odd,
//! at the place that its own control segment names, so that the checks behind are reached.

use super::request::Request;
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::{CqArm, Doorbell};
use warpverbs_mlx5::num::{Qpn, WqeIndex};
use warpverbs_mlx5::recv;
use warpverbs_mlx5::wqe::{Op, Position, Sges, Wqe, parse, peek};

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
    let request = Request::of(&wqe.op);
    assert_eq!(wqe.op.byte_len(), request.byte_len());
    let again = request.build(at, wqe.flags);
    let parsed = parse(&again, at).expect("the builder makes good WQEs");
    assert_eq!(parsed.op, wqe.op);
    assert_eq!(parsed.flags, wqe.flags);
    // Only a NOP may carry a segment without a meaning.
    assert!(parsed.ds == wqe.ds || wqe.op == Op::Nop);
}

fn check_list(list: &Sges<'_>) {
    assert!(list.iter().all(|sge| sge.len > 0 && sge.len >> 31 == 0));
    assert_eq!(list.iter().map(|sge| u64::from(sge.len)).sum::<u64>(), list.byte_len());
}
