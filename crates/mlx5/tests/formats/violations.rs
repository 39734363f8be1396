//! One wrong field in a good WQE gives the violation that names it.

use crate::ignored::scramble;
use crate::request::{Bytes, Request};
use crate::strategies::{flags, position, request};
use proptest::prelude::*;
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedFetchAdd};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{Lkey, MAX_DS, Qpn, Rkey, WqeIndex};
use warpverbs_mlx5::opcode::{SendOpcode, Support};
use warpverbs_mlx5::wqe::{
    Destination, Field, Position, Remote, SendWith, Sge, WqeBuilder, WqeViolation, parse,
    parse_datagram,
};

proptest! {
    #[test]
    fn place(request in request(), at in position(), flags in flags(), index: u16, qpn in 0..1u32 << 24) {
        let raw = request.build(at, flags);
        let (index, qpn) = (WqeIndex(index), Qpn::new(qpn).expect("24 bits"));
        prop_assume!(index != at.index && qpn != at.qpn);
        let wrong = parse(&raw, Position { index, ..at });
        prop_assert_eq!(wrong, Err(WqeViolation::Index { value: at.index, expected: index }));
        let wrong = parse(&raw, Position { qpn, ..at });
        prop_assert_eq!(wrong, Err(WqeViolation::Qpn { value: at.qpn, expected: qpn }));
    }

    #[test]
    fn truncation(request in request(), at in position(), flags in flags(), keep in 0.0..1.0) {
        let raw = request.build(at, flags);
        let segments = usize::from(raw[7]) * 16;
        let available = (segments as f64 * keep) as usize;
        let expected = if available < 16 { 16 } else { segments };
        let violation = WqeViolation::Truncated { available, expected };
        prop_assert_eq!(parse(&raw[..available], at), Err(violation));
        prop_assert!(parse(&raw[..segments], at).is_ok());
    }

    #[test]
    fn what_devices_do_not_look_at_may_hold_anything(
        request in request(),
        at in position(),
        flags in flags(),
        noise in prop::collection::vec(any::<u8>(), 1024),
    ) {
        let clean = request.build(at, flags);
        let mut raw = clean.clone();
        let mut noise = noise.into_iter();
        scramble(&mut raw, false, || noise.next().expect("a byte for each of the WQE"));
        prop_assert_ne!(&raw, &clean);
        prop_assert_eq!(parse(&raw, at), parse(&clean, at));
    }

    #[test]
    fn the_same_of_datagrams(
        to in any::<(u32, [u8; 16], u8, u8)>(),
        at in position(),
        imm: Option<u32>,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        noise in prop::collection::vec(any::<u8>(), 512),
    ) {
        let (qkey, gid, traffic_class, hop_limit) = to;
        let to = Destination { qpn: at.qpn, qkey, gid, traffic_class, hop_limit };
        let mut buf = [0; 512];
        let wqe = match imm {
            None => WqeBuilder::send_to(&mut buf, at, to),
            Some(imm) => WqeBuilder::send_imm_to(&mut buf, at, to, imm),
        };
        let clean = wqe.inline(&payload).signaled().finish().expect("it fits").to_vec();
        let mut raw = clean.clone();
        let mut noise = noise.into_iter();
        scramble(&mut raw, true, || noise.next().expect("a byte for each of the WQE"));
        prop_assert_ne!(&raw, &clean);
        prop_assert_eq!(parse_datagram(&raw, at), parse_datagram(&clean, at));
        prop_assert!(parse_datagram(&raw, at).is_ok());
        // The bit for the long form is looked at.
        raw[24] &= 0x7f;
        let form = WqeViolation::AddressForm { ext: raw[24] };
        prop_assert_eq!(parse_datagram(&raw, at), Err(form));
    }

    #[test]
    fn reserved_bits_of_ctrl(request in request(), at in position(), flags in flags()) {
        let check = |offset: usize, bits: u8, field, seen: u64| {
            let mut raw = request.build(at, flags);
            raw[offset] |= bits;
            (parse(&raw, at).err(), WqeViolation::Reserved { field, value: seen })
        };
        for bits in [0x01, 0x10, 0x11] {
            let (got, want) = check(11, bits, Field::FlagsReserved, bits.into());
            prop_assert_eq!(got, Some(want));
        }
        for bits in [0x40, 0x80, 0xc0] {
            let (got, want) = check(7, bits, Field::DsReserved, bits.into());
            prop_assert_eq!(got, Some(want));
        }
        // UCX leaves garbage in signature and stream channel.
        let mut raw = request.build(at, flags);
        raw[8..11].fill(0xa5);
        prop_assert!(parse(&raw, at).is_ok());
    }

    #[test]
    fn fence_mode(request in request(), at in position(), flags in flags(), mode in 5u8..8) {
        let mut raw = request.build(at, flags);
        raw[11] = raw[11] & 0x1f | mode << 5;
        prop_assert_eq!(parse(&raw, at), Err(WqeViolation::FenceMode { value: mode }));
    }

    #[test]
    fn opcode(request in request(), at in position(), flags in flags(), value: u8) {
        let opcode = SendOpcode::from_value(value);
        let expected = match opcode.support() {
            None => WqeViolation::UnknownOpcode { value },
            Some(Support::NamedOnly) => WqeViolation::UnsupportedOpcode { opcode },
            Some(Support::Parsed) => return Ok(()),
        };
        let mut raw = request.build(at, flags);
        raw[3] = value;
        prop_assert_eq!(parse(&raw, at), Err(expected));
    }

    #[test]
    fn opmod(request in request(), at in position(), flags in flags(), value: u8) {
        let masked = matches!(request, Request::MaskedCompareSwap(..) | Request::MaskedFetchAdd(..));
        let expected: &[u8] = if masked { &[8, 9] } else { &[0] };
        prop_assume!(!expected.contains(&value));
        let mut raw = request.build(at, flags);
        raw[0] = value;
        let opcode = SendOpcode::from_value(raw[3]);
        prop_assert_eq!(parse(&raw, at), Err(WqeViolation::Opmod { opcode, value, expected }));
    }

    #[test]
    fn number_of_segments(request in request(), at in position(), flags in flags(), ds in 0..=MAX_DS) {
        let mut raw = request.build(at, flags);
        let (before, opcode) = (raw[7], SendOpcode::from_value(raw[3]));
        prop_assume!(ds != before);
        raw[7] = ds;
        // The bytes behind the WQE look like segments with a length.
        raw.resize(1024, 0x11);
        let (min, max) = match &request {
            Request::Nop => (1, 2),
            Request::LocalInval(_) => (1, 1),
            Request::Wait(..) | Request::Dump(_) => (2, 2),
            Request::Send(..) => (1, MAX_DS),
            Request::Write(..) | Request::Read(..) => (2, MAX_DS),
            Request::MaskedCompareSwap(_, MaskedCompareSwap::B8(_), _) => (5, 5),
            _ => (4, 4),
        };
        let got = parse(&raw, at);
        let inline = matches!(&request, Request::Send(_, Bytes::Inline(_)) | Request::Write(_, _, Bytes::Inline(_)));
        if ds == 0 {
            prop_assert_eq!(got, Err(WqeViolation::Ds { opcode, value: 0, min: 1, max: MAX_DS }));
        } else if inline && ds > min {
            let is_inline_length = matches!(got, Err(WqeViolation::InlineLength { ds: d, expected, .. })
                if d == ds && expected == u32::from(before));
            // Or entries follow.
            let goes_on = ds > before && got.is_ok();
            prop_assert!(is_inline_length || goes_on, "{:?}", got);
        } else if (min..=max).contains(&ds) {
            // Fewer or more entries are a WQE too, unless old bytes in them are not entries.
            let mixed = matches!(&request, Request::Send(_, Bytes::Mixed(..)) | Request::Write(_, _, Bytes::Mixed(..)));
            let plausible = matches!(got, Ok(_) | Err(WqeViolation::ZeroLength { .. }))
                || mixed && matches!(got, Err(WqeViolation::InlineLength { .. }));
            prop_assert!(plausible, "{:?}", got);
        } else {
            // An atomic of the wrong length says so, or that the raddr does not fit.
            let (low, high) = if ds < 2 && min > 2 { (2, MAX_DS) } else { (min, max) };
            prop_assert_eq!(got, Err(WqeViolation::Ds { opcode, value: ds, min: low, max: high }));
        }
    }
}

const AT: Position = Position { qpn: Qpn::MAX, index: WqeIndex(0xffff) };
const REMOTE: Remote = Remote { addr: 0x1000, rkey: Rkey(1) };
const SGE: Sge = Sge { addr: 0x2000, len: 4, lkey: Lkey(2) };

/// Builds, changes one byte range, and returns the violation.
fn violation(request: &Request, at: usize, bytes: &[u8]) -> Option<WqeViolation> {
    let mut raw = request.build(AT, Flags::default());
    raw[at..at + bytes.len()].copy_from_slice(bytes);
    parse(&raw, AT).err()
}

#[test]
fn reserved_of_segments() {
    let write = Request::Write(REMOTE, None, Bytes::Sges(vec![SGE]));
    // DOCA GPUNetIO leaves garbage in the reserved word of the remote address.
    assert_eq!(violation(&write, 28, &[0x58, 0xfc, 0xff, 0]), None);
    let local = warpverbs_mlx5::wqe::Local { addr: 0x3000, lkey: Lkey(3) };
    let zero = warpverbs_mlx5::amo::MaskedFa { add: 0, boundary: 0 };
    let fa = Request::MaskedFetchAdd(REMOTE, MaskedFetchAdd::B4(zero), local);
    // NVSHMEM leaves garbage in the reserved half of the operands.
    assert_eq!(violation(&fa, 47, &[1]), None);
    let wait = Request::Wait(5, 6);
    // And in those of a WAIT.
    assert_eq!(violation(&wait, 16, &[0xa5; 8]), None);
    assert_eq!(violation(&fa, 48, &[0, 0, 0, 0]), Some(WqeViolation::ZeroLength { sge: 0 }));
    let byte_count = 0x8000_0004;
    let expected = WqeViolation::InlineBit { sge: 0, byte_count };
    assert_eq!(violation(&fa, 48, &[0x80]), Some(expected));
    let opcode = SendOpcode::MaskedFa;
    let expected = WqeViolation::AtomicSize { opcode, value: 8, expected: 4 };
    assert_eq!(violation(&fa, 51, &[8]), Some(expected));
}

#[test]
fn entries() {
    for count in 1..4_u8 {
        let sges = vec![SGE; usize::from(count)];
        let read = Request::Read(REMOTE, sges.clone());
        let write = Request::Write(REMOTE, Some(1), Bytes::Sges(sges.clone()));
        let send = Request::Send(SendWith::Nothing, Bytes::Sges(sges));
        for (request, first) in [(&read, 32), (&write, 32), (&send, 16)] {
            let at = first + 16 * usize::from(count - 1);
            let sge = count - 1;
            let zero = violation(request, at, &[0; 4]);
            assert_eq!(zero, Some(WqeViolation::ZeroLength { sge }));
            let inline = violation(request, at, &[0x80]);
            if sge > 0 || matches!(request, Request::Read(..)) {
                let byte_count = 0x8000_0004;
                assert_eq!(inline, Some(WqeViolation::InlineBit { sge, byte_count }));
            } else {
                // A lone entry with bit 31 is inline data of 4 bytes: one segment, so well formed.
                assert_eq!(inline, None);
            }
        }
    }
}

#[test]
fn dump_names_memory() {
    let dump = Request::Dump(SGE);
    assert_eq!(violation(&dump, 16, &[0; 4]), Some(WqeViolation::ZeroLength { sge: 0 }));
    let inline = WqeViolation::InlineBit { sge: 0, byte_count: 0x8000_0004 };
    assert_eq!(violation(&dump, 16, &[0x80]), Some(inline));
}

#[test]
fn inline_length() {
    let write = Request::Write(REMOTE, None, Bytes::Inline(vec![7; 12]));
    for (length, expected) in [(13_u32, 4), (28, 4), (29, 5), (0x7fff_ffff, 0x800_0003)] {
        let got = violation(&write, 32, &(length | 1 << 31).to_be_bytes());
        assert_eq!(got, Some(WqeViolation::InlineLength { length, ds: 3, expected }));
    }
    let send = Request::Send(SendWith::Imm(3), Bytes::Inline(vec![0; 13]));
    let got = violation(&send, 16, &(12_u32 | 1 << 31).to_be_bytes());
    assert_eq!(got, Some(WqeViolation::InlineLength { length: 12, ds: 3, expected: 2 }));
}

/// Every text names the field, and every violation has the syndrome its kind calls for.
#[test]
fn texts() {
    let violation = WqeViolation::Index { value: WqeIndex(5), expected: WqeIndex(0x105) };
    let text = "ctrl.wqe_index is 0x0005, expected 0x0105 (unmasked producer index)";
    assert_eq!(violation.to_string(), text);
    assert_eq!((violation.field(), violation.syndrome().value()), ("ctrl.wqe_index", 0x02));
    let violation = WqeViolation::ZeroLength { sge: 2 };
    assert_eq!((violation.field(), violation.syndrome().value()), ("data.byte_count", 0x01));
    let violation = WqeViolation::Reserved { field: Field::DsReserved, value: 0xc0 };
    assert_eq!(violation.to_string(), "ctrl.ds[7:6] is 0xc0, expected 0");
}
