//! Warps whose lanes run in lockstep: lanes that wait for one another stall, and nothing of the device
//! library does. The tests of the other modules run in lockstep with `WARPVERBS_SIMT_LOCKSTEP=1`.

use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{Buffer, Dim, Gpu, Place, SafeKernel};
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::lockstep as k;

/// Nanoseconds of virtual time.
const PATIENCE: u64 = 1_000_000;

/// Lanes that gave up, of a kernel that is given three words.
fn late<K: SafeKernel>(config: SimtConfig, kernel: impl Fn([&Buffer; 3]) -> K) -> u32 {
    let gpu = SimtDevice::new(config).expect("device");
    let words = [0; 3].map(|_| gpu.alloc(8, Place::Device).expect("memory"));
    let launch = gpu.launch(&kernel(words.each_ref()), Dim::new(1, 32), Duration::from_secs(60));
    launch.expect("launch").wait().expect("kernel");
    let mut late = [0; 4];
    gpu.read(&words[2], 0, &mut late).expect("read");
    u32::from_le_bytes(late)
}

/// A kernel stalls under each seed in lockstep, and under none without.
fn stalls<K: SafeKernel>(kernel: impl Fn([&Buffer; 3]) -> K) {
    for seed in simt_seeds(0, 16) {
        assert_eq!(late(SimtConfig::seeded(seed), &kernel), 0, "lanes are independent");
        assert_ne!(late(SimtConfig::seeded(seed).lockstep(true), &kernel), 0, "lockstep");
    }
}

#[test]
fn a_lock_that_is_given_back_outside_of_the_loop_stalls() {
    stalls(|[lock, count, late]| k::LockOutside {
        lock: lock.into(),
        count: count.into(),
        late: late.into(),
        patience: PATIENCE,
    });
}

#[test]
fn lanes_that_wait_for_the_lane_before_them_stall() {
    stalls(|[turn, _, late]| k::Chain { turn: turn.into(), late: late.into(), patience: PATIENCE });
}

#[test]
fn a_lane_that_does_not_pause_spins_all_the_same() {
    stalls(|[turn, _, late]| k::ChainWithoutPause {
        turn: turn.into(),
        late: late.into(),
        patience: PATIENCE,
    });
}
