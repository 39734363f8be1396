//! One wrong field in a good WQE gives the violation that names it.

use crate::offsets::{built, parse_as, position, protocol};
use crate::request::{Payload, request};
use proptest::prelude::*;
use warpverbs_ionic::doorbell::{Arm, Doorbell, DoorbellViolation};
use warpverbs_ionic::opcode::{Opcode, Protocol};
use warpverbs_ionic::recv;
use warpverbs_ionic::ring::{Position, counter};
use warpverbs_ionic::wqe::{
    BuildError, WqeViolation, build, build_datagram, parse, parse_datagram,
};
use warpverbs_rdma::{Addressed, Data, Op, Qpn, Remote, SendFlags, Sge, Status, WorkRequest};

proptest! {
    #[test]
    fn place(request in request(), at in position(), protocol in protocol(), other: u64) {
        let (raw, mask) = (built(&request, at, protocol), (1 << at.log_depth) - 1);
        let depth = 1 << at.log_depth;
        let counter = at.counter & !mask | other & mask;
        let wrong = Position { counter, ..at };
        if counter != at.counter {
            let (value, expected) = (at.index().into(), wrong.index());
            let violation = WqeViolation::Index { value, expected, depth };
            prop_assert_eq!(parse_as(&request, &raw, wrong, protocol), Err(violation));
        }
        let next_lap = Position { counter: at.counter + u64::from(depth), ..at };
        let violation = WqeViolation::Color { expected: !at.color() };
        prop_assert_eq!(parse_as(&request, &raw, next_lap, protocol), Err(violation));
    }

    #[test]
    fn size(request in request(), at in position(), available in 0..256_usize) {
        prop_assume!(!available.is_power_of_two() || available < 64);
        let mut raw = built(&request, at, Protocol::V2);
        raw.resize(256, 0);
        let violation = WqeViolation::Size { available };
        let found = parse_as(&request, &raw[..available], at, Protocol::V2);
        prop_assert_eq!(found, Err(violation));
        prop_assert_eq!(recv::parse(&raw[..available], at), Err(violation));
        let refused = recv::build(&mut raw[..available], at, &[]);
        prop_assert_eq!(refused, Err(BuildError::Size { available }));
    }

    #[test]
    fn opcodes(request in request(), at in position(), protocol in protocol(), value: u8) {
        let mut raw = built(&request, at, protocol);
        raw[8] = value;
        // READs and atomics do not allow inline bytes.
        raw[11] &= !4;
        let known = match protocol {
            Protocol::V1 => value <= 0xa,
            Protocol::V2 => (2..=8).contains(&value) && value != 3
                || [0x20, 0x60, 0xa0, 0x21, 0x61].contains(&value),
        };
        let opcode = Opcode::from_value(protocol, value);
        prop_assert_eq!(opcode.is_some(), known);
        let expected = match opcode {
            None => WqeViolation::UnknownOpcode { value, protocol },
            Some(opcode) if !opcode.is_parsed() => WqeViolation::UnsupportedOpcode { opcode },
            Some(opcode) if request.to.is_some() && !matches!(opcode, Opcode::Send | Opcode::SendImm) => {
                WqeViolation::UnsupportedOpcode { opcode }
            }
            Some(_) => return Ok(()),
        };
        prop_assert_eq!(parse_as(&request, &raw, at, protocol), Err(expected));
    }

    #[test]
    fn flags(request in request(), at in position(), bit in 5..16_u8) {
        let mut raw = built(&request, at, Protocol::V2);
        let value = u16::from_be_bytes([raw[10], raw[11]]) | 1 << bit;
        raw[10..12].copy_from_slice(&value.to_be_bytes());
        let opcode = Opcode::from_value(Protocol::V2, raw[8]).expect("known");
        let carries = !matches!(raw[8], 2 | 4 | 5);
        let allowed = if carries { 0x1f } else { 0x1b };
        let violation = WqeViolation::Flags { opcode, value, allowed };
        prop_assert_eq!(parse_as(&request, &raw, at, Protocol::V2), Err(violation));
    }

    #[test]
    fn length(request in request(), at in position(), protocol in protocol(), other: u32) {
        prop_assume!(!request.op.is_atomic() && u64::from(other) != request.byte_len());
        let mut raw = built(&request, at, protocol);
        raw[28..32].copy_from_slice(&other.to_be_bytes());
        let found = parse_as(&request, &raw, at, protocol);
        match &request.payload {
            Payload::Sges(_) => {
                let expected = request.byte_len();
                prop_assert_eq!(found, Err(WqeViolation::Length { value: other, expected }));
            }
            Payload::Inline(_) if other as usize <= raw.len() - 32 => {
                prop_assert_eq!(found.map(|posted| posted.byte_len()), Ok(other.into()));
            }
            Payload::Inline(_) => {
                let violation = WqeViolation::InlineLength { value: other, max: raw.len() - 32 };
                prop_assert_eq!(found, Err(violation));
            }
        }
    }
}

const AT: Position = Position { counter: 5, log_depth: 6 };
const REMOTE: Remote = Remote::new(0x1000, 1);
const SGE: Sge = Sge::new(0x2000, 8, 2);

fn work<'a>(op: Op, data: Data<'a>) -> WorkRequest<'a> {
    WorkRequest { id: 0, op, data, flags: SendFlags::SIGNALED }
}

/// Builds, changes one byte, and returns the violation.
fn violation(protocol: Protocol, op: Op, data: Data<'_>, at: usize, byte: u8) -> WqeViolation {
    let mut raw = [0; 64];
    build(&mut raw, AT, protocol, &work(op, data)).expect("it fits");
    raw[at] = byte;
    parse(&raw, AT, protocol).expect_err("a violation")
}

#[test]
fn entries() {
    let (v2, one) = (Protocol::V2, Data::Sges(&[SGE]));
    let found = violation(v2, Op::Write(REMOTE), one, 9, 3);
    assert_eq!(found, WqeViolation::Entries { value: 3, min: 0, max: 2 });
    assert_eq!(found.to_string(), "header.entries is 3, expected 0 to 2");
    let found = violation(v2, Op::Write(REMOTE), Data::Inline(b"x"), 9, 1);
    assert_eq!(found, WqeViolation::Entries { value: 1, min: 0, max: 0 });
    let add = Op::FetchAdd { remote: REMOTE, add: 1 };
    for value in [0, 2] {
        let found = violation(v2, add, one, 9, value);
        assert_eq!(found, WqeViolation::Entries { value, min: 1, max: 1 });
        assert_eq!((found.field(), found.status()), ("header.entries", Status::LocalQpOperation));
    }
    let size = violation(Protocol::V1, add, one, 59, 7);
    assert_eq!(size, WqeViolation::AtomicSize { opcode: Opcode::FetchAdd, value: 7 });
    assert_eq!(size.to_string(), "body.result.length is 7 with ATOMIC_FA, expected 8");
    assert_eq!(size.status(), Status::LocalLength);

    let mut raw = [0; 64];
    recv::build(&mut raw, AT, &[SGE]).expect("it fits");
    raw[9] = 3;
    let found = recv::parse(&raw, AT);
    assert_eq!(found, Err(WqeViolation::Entries { value: 3, min: 0, max: 2 }));
}

#[test]
fn datagrams() {
    let to = Addressed { handle: 9, qpn: Qpn::MAX, qkey: 7 };
    let (mut raw, v2) = ([0; 64], Protocol::V2);
    build_datagram(&mut raw, AT, v2, to, &work(Op::Send, Data::Sges(&[SGE]))).expect("it fits");
    assert_eq!(parse_datagram(&raw, AT, v2).map(|posted| posted.to), Ok(Some(to)));
    raw[20] = 1;
    let found = parse_datagram(&raw, AT, v2);
    assert_eq!(found, Err(WqeViolation::DatagramQpn { value: 0x1ff_ffff }));
    let write = work(Op::Write(REMOTE), Data::Sges(&[SGE]));
    let refused = build_datagram(&mut raw, AT, v2, to, &write);
    assert_eq!(refused, Err(BuildError::NoDatagram { opcode: Opcode::Write }));
}

#[test]
fn builder_refuses() {
    let mut raw = [0; 64];
    let mut refused =
        |op, data| build(&mut raw, AT, Protocol::V2, &work(op, data)).expect_err("refused");
    let many = refused(Op::Send, Data::Sges(&[SGE; 3]));
    assert_eq!(many, BuildError::TooManyEntries { entries: 3, room: 2 });
    let long = refused(Op::Send, Data::Inline(&[0; 33]));
    assert_eq!(long, BuildError::InlineTooLong { bytes: 33, room: 32 });
    let opcode = Opcode::Read;
    let inline = refused(Op::Read(REMOTE), Data::Inline(b"x"));
    assert_eq!(inline, BuildError::Inline { opcode });
    let bytes = 2 * u64::from(u32::MAX);
    let too_long = refused(Op::Send, Data::Sges(&[Sge { len: u32::MAX, ..SGE }; 2]));
    assert_eq!(too_long, BuildError::TooLong { bytes });
    let (add, opcode) = (Op::FetchAdd { remote: REMOTE, add: 1 }, Opcode::FetchAdd);
    let result = refused(add, Data::Sges(&[Sge { len: 4, ..SGE }; 2]));
    assert_eq!(result, BuildError::AtomicResult { opcode, entries: 2, bytes: 8 });
}

#[test]
fn malformed_doorbells() {
    let good = Doorbell { queue: Qpn::MAX, index: 3, arm: Some(Arm::Solicited) };
    assert_eq!(good.word(), 0x0000_ffff_ff02_0003);
    assert_eq!(Doorbell::parse(good.word()), Ok(good));
    let any = Doorbell { arm: Some(Arm::Any), ..good };
    assert_eq!((any.word(), Doorbell::parse(any.word())), (0x0000_ffff_ff01_0003, Ok(any)));
    for bit in (18..24).chain(48..64) {
        let found = Doorbell::parse(good.word() | 1 << bit).expect_err("a reserved bit");
        assert_eq!(found.field(), "doorbell.reserved", "{bit}");
    }
    assert_eq!(Doorbell::parse(3 << 16), Err(DoorbellViolation::Arm));
    let found = counter(64, 0, 6).expect_err("outside");
    assert_eq!(found, DoorbellViolation::Index { value: 64, size: 64 });
    assert_eq!(found.to_string(), "doorbell.index is 64, expected less than 64, the ring's size");
    assert_eq!((counter(0, 7, 0), counter(0xffff, 0, 16)), (Ok(7), Ok(0xffff)));
}
