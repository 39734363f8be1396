//! CQEs against an independent description of their bytes.

use proptest::prelude::*;
use warpverbs_ionic::cqe::{CQE, Cqe, CqeViolation, color};
use warpverbs_ionic::status::Failure;
use warpverbs_rdma::{Qpn, ReceivedKind, Rkey, Status};

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![1..0xe_u32, 1..=u32::MAX].prop_map(Failure::from_value)
}

fn kind() -> impl Strategy<Value = ReceivedKind> {
    prop_oneof![
        Just(ReceivedKind::Send),
        any::<u32>().prop_map(ReceivedKind::SendImm),
        any::<u32>().prop_map(|rkey| ReceivedKind::SendInvalidate(Rkey(rkey))),
        any::<u32>().prop_map(ReceivedKind::WriteImm),
    ]
}

fn cqe() -> impl Strategy<Value = Cqe> {
    let qpn = || any::<u32>().prop_map(Qpn::truncate);
    let status = || prop_oneof![Just(Ok(())), failure().prop_map(Err)];
    let length = prop_oneof![any::<u32>().prop_map(Ok), failure().prop_map(Err)];
    prop_oneof![
        (qpn(), 0..1_u32 << 24, status()).prop_map(|(qpn, msn, status)| Cqe::Messages {
            qpn,
            msn,
            status
        }),
        (qpn(), any::<u16>(), status()).prop_map(|(qpn, index, status)| Cqe::Local {
            qpn,
            index,
            status
        }),
        (qpn(), any::<(u16, bool)>(), kind(), qpn(), length).prop_map(
            |(qpn, (index, ipv4), kind, source, status)| {
                Cqe::Received { qpn, index, kind, source, ipv4, status }
            }
        ),
    ]
}

/// The bytes of a CQE, field by field: offset, size, value; big-endian but for the index.
fn describe(cqe: &Cqe, color: bool) -> [u8; CQE] {
    let index_of = |index: u16| (0, 2, u64::from(index.swap_bytes()));
    let (cqe_type, qpn, status, fields) = match *cqe {
        Cqe::Messages { qpn, msn, status } => {
            (2, qpn, status.map(|()| 0), vec![(4, 4, u64::from(msn))])
        }
        Cqe::Local { qpn, index, status } => {
            (3, qpn, status.map(|()| 0), vec![(16, 2, u64::from(index.swap_bytes()))])
        }
        Cqe::Received { qpn, index, kind, source, ipv4, status } => {
            let (op, value) = match kind {
                ReceivedKind::Send => (0, 0),
                ReceivedKind::SendInvalidate(rkey) => (1, rkey.0),
                ReceivedKind::SendImm(imm) => (2, imm),
                ReceivedKind::WriteImm(imm) => (3, imm),
            };
            let source = u64::from(source.get()) | op << 24 | u64::from(ipv4) << 31;
            (1, qpn, status, vec![index_of(index), (8, 4, source), (20, 4, value.into())])
        }
    };
    let word = u64::from(qpn.get()) << 8 | cqe_type << 5 | u64::from(color);
    let tail = match status {
        Ok(length) => [(24, 4, length.into()), (28, 4, word)],
        Err(failure) => [(24, 4, failure.value().into()), (28, 4, word | 2)],
    };
    let mut raw = [0; CQE];
    for (at, bytes, value) in fields.into_iter().chain(tail) {
        raw[at..at + bytes].copy_from_slice(&value.to_be_bytes()[8 - bytes..]);
    }
    raw
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn both_ways(cqe in cqe(), bit: bool, time: [u8; 6]) {
        let mut raw = describe(&cqe, bit);
        prop_assert_eq!(cqe.emit(bit), raw);
        prop_assert_eq!(color(&raw), bit);
        // A timestamp stands beside the index.
        let at = if matches!(cqe, Cqe::Received { .. }) { 2 } else { 18 };
        raw[at..at + 6].copy_from_slice(&time);
        prop_assert_eq!(Cqe::parse(&raw), Ok(cqe));
    }
}

#[test]
fn malformed() {
    for value in [0, 4, 5, 7] {
        let mut raw = [0; CQE];
        raw[31] = value << 5;
        assert_eq!(Cqe::parse(&raw), Err(CqeViolation::Type { value }));
    }
    let mut raw = [0; CQE];
    (raw[31], raw[8]) = (1 << 5, 4);
    assert_eq!(Cqe::parse(&raw), Err(CqeViolation::Op { value: 4 }));
    raw[31] |= 2;
    assert_eq!(Cqe::parse(&raw), Err(CqeViolation::Status));
}

/// The statuses of the table in which the library looks codes up.
#[test]
fn statuses() {
    use Status::{
        BadResponse, Flushed, LocalAccess, LocalLength, LocalProtection, LocalQpOperation,
        RemoteAccess, RemoteInvalidRequest, RemoteOperation, RetryExceeded, RnrRetryExceeded,
        WindowBind,
    };
    let codes = [
        LocalLength,
        LocalQpOperation,
        LocalProtection,
        Flushed,
        WindowBind,
        BadResponse,
        LocalAccess,
        RemoteInvalidRequest,
        RemoteAccess,
        RemoteOperation,
        RetryExceeded,
        RnrRetryExceeded,
    ];
    for (code, status) in (1..).zip(codes) {
        assert_eq!(Failure::from_value(code).status(), status);
        assert_eq!(Failure::of(status).map(Failure::value), Some(code));
    }
    for code in [0xd, 0xe, 0x100] {
        assert_eq!(Failure::from_value(code).status(), Status::General);
    }
    for status in Status::ALL {
        // A failure never becomes a success, whatever it is.
        assert_eq!(Failure::of(*status).is_none(), *status == Status::Success, "{status}");
    }
}
