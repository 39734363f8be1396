//! Barriers of teams: nobody leaves before everybody has come, and what was put before is there.

use crate::calls;
use crate::device::ranks::{Pace, Ranks, Routes, pointer};
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::transport::Outcome;
use warpverbs_dev::simt_seeds;
use warpverbs_shmem::layout::TEAM_BLOCK_BYTES;
use warpverbs_test_kernels::shm_mail as k;

const BLOCK: u64 = 1024;
const WORDS: u64 = 2048;

/// `members` ranks from `first` on, `stride` apart, meet a few times.
fn meet(ranks: &Ranks, (first, stride, members): (u32, u32, u32), group: u32, light: u32) {
    let wrong = ranks.buffer(8);
    let of = (0..members).map(|i| first + i * stride);
    let list = ranks.members(of, |heap| k::Member { heap });
    ranks.run(Dim::new(members, 40), |status| k::ShmBarrier {
        members: list,
        group,
        team_block: BLOCK,
        first,
        stride,
        size: members,
        words: WORDS,
        rounds: 3,
        light,
        wrong: pointer(&wrong),
        status,
    });
    assert_eq!(ranks.read(&wrong), [0; 8], "{}: {members} of {first} + {stride} i", ranks.what);
}

#[test]
fn nobody_leaves_before_everybody_has_come() {
    for seed in simt_seeds(0x400, 4) {
        for routes in Routes::ALL {
            for group in [0, 1, 2] {
                // Flat, then in rounds; the world, and part of it; one after the other.
                let ranks = Ranks::new(5, 1 << 12, routes, Pace::Seeded(seed));
                meet(&ranks, (0, 1, 5), group, 0);
                meet(&ranks, (0, 1, 5), group, 1);
                let ranks = Ranks::new(5, 1 << 12, routes, Pace::Seeded(seed));
                meet(&ranks, (1, 2, 2), group, 0);
            }
        }
    }
}

#[test]
fn large_teams_meet_in_rounds() {
    for seed in simt_seeds(0x500, 3) {
        for world in [9, 12] {
            let ranks = Ranks::new(world, 1 << 12, Routes::Direct, Pace::Seeded(seed));
            meet(&ranks, (0, 1, world), 2, 0);
            meet(&ranks, (0, 1, world), 1, 0);
        }
    }
    let ranks = Ranks::new(9, 1 << 12, Routes::Mixed, Pace::Seeded(0x500));
    meet(&ranks, (0, 1, 9), 1, 0);
}

/// Rank 1's part of a barrier.
fn alone(ranks: &Ranks, team: (u32, u32, u32), block: u64) -> Result<(), Outcome> {
    ranks.launch_on(1, Dim::new(1, 40), calls::meet(team, block, 1_000_000))
}

#[test]
fn who_has_not_come_is_named() {
    for routes in Routes::APART {
        // A team of its own is complete.
        let ranks = Ranks::new(3, 1 << 12, routes, Pace::Seeded(8));
        assert_eq!(alone(&ranks, (1, 1, 1), BLOCK), Ok(()));
        let ranks = Ranks::new(3, 1 << 12, routes, Pace::Seeded(8));
        assert_eq!(alone(&ranks, (0, 1, 2), BLOCK), Err(Outcome::Timeout));
        let fault = ranks.fault(1);
        assert_eq!((fault.claim, fault.what, fault.peer), (2, 7, 0), "{fault:?}");
        assert_eq!((fault.expected, fault.actual), (1, 0), "{fault:?}");
        // The late rank finds the other's arrival.
        ranks.run_on(0, Dim::new(1, 40), calls::meet((0, 1, 2), BLOCK, 1_000_000_000));
        // That was the first call of both; in the second it is missing again.
        assert_eq!(alone(&ranks, (0, 1, 2), BLOCK), Err(Outcome::Timeout), "{}", ranks.what);
    }
}

#[test]
fn a_rank_that_is_given_up_ends_a_barrier() {
    let ranks = Ranks::new(3, 1 << 12, Routes::Direct, Pace::Seeded(8));
    ranks.raise_alarm(1, 1);
    let meet = calls::meet((0, 1, 2), BLOCK, 60_000_000_000);
    let outcome = ranks.launch_on(1, Dim::new(1, 40), meet);
    assert_eq!(outcome, Err(Outcome::PeerLost));
    assert_eq!(ranks.fault(1).peer, 0);
}

#[test]
fn teams_that_cannot_be_are_refused() {
    let ranks = Ranks::new(3, 1 << 12, Routes::Direct, Pace::Seeded(8));
    for team in [(0, 2, 2), (1, 0, 2), (1, 1, 0), (1, 1, 3), (2, 1, 1), (1, u32::MAX, 2)] {
        assert_eq!(alone(&ranks, team, BLOCK), Err(Outcome::NoPeer), "{team:?}");
    }
    for block in [BLOCK + 8, (1 << 12) - TEAM_BLOCK_BYTES + 16, u64::MAX - 15] {
        assert_eq!(alone(&ranks, (1, 1, 2), block), Err(Outcome::BadAddress), "{block:#x}");
    }
}

/// A barrier of blocks that do not all run would wait for ever.
#[test]
fn a_grid_that_does_not_fit_is_refused_before_it_starts() {
    let ranks = Ranks::new(12, 1 << 12, Routes::Direct, Pace::Seeded(8));
    let barrier = |members: u32, threads: u32| {
        let wrong = ranks.buffer(8);
        let list = ranks.members(0..members, |heap| k::Member { heap });
        let status = ranks.buffer(4);
        let kernel = k::ShmBarrier {
            members: list,
            group: 0,
            team_block: BLOCK,
            first: 0,
            stride: 1,
            size: members,
            words: WORDS,
            rounds: 1,
            light: 0,
            wrong: pointer(&wrong),
            status: pointer(&status),
        };
        let deadline = Duration::from_secs(60);
        ranks.gpu.launch_resident(&kernel, Dim::new(members, threads), deadline)
    };
    // The device holds 8192 lanes.
    let refused = barrier(9, 1024).err().expect("9216 lanes").to_string();
    let expected = "launch of shm_barrier: 9 blocks wait for each other, and the device holds 8 of \
                    this kernel with 1024 threads at once";
    assert_eq!(refused, expected);
    assert!(
        ranks.heaps.iter().enumerate().all(|(i, _)| ranks.bytes(i as u32).iter().all(|b| *b == 0))
    );
    barrier(8, 1024).expect("8192 lanes").wait().expect("the barrier");
}
