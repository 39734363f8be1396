//! CQEs against an independent description of their bytes.

use proptest::prelude::*;
use warpverbs_bnxt::cqe::{CQE, Cqe, CqeViolation, phase};
use warpverbs_bnxt::status::{RecvStatus, SendStatus};
use warpverbs_rdma::{Qpn, ReceivedKind, Rkey, Status};

fn kind() -> impl Strategy<Value = ReceivedKind> {
    prop_oneof![
        Just(ReceivedKind::Send),
        any::<u32>().prop_map(ReceivedKind::SendImm),
        any::<u32>().prop_map(|rkey| ReceivedKind::SendInvalidate(Rkey(rkey))),
        any::<u32>().prop_map(ReceivedKind::WriteImm),
    ]
}

fn cqe() -> impl Strategy<Value = Cqe> {
    let id = 0..1_u32 << 20;
    prop_oneof![
        any::<(u64, u16, u8)>().prop_map(|(qp_handle, consumed, status)| {
            let status = SendStatus::from_value(status);
            Cqe::Sent { qp_handle, consumed, status }
        }),
        (any::<(u64, bool, u8, u32)>(), id.clone(), kind()).prop_map(
            |((qp_handle, shared, status, length), id, kind)| {
                let status = RecvStatus::from_value(status);
                Cqe::Received { qp_handle, id, shared, status, kind, length }
            }
        ),
        (any::<(u64, bool, u8, Option<u32>, u32, bool)>(), id, 0..1_u16 << 14).prop_map(
            |((qp_handle, shared, status, imm, source, ipv6), id, length)| {
                let (status, source) = (RecvStatus::from_value(status), Qpn::truncate(source));
                Cqe::Datagram { qp_handle, id, shared, status, imm, length, source, ipv6 }
            }
        ),
        any::<u64>().prop_map(|qp_handle| Cqe::Terminal { qp_handle }),
        (0..4_u8).prop_map(|toggle| Cqe::CutOff { toggle }),
    ]
}

/// The bytes of a CQE, field by field: offset, size, value.
fn describe(cqe: &Cqe, phase: bool) -> [u8; CQE] {
    let kind_of = |kind| match kind {
        ReceivedKind::Send => (0, 0),
        ReceivedKind::SendImm(imm) => (2, imm),
        ReceivedKind::SendInvalidate(rkey) => (4, rkey.0),
        ReceivedKind::WriteImm(imm) => (2 | 8, imm),
    };
    let (cqe_type, fields): (u64, Vec<(usize, usize, u64)>) = match *cqe {
        Cqe::Sent { qp_handle, consumed, status } => {
            let status = status.value().into();
            (0, vec![(0, 8, qp_handle), (8, 2, consumed.into()), (25, 1, status)])
        }
        Cqe::Received { qp_handle, id, shared, status, kind, length } => {
            let ((flags, value), status) = (kind_of(kind), status.value().into());
            let flags = flags | u64::from(shared);
            let fields = [(0, 4, length.into()), (4, 4, value.into()), (8, 8, qp_handle)];
            let base = [(25, 1, status), (26, 2, flags), (28, 4, id.into())];
            (1, [fields, base].concat())
        }
        Cqe::Datagram { qp_handle, id, shared, status, imm, length, source, ipv6 } => {
            let (source, status) = (u64::from(source.get()), status.value().into());
            let version = if ipv6 { 3 } else { 2 };
            let flags = u64::from(shared) | u64::from(imm.is_some()) << 1 | version << 4;
            let imm = imm.unwrap_or(0).into();
            let fields = [(0, 4, length.into()), (4, 4, imm), (8, 8, qp_handle)];
            let tail = [(22, 2, source & 0xffff), (25, 1, status), (26, 2, flags)];
            let id = (28, 4, u64::from(id) | source >> 16 << 24);
            (2, [&fields[..], &tail, &[id]].concat())
        }
        Cqe::Terminal { qp_handle } => (0xe, vec![(0, 8, qp_handle)]),
        Cqe::CutOff { toggle } => (0xf | u64::from(toggle) << 4, vec![]),
    };
    let mut raw = [0; CQE];
    for (at, bytes, value) in fields {
        raw[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }
    raw[24] = (cqe_type << 1) as u8 | u8::from(phase);
    raw
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn both_ways(cqe in cqe(), bit: bool) {
        let raw = describe(&cqe, bit);
        prop_assert_eq!(cqe.emit(bit), raw);
        prop_assert_eq!(Cqe::parse(&raw), Ok(cqe));
        prop_assert_eq!(phase(&raw), bit);
    }
}

#[test]
fn malformed() {
    for value in [3, 4, 0xd] {
        let mut raw = [0; CQE];
        raw[24] = value << 1;
        assert_eq!(Cqe::parse(&raw), Err(CqeViolation::Type { value }));
    }
    // An immediate beside a key, a WRITE without an immediate.
    for flags in [0x6, 0x8, 0xe] {
        let mut raw = [0; CQE];
        (raw[24], raw[26]) = (1 << 1, flags);
        assert_eq!(Cqe::parse(&raw), Err(CqeViolation::Flags { value: flags.into() }));
    }
}

/// The statuses of the table in which libraries look codes up.
#[test]
fn statuses() {
    use Status::{
        BadResponse, Flushed, LocalAccess, LocalLength, LocalProtection, LocalQpOperation,
        RemoteAccess, RemoteInvalidRequest, RemoteOperation, RetryExceeded, RnrRetryExceeded,
        Success, WindowBind,
    };
    let send = [
        Success,
        BadResponse,
        LocalLength,
        LocalQpOperation,
        LocalProtection,
        WindowBind,
        RemoteInvalidRequest,
        RemoteAccess,
        RemoteOperation,
        RnrRetryExceeded,
        RetryExceeded,
        Flushed,
    ];
    for (code, status) in (0..).zip(send) {
        assert_eq!(SendStatus::from_value(code).status(), status);
        assert_eq!(SendStatus::of(status).value(), code);
    }
    let recv = [
        Success,
        LocalAccess,
        LocalLength,
        LocalProtection,
        LocalQpOperation,
        WindowBind,
        RemoteInvalidRequest,
        Flushed,
    ];
    for (code, status) in (0..).zip(recv) {
        assert_eq!(RecvStatus::from_value(code).status(), status);
        assert_eq!(RecvStatus::of(status).value(), code);
    }
    for status in Status::ALL {
        // A failure never becomes a success, whatever it is.
        let succeeds = *status == Success;
        assert_eq!(SendStatus::of(*status) == SendStatus::Ok, succeeds, "{status}");
        assert_eq!(RecvStatus::of(*status) == RecvStatus::Ok, succeeds, "{status}");
    }
}
