//! Send work requests that own their payload, and arbitrary ones. Also used by the tests of other formats.

use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_rdma::{Addressed, Data, Op, Posted, Qpn, Remote, Rkey, SendFlags, Sge, WorkRequest};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) to: Option<Addressed>,
    pub(crate) payload: Payload,
    pub(crate) flags: SendFlags,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Payload {
    Inline(Vec<u8>),
    Sges(Vec<Sge>),
}

impl Request {
    /// As a poster gives it.
    pub(crate) fn work(&self) -> WorkRequest<'_> {
        let data = match &self.payload {
            Payload::Inline(bytes) => Data::Inline(bytes),
            Payload::Sges(sges) => Data::Sges(sges),
        };
        WorkRequest { id: 1, op: self.op, data, flags: self.flags }
    }

    pub(crate) fn byte_len(&self) -> u64 {
        match &self.payload {
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.len)).sum(),
        }
    }

    /// Whether a parsed WQE says the same.
    pub(crate) fn is<E>(&self, posted: &Posted<'_, E>) -> bool
    where
        for<'e> Sge: From<&'e E>,
    {
        let (inline, sges) = match &self.payload {
            Payload::Inline(bytes) => (&bytes[..], &[][..]),
            // Entries of no bytes at all are no entries.
            Payload::Sges(_) if self.byte_len() == 0 => (&[][..], &[][..]),
            Payload::Sges(sges) => (&[][..], &sges[..]),
        };
        (self.op, self.to, self.flags) == (posted.op, posted.to, posted.flags)
            && posted.inline == inline
            && posted.result.is_some() == self.op.is_atomic()
            && posted.local.iter().chain(posted.result).eq(sges.iter().copied())
            && posted.byte_len() == self.byte_len()
    }
}

fn remote() -> impl Strategy<Value = Remote> {
    any::<(u64, u32)>().prop_map(|(addr, rkey)| Remote::new(addr, rkey))
}

pub(crate) fn sge(len: impl Strategy<Value = u32>) -> impl Strategy<Value = Sge> {
    (any::<(u64, u32)>(), len).prop_map(|((addr, lkey), len)| Sge::new(addr, len, lkey))
}

pub(crate) fn sges() -> impl Strategy<Value = Vec<Sge>> {
    vec(sge(prop_oneof![Just(0), 1..10_000_u32, Just(1 << 27)]), 0..14)
}

fn bytes() -> impl Strategy<Value = Payload> {
    prop_oneof![sges().prop_map(Payload::Sges), vec(any::<u8>(), 0..97).prop_map(Payload::Inline),]
}

fn result() -> impl Strategy<Value = Payload> {
    sge(Just(8)).prop_map(|sge| Payload::Sges(vec![sge]))
}

fn to() -> impl Strategy<Value = Addressed> {
    (0..1_u32 << 20, 0..1_u32 << 24, any::<u32>()).prop_map(|(handle, qpn, qkey)| Addressed {
        handle,
        qpn: Qpn::truncate(qpn),
        qkey,
    })
}

pub(crate) fn flags() -> impl Strategy<Value = SendFlags> {
    (0..8_u32).prop_map(SendFlags::from_bits_retain)
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let send = prop_oneof![Just(Op::Send), any::<u32>().prop_map(Op::SendImm)];
    let carries = prop_oneof![
        send.clone(),
        any::<u32>().prop_map(|rkey| Op::SendInvalidate(Rkey(rkey))),
        remote().prop_map(Op::Write),
        (remote(), any::<u32>()).prop_map(|(remote, imm)| Op::WriteImm(remote, imm)),
    ];
    let atomic = prop_oneof![
        (remote(), any::<(u64, u64)>()).prop_map(|(remote, (compare, swap))| Op::CompareSwap {
            remote,
            compare,
            swap
        }),
        (remote(), any::<u64>()).prop_map(|(remote, add)| Op::FetchAdd { remote, add }),
    ];
    let kinds = prop_oneof![
        4 => (carries, Just(None), bytes()),
        2 => (send, to().prop_map(Some), bytes()),
        2 => (remote().prop_map(Op::Read), Just(None), sges().prop_map(Payload::Sges)),
        2 => (atomic, Just(None), result()),
    ];
    (kinds, flags()).prop_map(|((op, to, payload), flags)| Request { op, to, payload, flags })
}
