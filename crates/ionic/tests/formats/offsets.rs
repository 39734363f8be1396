//! An independent description of WQEs, field by field with its offset and size, against encoder and
//! parser.

use crate::request::{Payload, Request, request, sges};
use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::recv;
use warpverbs_ionic::ring::Position;
use warpverbs_ionic::wqe::{Posted, WqeViolation, build, build_datagram, parse, parse_datagram};
use warpverbs_rdma::{Op, SendFlags, Sge};

/// The WQE that the encoder makes of a request, of the smallest size that fits.
pub(crate) fn built(request: &Request, at: Position, protocol: Protocol) -> Vec<u8> {
    let mut wqe = vec![0xa5; size(&request.payload)];
    let written = match request.to {
        None => build(&mut wqe, at, protocol, &request.work()),
        Some(to) => build_datagram(&mut wqe, at, protocol, to, &request.work()),
    };
    written.expect("the strategy makes only what fits");
    wqe
}

pub(crate) fn parse_as<'a>(
    request: &Request,
    raw: &'a [u8],
    at: Position,
    protocol: Protocol,
) -> Result<Posted<'a>, WqeViolation> {
    match request.to {
        None => parse(raw, at, protocol),
        Some(_) => parse_datagram(raw, at, protocol),
    }
}

fn size(payload: &Payload) -> usize {
    let bytes = match payload {
        Payload::Inline(bytes) => bytes.len(),
        Payload::Sges(sges) => sges.len() * 16,
    };
    (32 + bytes).next_power_of_two().max(64)
}

pub(crate) fn position() -> impl Strategy<Value = Position> {
    (0..1_u64 << 40, 0..=16_u8).prop_map(|(counter, log_depth)| Position { counter, log_depth })
}

pub(crate) fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::V1), Just(Protocol::V2)]
}

/// Offset, bytes and value of a big-endian field.
type Field = (usize, usize, u64);

/// The opcodes of protocol 1 and 2.
fn opcodes(op: Op) -> [u64; 2] {
    match op {
        Op::Send => [0x0, 0x20],
        Op::SendInvalidate(_) => [0x1, 0xa0],
        Op::SendImm(_) => [0x2, 0x60],
        Op::Read(_) => [0x3, 0x02],
        Op::Write(_) => [0x4, 0x21],
        Op::WriteImm(..) => [0x5, 0x61],
        Op::CompareSwap { .. } => [0x6, 0x04],
        Op::FetchAdd { .. } => [0x7, 0x05],
    }
}

fn fields(request: &Request, at: Position, protocol: Protocol) -> Vec<Field> {
    let (entries, inline) = match &request.payload {
        Payload::Sges(sges) => (sges.len() as u64, 0),
        Payload::Inline(_) => (0, 4),
    };
    let flag = |flag, bit| if request.flags.contains(flag) { bit } else { 0 };
    let flags = flag(SendFlags::FENCE, 1) | flag(SendFlags::SOLICITED, 2);
    let lap = at.counter / (1 << at.log_depth);
    let flags = flags | inline | flag(SendFlags::SIGNALED, 8) | (1 - lap % 2) << 4;
    let index = at.counter % (1 << at.log_depth);
    let [v1, v2] = opcodes(request.op);
    let opcode = if protocol == Protocol::V1 { v1 } else { v2 };
    // The index is little-endian.
    let mut all = vec![(0, 8, index.swap_bytes()), (8, 1, opcode), (9, 1, entries), (10, 2, flags)];
    let (remote, length) = match request.op {
        Op::Write(remote) | Op::WriteImm(remote, _) | Op::Read(remote) => (Some(remote), true),
        Op::CompareSwap { remote, .. } | Op::FetchAdd { remote, .. } => (Some(remote), false),
        _ => (None, true),
    };
    if let Some(remote) = remote {
        all.extend([(16, 8, remote.addr), (24, 4, remote.rkey.0.into())]);
    }
    if length {
        all.push((28, 4, request.byte_len()));
    }
    match request.op {
        Op::SendImm(value) | Op::WriteImm(_, value) => all.push((12, 4, value.into())),
        Op::SendInvalidate(rkey) => all.push((12, 4, rkey.0.into())),
        Op::CompareSwap { compare, swap, .. } => all.extend([(28, 8, swap), (36, 8, compare)]),
        Op::FetchAdd { add, .. } => all.push((28, 8, add)),
        _ => {}
    }
    if let Some(to) = request.to {
        let (handle, qpn, qkey) = (to.handle.into(), to.qpn.get().into(), to.qkey.into());
        all.extend([(16, 4, handle), (20, 4, qpn), (24, 4, qkey)]);
    }
    match &request.payload {
        Payload::Inline(bytes) => {
            all.extend((32..).zip(bytes).map(|(at, &byte)| (at, 1, byte.into())));
        }
        Payload::Sges(sges) if length => all.extend(entry_fields(32, sges)),
        Payload::Sges(sges) if protocol == Protocol::V1 => all.extend(entry_fields(48, sges)),
        Payload::Sges(sges) => {
            all.extend([(44, 4, sges[0].lkey.0.into()), (48, 8, sges[0].addr)]);
        }
    }
    all
}

fn entry_fields(first: usize, sges: &[Sge]) -> impl Iterator<Item = Field> {
    (first..).step_by(16).zip(sges).flat_map(|(at, sge)| {
        [(at, 8, sge.addr), (at + 8, 4, sge.len.into()), (at + 12, 4, sge.lkey.0.into())]
    })
}

/// Puts the fields over what `raw` holds.
fn put(raw: &mut [u8], fields: &[Field]) {
    for &(at, bytes, value) in fields {
        raw[at..at + bytes].copy_from_slice(&value.to_be_bytes()[8 - bytes..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn send_wqes(
        request in request(),
        at in position(),
        protocol in protocol(),
        noise in vec(any::<u8>(), 256),
        laps: u16,
    ) {
        let fields = fields(&request, at, protocol);
        let built = built(&request, at, protocol);
        let mut expected = vec![0; built.len()];
        put(&mut expected, &fields);
        prop_assert_eq!(&built, &expected);

        // Bytes without a field may hold anything, and an index may be counted on.
        let mut raw = noise[..built.len()].to_vec();
        put(&mut raw, &fields);
        let counted = at.counter % (1 << at.log_depth) + (u64::from(laps) << at.log_depth);
        raw[..8].copy_from_slice(&counted.to_le_bytes());
        for raw in [&built, &raw] {
            let posted = parse_as(&request, raw, at, protocol).expect("well formed");
            prop_assert!(request.is(&posted), "{:?}\n{:?}", posted, request);
        }
    }

    #[test]
    fn receives(at in position(), sges in sges(), noise in vec(any::<u8>(), 256)) {
        let bytes: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        let index = at.counter % (1 << at.log_depth);
        let mut fields = vec![(0, 8, index.swap_bytes()), (9, 1, sges.len() as u64)];
        fields.extend(entry_fields(32, &sges));
        let mut built = vec![0xa5; size(&Payload::Sges(sges.clone()))];
        recv::build(&mut built, at, &sges).expect("it fits");
        let mut expected = vec![0; built.len()];
        put(&mut expected, &fields);
        put(&mut expected, &[(12, 4, bytes)]);
        prop_assert_eq!(&built, &expected);

        let mut raw = noise[..built.len()].to_vec();
        put(&mut raw, &fields);
        let sges = if bytes == 0 { &[][..] } else { &sges };
        for raw in [&built, &raw] {
            let list = recv::parse(raw, at).expect("well formed");
            prop_assert!(list.iter().eq(sges.iter().copied()));
        }
    }
}
