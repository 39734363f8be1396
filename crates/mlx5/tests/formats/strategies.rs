//! Arbitrary well-formed send WQEs.

use crate::request::{Bytes, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{Lkey, Qpn, Rkey, WqeIndex};
use warpverbs_mlx5::wqe::{Local, Position, Remote, SendWith, Sge};

pub(crate) fn position() -> impl Strategy<Value = Position> {
    (0..=Qpn::MAX.get(), any::<u16>()).prop_map(|(qpn, index)| Position {
        qpn: Qpn::new(qpn).expect("24 bits"),
        index: WqeIndex(index),
    })
}

pub(crate) fn flags() -> impl Strategy<Value = Flags> {
    any::<u8>().prop_filter_map("a valid flags byte", Flags::from_byte)
}

fn remote() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, rkey)| Remote { addr, rkey: Rkey(rkey) })
}

fn local() -> impl Strategy<Value = Local> + Clone {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, lkey)| Local { addr, lkey: Lkey(lkey) })
}

fn sge(len: impl Strategy<Value = u32> + Clone) -> impl Strategy<Value = Sge> + Clone {
    (local(), len).prop_map(|(l, len)| Sge { addr: l.addr, len, lkey: l.lkey })
}

fn sges(max: usize) -> impl Strategy<Value = Vec<Sge>> {
    let sge = sge(prop_oneof![1..10_000u32, Just(1), Just(i32::MAX as u32)]);
    prop_oneof![vec(sge.clone(), 0..4), vec(sge, 0..=max)]
}

/// Payload of at most `max` segments.
fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop_oneof![
        sges(max).prop_map(Bytes::Sges),
        prop_oneof![vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..=max * 16 - 4)]
            .prop_map(Bytes::Inline),
        (vec(any::<u8>(), 0..40), vec(sge(1..1u32 << 20), 1..8))
            .prop_map(|(bytes, sges)| Bytes::Mixed(bytes, sges)),
    ]
}

fn masked_cs() -> impl Strategy<Value = MaskedCompareSwap> {
    (any::<[u64; 4]>(), any::<bool>()).prop_map(|([a, b, c, d], wide)| {
        if wide {
            let o = MaskedCs { compare: a, compare_mask: b, swap: c, swap_mask: d };
            MaskedCompareSwap::B8(o)
        } else {
            let [compare, compare_mask, swap, swap_mask] = [a, b, c, d].map(|n| n as u32);
            MaskedCompareSwap::B4(MaskedCs { compare, compare_mask, swap, swap_mask })
        }
    })
}

fn masked_fa() -> impl Strategy<Value = MaskedFetchAdd> {
    (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(add, boundary, wide)| {
        if wide {
            MaskedFetchAdd::B8(MaskedFa { add, boundary })
        } else {
            MaskedFetchAdd::B4(MaskedFa { add: add as u32, boundary: boundary as u32 })
        }
    })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let with = prop_oneof![
        Just(SendWith::Nothing),
        any::<u32>().prop_map(SendWith::Imm),
        any::<u32>().prop_map(|rkey| SendWith::Invalidate(Rkey(rkey))),
    ];
    prop_oneof![
        1 => Just(Request::Nop),
        1 => any::<u32>().prop_map(|rkey| Request::LocalInval(Rkey(rkey))),
        1 => any::<[u32; 2]>().prop_map(|[cqn, index]| Request::Wait(cqn, index)),
        1 => sge(1..=i32::MAX as u32).prop_map(Request::Dump),
        4 => (with, bytes(62)).prop_map(|(with, b)| Request::Send(with, b)),
        6 => (remote(), any::<Option<u32>>(), bytes(61)).prop_map(|(r, i, b)| Request::Write(r, i, b)),
        3 => (remote(), sges(61)).prop_map(|(r, s)| Request::Read(r, s)),
        1 => (remote(), any::<u64>(), any::<u64>(), local())
            .prop_map(|(r, c, s, l)| Request::CompareSwap(r, c, s, l)),
        1 => (remote(), any::<u64>(), local()).prop_map(|(r, a, l)| Request::FetchAdd(r, a, l)),
        2 => (remote(), masked_cs(), local()).prop_map(|(r, o, l)| Request::MaskedCompareSwap(r, o, l)),
        2 => (remote(), masked_fa(), local()).prop_map(|(r, o, l)| Request::MaskedFetchAdd(r, o, l)),
    ]
}
