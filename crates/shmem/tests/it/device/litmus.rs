//! Values that a rank must see once it has seen a signal, in many interleavings of ranks and NIC.

use crate::device::ranks::{Pace, Ranks, Routes, pointer};
use warpverbs::gpu::{DeviceStatus, Dim, KernelPtr, SafeKernel};
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::shm_litmus as k;

const ROUTES: [Routes; 5] = Routes::ALL;
const WORDS: u64 = 37;
const DATA: u64 = 256;
const SIGNAL: u64 = 64;

fn ranks(routes: Routes, seed: u64) -> Ranks {
    Ranks::new(3, 1 << 13, routes, Pace::Seeded(seed))
}

/// Three ranks by each route, with calls of a thread, a warp and a block, under each seed, which
/// also says which rank begins. The kernel counts the words that a signal should have brought along.
fn under_seeds<K: SafeKernel>(
    first: u64,
    count: u64,
    kernel: impl Fn(KernelPtr<k::Member>, [u32; 2], KernelPtr<u64>, KernelPtr<DeviceStatus>) -> K,
) {
    for seed in simt_seeds(first, count) {
        for (routes, group) in ROUTES.into_iter().flat_map(|r| [0, 1, 2].map(|group| (r, group))) {
            let ranks = ranks(routes, seed);
            let wrong = ranks.buffer(8);
            let members = ranks.members(0..3, |heap| k::Member { heap });
            let turn = (seed % 3) as u32;
            ranks.run(Dim::new(3, 40), |status| {
                kernel(members, [turn, group], pointer(&wrong), status)
            });
            assert_eq!(ranks.read(&wrong), [0; 8], "{}: words that are missing", ranks.what);
        }
    }
}

#[test]
fn a_signal_brings_all_earlier_puts_along() {
    under_seeds(0x100, 12, |members, [turn, group], wrong, status| k::ShmMessage {
        members,
        turn,
        group,
        data: DATA,
        words: WORDS,
        signal_at: SIGNAL,
        rounds: 4,
        wrong,
        status,
    });
}

#[test]
fn what_a_signaller_has_made_sure_of_a_third_rank_sees() {
    under_seeds(0x200, 12, |members, [turn, group], wrong, status| k::ShmChain {
        members,
        turn,
        group,
        data: DATA,
        words: WORDS,
        signal_at: SIGNAL,
        rounds: 3,
        wrong,
        status,
    });
}

#[test]
fn signals_behind_one_fence_bring_the_puts_to_each_rank_along() {
    under_seeds(0x300, 8, |members, [turn, group], wrong, status| k::ShmFan {
        members,
        turn,
        group,
        data: DATA,
        words: WORDS,
        signal_at: SIGNAL,
        wrong,
        status,
    });
}
