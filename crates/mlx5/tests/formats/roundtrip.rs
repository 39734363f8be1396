//! Builder → ring → parser gives back what went in, and the builder refuses what does not fit.

use crate::request::Request;
use crate::strategies::{flags, position, request};
use proptest::prelude::*;
use warpverbs_mlx5::num::{Lkey, Qpn, Rkey, WQEBB, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::ring::{self, RingError};
use warpverbs_mlx5::wqe::{
    BuildError, Local, PayloadKind, Position, Remote, Sge, WqeBuilder, parse, peek,
};

proptest! {
    #[test]
    fn through_a_ring(request in request(), at in position(), flags in flags(), log in 4u32..8) {
        let built = request.build(at, flags);
        let mut sq = vec![0xee; WQEBB << log];
        ring::store(&mut sq, at.index, &built).expect("a ring of at least 16 WQEBBs");

        let mut first = [0; WQEBB];
        ring::load(&sq, at.index, &mut first).expect("one WQEBB");
        let mut fetched = vec![0; peek(&first) * WQEBB];
        ring::load(&sq, at.index, &mut fetched).expect("the WQE");
        prop_assert_eq!(&fetched, &built);

        let wqe = parse(&fetched, at).expect("well formed");
        prop_assert_eq!(wqe.at, at);
        prop_assert_eq!(wqe.flags, flags);
        prop_assert_eq!(wqe.wqebbs() * WQEBB, built.len());
        prop_assert_eq!(wqe.op.byte_len(), request.byte_len());
        prop_assert_eq!(Request::of(&wqe.op), request);
    }
}

const AT: Position = Position { qpn: Qpn::MAX, index: WqeIndex(1) };
const REMOTE: Remote = Remote { addr: 0x1000, rkey: Rkey(1) };
const SGE: Sge = Sge { addr: 0x2000, len: 4, lkey: Lkey(2) };

#[test]
fn builder_refuses() {
    let mut buf = [0; 1024];
    let long = WqeBuilder::send(&mut buf, AT).inline(&[0; 989]).finish();
    assert_eq!(long, Err(BuildError::TooLong { needed: 64 }));
    let long = (0..63).fold(WqeBuilder::read(&mut buf, AT, REMOTE), |b, _| b.sge(SGE)).finish();
    assert_eq!(long, Err(BuildError::TooLong { needed: 64 }));

    for len in [0, 1 << 31, u32::MAX] {
        let bad = WqeBuilder::send(&mut buf, AT).sge(Sge { len, ..SGE }).sge(SGE).finish();
        assert_eq!(bad, Err(BuildError::SgeLength { len }));
    }

    let small = WqeBuilder::write(&mut buf[..100], AT, REMOTE).inline(&[0; 29]).finish();
    assert_eq!(small, Err(BuildError::BufferTooSmall { needed: 128, available: 100 }));
    let small = WqeBuilder::nop(&mut [], AT).finish();
    assert_eq!(small, Err(BuildError::BufferTooSmall { needed: 64, available: 0 }));
}

#[test]
fn builder_refuses_the_wrong_kind_of_payload() {
    let mut buf = [0; 1024];
    let refused = |opcode, what| Err(BuildError::PayloadKind { opcode, what });
    let read = WqeBuilder::read(&mut buf, AT, REMOTE).inline(b"x").finish();
    assert_eq!(read, refused(SendOpcode::RdmaRead, PayloadKind::Inline));
    let nop = WqeBuilder::nop(&mut buf, AT).sge(SGE).finish();
    assert_eq!(nop, refused(SendOpcode::Nop, PayloadKind::Sge));
    let both = WqeBuilder::send(&mut buf, AT).sge(SGE).inline(b"x").finish();
    assert_eq!(both, refused(SendOpcode::Send, PayloadKind::Inline));
    let twice = WqeBuilder::send(&mut buf, AT).inline(b"x").inline(b"y").finish();
    assert_eq!(twice, refused(SendOpcode::Send, PayloadKind::Inline));
    let dump = WqeBuilder::dump(&mut buf, AT, SGE).sge(SGE).finish();
    assert_eq!(dump, refused(SendOpcode::Dump, PayloadKind::Sge));
    let result = Local { addr: SGE.addr, lkey: SGE.lkey };
    let atomic = WqeBuilder::fetch_add(&mut buf, AT, REMOTE, 1, result).sge(SGE).finish();
    assert_eq!(atomic, refused(SendOpcode::AtomicFa, PayloadKind::Sge));
}

#[test]
fn ring_refuses() {
    let mut ring = [0; 4 * WQEBB];
    let mut wqe = [0; 5 * WQEBB];
    let size = ring.len();
    let too_long = RingError::WqeSize { bytes: wqe.len(), ring: size };
    assert_eq!(ring::store(&mut ring, WqeIndex(0), &wqe), Err(too_long));
    assert_eq!(ring::load(&ring, WqeIndex(0), &mut wqe), Err(too_long));
    let part = RingError::WqeSize { bytes: 16, ring: size };
    assert_eq!(ring::store(&mut ring, WqeIndex(0), &wqe[..16]), Err(part));
    for bytes in [0, 3 * WQEBB, 65] {
        let bad = ring::store(&mut wqe[..bytes], WqeIndex(0), &[0; WQEBB]);
        assert_eq!(bad, Err(RingError::RingSize { bytes }));
    }
}
