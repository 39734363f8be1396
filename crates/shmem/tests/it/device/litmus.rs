//! Values that a rank must see once it has seen a signal, in many interleavings of ranks and NIC.

use crate::device::ranks::{Pace, Ranks, Routes, pointer};
use warpverbs::gpu::Dim;
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::shm_litmus as k;

const ROUTES: [Routes; 3] = [Routes::Direct, Routes::Rdma, Routes::Mixed];
const WORDS: u64 = 37;
const DATA: u64 = 256;
const SIGNAL: u64 = 64;

fn ranks(routes: Routes, seed: u64) -> Ranks {
    Ranks::new(3, 1 << 13, routes, Pace::Seeded(seed))
}

/// Three ranks by each route, with calls of a thread, a warp and a block, under each seed, which
/// also says which rank begins.
fn under_seeds(first: u64, count: u64, check: impl Fn(&Ranks, u32, u32)) {
    for seed in simt_seeds(first, count) {
        for (routes, group) in ROUTES.into_iter().flat_map(|r| [0, 1, 2].map(|group| (r, group))) {
            check(&ranks(routes, seed), group, (seed % 3) as u32);
        }
    }
}

fn none_wrong(ranks: &Ranks, wrong: &warpverbs::gpu::Buffer) {
    assert_eq!(ranks.read(wrong), [0; 8], "{}: words that a signal should bring along", ranks.what);
}

#[test]
fn a_signal_brings_all_earlier_puts_along() {
    under_seeds(0x100, 12, |ranks, group, turn| {
        let wrong = ranks.buffer(8);
        let members = ranks.members(0..3, |heap| k::Member { heap });
        ranks.run(Dim::new(3, 40), |status| k::ShmMessage {
            members,
            turn,
            group,
            data: DATA,
            words: WORDS,
            signal_at: SIGNAL,
            rounds: 4,
            wrong: pointer(&wrong),
            status,
        });
        none_wrong(ranks, &wrong);
    });
}

#[test]
fn what_a_signaller_has_made_sure_of_a_third_rank_sees() {
    under_seeds(0x200, 12, |ranks, group, turn| {
        let wrong = ranks.buffer(8);
        let members = ranks.members(0..3, |heap| k::Member { heap });
        ranks.run(Dim::new(3, 40), |status| k::ShmChain {
            members,
            turn,
            group,
            data: DATA,
            words: WORDS,
            signal_at: SIGNAL,
            rounds: 3,
            wrong: pointer(&wrong),
            status,
        });
        none_wrong(ranks, &wrong);
    });
}

#[test]
fn signals_behind_one_fence_bring_the_puts_to_each_rank_along() {
    under_seeds(0x300, 8, |ranks, group, turn| {
        let wrong = ranks.buffer(8);
        let members = ranks.members(0..3, |heap| k::Member { heap });
        ranks.run(Dim::new(3, 40), |status| k::ShmFan {
            members,
            turn,
            group,
            data: DATA,
            words: WORDS,
            signal_at: SIGNAL,
            wrong: pointer(&wrong),
            status,
        });
        none_wrong(ranks, &wrong);
    });
}
