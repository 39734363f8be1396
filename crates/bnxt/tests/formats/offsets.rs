//! An independent description of WQEs, field by field with its offset and size, against encoder and
//! parser.

use crate::request::{Payload, Request, flags, request, sges};
use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_bnxt::recv;
use warpverbs_bnxt::ring::Library;
use warpverbs_bnxt::wqe::{build, build_datagram, parse, parse_datagram, peek};
use warpverbs_rdma::{Op, SendFlags, Sge};

/// The slots that the encoder makes of a request.
pub(crate) fn built(request: &Request) -> Vec<u8> {
    let mut buf = [0xa5; 255 * 16];
    let wqe = match request.to {
        None => build(&mut buf, &request.work()),
        Some(to) => build_datagram(&mut buf, to, &request.work()),
    };
    wqe.expect("the strategy makes only what fits").to_vec()
}

/// Offset, bytes and value of a little-endian field.
pub(crate) type Field = (usize, usize, u64);

pub(crate) fn fields(request: &Request, library: Library) -> Vec<Field> {
    let (entries, inline) = match &request.payload {
        Payload::Sges(sges) => (sges.len(), 0),
        Payload::Inline(bytes) => (bytes.len().div_ceil(16), 0x10),
    };
    let flag = |flag, bit| if request.flags.contains(flag) { bit } else { 0 };
    let flags = flag(SendFlags::SIGNALED, 1) | flag(SendFlags::FENCE, 4);
    let flags = flags | flag(SendFlags::SOLICITED, 8) | inline;
    let mut all = vec![(1, 1, flags), (2, 1, 2 + entries as u64), (3, 1, 0)];
    let length = (8, 4, request.byte_len());
    match request.op {
        Op::Send => all.extend([(0, 1, 0x00), length]),
        Op::SendImm(imm) => all.extend([(0, 1, 0x01), length, (4, 4, imm.into())]),
        Op::SendInvalidate(rkey) => all.extend([(0, 1, 0x02), length, (4, 4, rkey.0.into())]),
        Op::Write(to) => {
            all.extend([(0, 1, 0x04), length, (16, 8, to.addr), (24, 4, to.rkey.0.into())]);
        }
        Op::WriteImm(to, imm) => all.extend([
            (0, 1, 0x05),
            length,
            (4, 4, imm.into()),
            (16, 8, to.addr),
            (24, 4, to.rkey.0.into()),
        ]),
        Op::Read(from) => {
            all.extend([(0, 1, 0x06), length, (16, 8, from.addr), (24, 4, from.rkey.0.into())]);
        }
        Op::CompareSwap { remote, compare, swap } => all.extend([
            (0, 1, 0x08),
            (4, 4, remote.rkey.0.into()),
            (8, 8, remote.addr),
            (16, 8, swap),
            (24, 8, compare),
        ]),
        Op::FetchAdd { remote, add } => all.extend([
            (0, 1, 0x0b),
            (4, 4, remote.rkey.0.into()),
            (8, 8, remote.addr),
            (if library == Library::Early { 24 } else { 16 }, 8, add),
        ]),
    }
    if let Some(to) = request.to {
        let (qpn, handle, qkey) = (to.qpn.get().into(), to.handle.into(), to.qkey.into());
        all.extend([(12, 4, qkey), (16, 4, qpn), (20, 4, handle)]);
    }
    match &request.payload {
        Payload::Sges(sges) => all.extend(entry_fields(sges)),
        Payload::Inline(bytes) => {
            all.extend((32..).zip(bytes).map(|(at, &byte)| (at, 1, byte.into())));
        }
    }
    all
}

pub(crate) fn entry_fields(sges: &[Sge]) -> impl Iterator<Item = Field> {
    (2..).zip(sges).flat_map(|(slot, sge)| {
        let at = slot * 16;
        [(at, 8, sge.addr), (at + 8, 4, sge.lkey.0.into()), (at + 12, 4, sge.len.into())]
    })
}

/// Puts the fields over what `raw` holds.
fn put(raw: &mut [u8], fields: &[Field]) {
    for &(at, bytes, value) in fields {
        raw[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn send_wqes(request in request(), noise in vec(any::<u8>(), 256)) {
        let built = built(&request);
        let mut expected = vec![0; built.len()];
        put(&mut expected, &fields(&request, Library::Current));
        prop_assert_eq!(&built, &expected);
        prop_assert_eq!(usize::from(peek(built.first_chunk().expect("a slot"))) * 16, built.len());

        for library in [Library::Early, Library::Current] {
            // Bytes without a field, those behind the WQE included, may hold anything.
            for mut raw in [vec![0; built.len()], noise.clone()] {
                put(&mut raw, &fields(&request, library));
                let parsed = match request.to {
                    None => parse(&raw, library),
                    Some(_) => parse_datagram(&raw),
                };
                let posted = parsed.expect("well formed");
                prop_assert!(request.is(&posted), "{:?}\n{:?}", posted, request);
            }
        }
    }

    #[test]
    fn receives(id in 0..1_u32 << 20, sges in sges(), noise in vec(any::<u8>(), 256), flags in flags()) {
        let slots = 2 + sges.len().max(1);
        let mut fields = vec![(0, 1, 0x80), (2, 1, slots as u64), (3, 1, 0), (8, 4, id.into())];
        fields.extend(entry_fields(&sges));
        let mut buf = [0xa5; 256];
        let built = recv::build(&mut buf, id, &sges).expect("it fits");
        let mut expected = vec![0; slots * 16];
        put(&mut expected, &fields);
        prop_assert_eq!(built, &expected[..]);

        let mut raw = noise;
        put(&mut raw, &fields);
        if sges.is_empty() {
            put(&mut raw, &[(44, 4, 0)]);
        }
        raw[1] = flags.bits() as u8;
        for raw in [built, &raw] {
            let (found, list) = recv::parse(raw).expect("well formed");
            prop_assert_eq!(found, id);
            let empty = sges.iter().all(|sge| sge.len == 0);
            let sges = if empty { &[][..] } else { &sges };
            prop_assert!(list.iter().eq(sges.iter().copied()));
        }
    }
}
