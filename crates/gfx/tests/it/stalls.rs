//! Kernels whose lanes wait for one another stall in machine code as in host SIMT's lockstep: a lane that left the loop
//! stands still until all others have left it. `selftest::atomics` and `relay` are the same, written as they must be.
use crate::clang;
use crate::gpu::Gpu;
use warpverbs_gfx::Target;

/// Nanoseconds after which a lane gives up.
const PATIENCE: u64 = 20_000_000;

/// The kernel's lanes that gave up, of 64; `words` of 8 bytes come before their number.
fn late(target: Target, seed: u64, kernel: &str, words: usize) -> u32 {
    let gpu = Gpu::of(clang::lockstep(target), seed);
    let (before, late) = (gpu.buffer(vec![0_u64; words]), gpu.buffer(vec![0_u32]));
    let addresses = (0..words as u64).map(|word| before.address() + 8 * word);
    let arguments: Vec<u64> = addresses.chain([late.address(), PATIENCE]).collect();
    let ended = gpu.launch(kernel, [1; 3], [64, 1, 1], &arguments);
    ended.unwrap_or_else(|error| panic!("{error}"));
    late.to_vec()[0]
}

#[test]
fn lanes_that_wait_for_one_another_stall() {
    if clang::missing() {
        return;
    }
    for target in Target::ALL {
        for (kernel, words) in [("lock_outside", 2), ("chain", 1), ("chain_without_pause", 1)] {
            for seed in 0..2 {
                // The first lane gets what it waits for, and stands still with it.
                let late = late(target, seed, kernel, words);
                assert_eq!(late, 63, "{kernel} on {target}, seed {seed}");
            }
        }
    }
}
