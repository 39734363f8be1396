//! One wrong field in a good WQE gives the violation that names it.

use crate::offsets::built;
use crate::request::{Payload, Request, request};
use proptest::prelude::*;
use warpverbs_bnxt::opcode::WqeType;
use warpverbs_bnxt::recv;
use warpverbs_bnxt::ring::Library;
use warpverbs_bnxt::wqe::{
    BuildError, Posted, WqeViolation, build, build_datagram, parse, parse_datagram,
};
use warpverbs_rdma::{Addressed, Data, Op, Qpn, Remote, SendFlags, Sge, Status, WorkRequest};

fn parse_as<'a>(request: &Request, raw: &'a [u8]) -> Result<Posted<'a>, WqeViolation> {
    if request.to.is_some() { parse_datagram(raw) } else { parse(raw, Library::Current) }
}

proptest! {
    #[test]
    fn truncation(request in request(), keep in 0.0..1.0) {
        let raw = built(&request);
        let available = (raw.len() as f64 * keep) as usize;
        let expected = if available < 32 { 32 } else { raw.len() };
        let violation = WqeViolation::Truncated { available, expected };
        prop_assert_eq!(parse_as(&request, &raw[..available]), Err(violation));
    }

    #[test]
    fn types(request in request(), value: u8) {
        let mut raw = built(&request);
        raw[0] = value;
        let wqe_type = WqeType::from_value(value);
        let known = [0, 1, 2, 4, 5, 6, 8, 0xb, 0xc, 0xe, 0x80].contains(&value);
        let expected = match known {
            false => WqeViolation::UnknownType { value },
            true if !wqe_type.is_parsed() => WqeViolation::UnsupportedType { wqe_type },
            true if request.to.is_some() && value > 1 => WqeViolation::UnsupportedType { wqe_type },
            true => return Ok(()),
        };
        // READs and atomics do not allow inline bytes, which is found first.
        raw[1] &= !0x10;
        prop_assert_eq!(parse_as(&request, &raw), Err(expected));
    }

    #[test]
    fn flags_and_reserved(request in request(), bit in 5..8_u8, reserved in 1..=u8::MAX) {
        let mut raw = built(&request);
        raw[3] = reserved;
        prop_assert_eq!(parse_as(&request, &raw), Err(WqeViolation::Reserved { value: reserved }));
        raw[1] |= 1 << bit;
        let (wqe_type, value) = (WqeType::from_value(raw[0]), raw[1]);
        let carries = !matches!(raw[0], 6 | 8 | 0xb);
        let allowed = if carries { 0x1f } else { 0x0f };
        let violation = WqeViolation::Flags { wqe_type, value, allowed };
        prop_assert_eq!(parse_as(&request, &raw), Err(violation));
    }

    #[test]
    fn length(request in request(), other: u32) {
        prop_assume!(!request.op.is_atomic() && u64::from(other) != request.byte_len());
        let mut raw = built(&request);
        raw[8..12].copy_from_slice(&other.to_le_bytes());
        let found = parse_as(&request, &raw);
        match &request.payload {
            Payload::Sges(_) => {
                let expected = request.byte_len();
                prop_assert_eq!(found, Err(WqeViolation::Length { value: other, expected }));
            }
            Payload::Inline(_) if other as usize <= raw.len() - 32 => {
                prop_assert_eq!(found.map(|posted| posted.byte_len()), Ok(other.into()));
            }
            Payload::Inline(_) => {
                let (length, slots) = (other, raw[2]);
                let expected = u64::from(other).div_ceil(16) + 2;
                let expected = expected as u32;
                let violation = WqeViolation::InlineLength { length, slots, expected };
                prop_assert_eq!(found, Err(violation));
            }
        }
    }
}

const REMOTE: Remote = Remote::new(0x1000, 1);
const SGE: Sge = Sge::new(0x2000, 8, 2);

fn work<'a>(op: Op, data: Data<'a>) -> WorkRequest<'a> {
    WorkRequest { id: 0, op, data, flags: SendFlags::SIGNALED }
}

/// Builds, changes one byte, and returns the violation.
fn violation(op: Op, at: usize, byte: u8) -> WqeViolation {
    let mut buf = [0; 64];
    build(&mut buf, &work(op, Data::Sges(&[SGE]))).expect("it fits");
    buf[at] = byte;
    parse(&buf, Library::Current).expect_err("a violation")
}

#[test]
fn slots() {
    let add = Op::FetchAdd { remote: REMOTE, add: 1 };
    let wqe_type = WqeType::FetchAdd;
    for value in [2, 4] {
        let expected = WqeViolation::Slots { wqe_type, value, min: 3, max: 3 };
        assert_eq!(violation(add, 2, value), expected);
    }
    let size = violation(add, 44, 7);
    assert_eq!(size, WqeViolation::AtomicSize { wqe_type, value: 7 });
    assert_eq!((size.field(), size.status()), ("sge.length", Status::LocalLength));
    assert_eq!(size.to_string(), "sge.length is 7 with ATOMIC_FA (0x0b), expected 8");
    let inline = violation(add, 1, 0x11);
    let text = "header.flags is 0x11 with ATOMIC_FA (0x0b), expected no bits but 0x0f";
    assert_eq!((inline.field(), inline.to_string().as_str()), ("header.flags", text));
    for value in [0, 1] {
        let (wqe_type, min, max) = (WqeType::Write, 2, 255);
        let expected = WqeViolation::Slots { wqe_type, value, min, max };
        assert_eq!(violation(Op::Write(REMOTE), 2, value), expected);
        assert_eq!(expected.status(), Status::LocalQpOperation);
    }
}

#[test]
fn datagrams() {
    let to = Addressed { handle: 0xf_ffff, qpn: Qpn::MAX, qkey: 7 };
    let mut buf = [0; 64];
    build_datagram(&mut buf, to, &work(Op::Send, Data::Sges(&[SGE]))).expect("it fits");
    assert_eq!(parse_datagram(&buf).map(|posted| posted.to), Ok(Some(to)));
    let with = |at: usize| {
        let mut raw = buf;
        raw[at] = 0x10;
        parse_datagram(&raw).err()
    };
    assert_eq!(with(19), Some(WqeViolation::DatagramQpn { value: 0x10ff_ffff }));
    assert_eq!(with(22), Some(WqeViolation::DatagramHandle { value: 0x10_ffff }));
    let write = build_datagram(&mut buf, to, &work(Op::Write(REMOTE), Data::Sges(&[SGE])));
    assert_eq!(write, Err(BuildError::NoDatagram { wqe_type: WqeType::Write }));
}

#[test]
fn receives() {
    let mut good = [0; 64];
    recv::build(&mut good, 5, &[SGE, SGE]).expect("it fits");
    let with = |at: usize, byte: u8| {
        let mut raw = good;
        raw[at] = byte;
        recv::parse(&raw).map(|(id, _)| id)
    };
    assert_eq!(with(1, 0xff), Ok(5));
    assert_eq!(with(0, 0x81), Err(WqeViolation::UnknownType { value: 0x81 }));
    let wqe_type = WqeType::Send;
    assert_eq!(with(0, 0), Err(WqeViolation::UnsupportedType { wqe_type }));
    assert_eq!(with(3, 1), Err(WqeViolation::Reserved { value: 1 }));
    let wqe_type = WqeType::Recv;
    let expected = WqeViolation::Slots { wqe_type, value: 2, min: 3, max: 255 };
    assert_eq!(with(2, 2), Err(expected));
    let expected = WqeViolation::Truncated { available: 64, expected: 80 };
    assert_eq!(with(2, 5), Err(expected));
    let expected = WqeViolation::Truncated { available: 31, expected: 32 };
    assert_eq!(recv::parse(&good[..31]), Err(expected));
    let small = BuildError::BufferTooSmall { needed: 48, available: 47 };
    assert_eq!(recv::build(&mut good[..47], 5, &[]), Err(small));
}

#[test]
fn builder_refuses() {
    let mut buf = [0; 4096];
    let mut refused = |op, data| build(&mut buf, &work(op, data)).expect_err("refused");
    let long = [Sge { len: 1, ..SGE }; 254];
    let many = refused(Op::Read(REMOTE), Data::Sges(&long));
    assert_eq!(many, BuildError::TooManySlots { needed: 256 });
    let many = refused(Op::Send, Data::Inline(&[0; 253 * 16 + 1]));
    assert_eq!(many, BuildError::TooManySlots { needed: 256 });
    let wqe_type = WqeType::Read;
    let inline = refused(Op::Read(REMOTE), Data::Inline(b"x"));
    assert_eq!(inline, BuildError::Inline { wqe_type });
    let bytes = 2 * u64::from(u32::MAX);
    let too_long = refused(Op::Send, Data::Sges(&[Sge { len: u32::MAX, ..SGE }; 2]));
    assert_eq!(too_long, BuildError::TooLong { bytes });
    let add = Op::FetchAdd { remote: REMOTE, add: 1 };
    let wqe_type = WqeType::FetchAdd;
    let result = refused(add, Data::Sges(&[Sge { len: 4, ..SGE }; 2]));
    assert_eq!(result, BuildError::AtomicResult { wqe_type, entries: 2, bytes: 8 });
    let small = build(&mut buf[..47], &work(add, Data::Sges(&[SGE])));
    assert_eq!(small, Err(BuildError::BufferTooSmall { needed: 48, available: 47 }));
}
