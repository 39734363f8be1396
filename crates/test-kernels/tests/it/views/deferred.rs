//! Work whose doorbell was left to others is rung by whoever posts or asks next.

use crate::views::agents::{Agents, ROUTES};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::nixl as k;

/// Every thread puts `rounds` words; `rings` says which of them ring.
fn all_arrive(threads: u32, rounds: u32, rings: u64, seed: u64) {
    for route in ROUTES {
        let bytes = u64::from(threads * rounds) * 8;
        let agents = Agents::new(bytes as usize, route, seed);
        let mut model = agents.fill(&mut SmallRng::seed_from_u64(seed));
        let looks = agents.buffer(8);
        let entries = [(0, bytes)];
        agents.run(Dim::new(1, threads), |status| k::NixlDeferred {
            local: agents.local(0, &entries),
            remote: agents.remote(0, &entries),
            rounds,
            rings,
            looks: KernelPtr::new(&looks),
            status,
        });
        model.copy((0, 0), (1, 0), bytes);
        agents.compare(&model, &format!("{threads} threads, {rounds} rounds, ringing {rings:#x}"));
    }
}

#[test]
fn one_poster_that_never_rings_finds_its_work_done() {
    for seed in simt_seeds(0x50, 4) {
        for rounds in [1, 2, 31, 100, 300] {
            all_arrive(1, rounds, 0, seed);
        }
    }
}

#[test]
fn posters_that_ring_and_posters_that_do_not_lose_nothing_of_each_others() {
    for seed in simt_seeds(0x60, 24) {
        for rings in [0, 1, 0x8000_0001_0001_0001, 0x5555_5555_5555_5555, !1] {
            all_arrive(48, 9, rings, seed);
        }
    }
}
