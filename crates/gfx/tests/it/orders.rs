//! Litmus tests in lazy mode: no seed breaks an order of the headers, and with any instruction removed that makes one,
//! some seed does.
use crate::clang;
use crate::gpu::Gpu;
use crate::mutants::{self, Lacks};
use std::time::Duration;
use warpverbs_gfx::{Caching, Stop, Target};

/// Each kernel's blocks and threads.
const KERNELS: [(&str, u32, u32); 19] = [
    ("store_release_gpu", 2, 1),
    ("store_release_sys", 2, 1),
    ("fence_release_gpu", 2, 1),
    ("fence_release_sys", 2, 1),
    ("fence_seq_cst_sys", 2, 1),
    ("load16_acquire_gpu", 2, 1),
    ("add_release_sys", 2, 1),
    ("max_release_gpu", 2, 1),
    ("or_release_gpu", 2, 1),
    ("exchange_acq_rel_gpu", 2, 1),
    ("cas_acq_rel_sys", 2, 1),
    ("or_acquire_gpu", 2, 1),
    ("fence_acquire_gpu", 2, 1),
    ("load_acquire_once_gpu", 2, 1),
    ("lock_by_cas", 4, 1),
    ("add_acq_rel_gpu", 2, 1),
    ("block_then_release_sys", 2, 128),
    ("acquire_then_block", 2, 128),
    ("wqe_bit_doorbell", 3, 64),
];
/// Seeds that a kernel of the headers passes.
const SEEDS: u64 = 100;

/// The kernel's number of complaints under the seed, or the error that ended it.
fn complaints(
    object: &[u8],
    seed: u64,
    (kernel, blocks, threads): (&str, u32, u32),
) -> Result<u64, String> {
    let gpu = Gpu::lazy(object, seed);
    let [data, flag] = [512, 256].map(|len| gpu.cached(vec![0_u64; len], Caching::Cached));
    let wrong = gpu.buffer(vec![0_u64]);
    let arguments = [data.address(), flag.address(), wrong.address()];
    let (time, stop) = (Duration::from_secs(20), Stop::default());
    let ended = gpu.launch_for(time, stop, kernel, [blocks, 1, 1], [threads, 1, 1], &arguments);
    ended.map(|()| wrong.to_vec()[0]).map_err(|error| error.to_string())
}

#[test]
fn orders_hold() {
    if clang::missing() {
        return;
    }
    for target in Target::ALL {
        for kernel in KERNELS {
            for seed in 0..SEEDS {
                let found = complaints(clang::orders(target), seed, kernel);
                assert_eq!(found, Ok(0), "{kernel:?} on {target}, seed {seed}");
            }
        }
    }
}

/// Mutants that no seed need notice, and why.
const MAY_PASS: [(&str, &str); 26] = [
    ("store_release_gpu: s_waitcnt vmcnt(0) #0", LOOP),
    ("store_release_sys: s_waitcnt vmcnt(0) #0", LOOP),
    ("fence_release_gpu: s_waitcnt vmcnt(0) #0", LOOP),
    ("fence_release_sys: s_waitcnt vmcnt(0) #0", LOOP),
    ("add_release_sys: s_waitcnt vmcnt(0) #0", LOOP),
    ("max_release_gpu: s_waitcnt vmcnt(0) #0", LOOP),
    ("or_release_gpu: s_waitcnt vmcnt(0) #0", LOOP),
    ("fence_acquire_gpu: s_waitcnt vmcnt(0) #0", LOOP),
    ("block_then_release_sys: s_waitcnt vmcnt(0) #0", RELAXED),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #3", RELAXED),
    ("load16_acquire_gpu: s_waitcnt vmcnt(0) #0", SECOND_HALF),
    ("load16_acquire_gpu: buffer_inv sc1 #0", SECOND_HALF),
    ("load16_acquire_gpu: s_waitcnt vmcnt(0) #1", LOOP),
    ("load16_acquire_gpu: buffer_inv sc1 #1", FIRST_HALF),
    ("or_acquire_gpu: s_waitcnt vmcnt(0) #0", WARM),
    ("add_acq_rel_gpu: s_waitcnt vmcnt(0) #0", WARM),
    ("exchange_acq_rel_gpu: s_waitcnt vmcnt(0) #0", WARM),
    ("cas_acq_rel_sys: s_waitcnt vmcnt(0) #0", WARM),
    ("acquire_then_block: s_waitcnt vmcnt(0) #0", WARM),
    ("fence_seq_cst_sys: s_waitcnt vmcnt(0) #1", "clang has a wait before the invalidation"),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #0", SECOND_HALF),
    ("wqe_bit_doorbell: buffer_inv sc1 #0", SECOND_HALF),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #1", LOOP),
    ("wqe_bit_doorbell: buffer_inv sc1 #1", "the combiner reads nothing of the WQE"),
    ("wqe_bit_doorbell: buffer_wbl2 sc0 sc1 #0", POSTER),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #2", POSTER),
];
const SECOND_HALF: &str = "the acquire of the second half follows";
const FIRST_HALF: &str =
    "behind that of the first half, another party has to write between two loads";
const LOOP: &str =
    "a loop then takes what its last turn had read, and an invalidation came behind that";
const RELAXED: &str = "a loop of relaxed loads then takes what its last turn had read";
const WARM: &str = "of loads whose values do not matter: they bring old copies into caches";
const POSTER: &str =
    "a poster's release in the scope of the GPU, which has an L2 in each XCD, goes to memory";

/// The same of gfx90a's code.
const MAY_PASS_GFX90A: [(&str, &str); 19] = [
    ("block_then_release_sys: s_waitcnt vmcnt(0) #0", RELAXED),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #3", RELAXED),
    ("load16_acquire_gpu: s_waitcnt vmcnt(0) #1", SECOND_HALF),
    ("load16_acquire_gpu: buffer_wbinvl1_vol #0", SECOND_HALF),
    ("load16_acquire_gpu: s_waitcnt vmcnt(0) #2", LOOP),
    ("load16_acquire_gpu: buffer_wbinvl1_vol #1", FIRST_HALF),
    ("or_acquire_gpu: s_waitcnt vmcnt(0) #1", LOOP),
    ("acquire_then_block: s_waitcnt vmcnt(0) #1", LOOP),
    ("add_acq_rel_gpu: s_waitcnt vmcnt(0) #1", ANSWER),
    ("exchange_acq_rel_gpu: s_waitcnt vmcnt(0) #1", ANSWER),
    ("cas_acq_rel_sys: s_waitcnt vmcnt(0) #1", ANSWER),
    ("fence_seq_cst_sys: s_waitcnt vmcnt(0) #1", "a wait behind the invalidations follows"),
    ("fence_seq_cst_sys: s_waitcnt vmcnt(0) #2", "a wait before the invalidations is there"),
    ("fence_seq_cst_sys: s_waitcnt vmcnt(0) #4", "without it a kernel only complains less"),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #0", SECOND_HALF),
    ("wqe_bit_doorbell: buffer_wbinvl1_vol #0", SECOND_HALF),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #1", LOOP),
    ("wqe_bit_doorbell: buffer_wbinvl1_vol #1", "the combiner reads nothing of the WQE"),
    ("wqe_bit_doorbell: s_waitcnt vmcnt(0) #2", "the poster has waited for the WQE's stores"),
];
const ANSWER: &str = "the wave waits for its atomic operation next, and so for the store: within these two instructions the \
    other block has to do all its own";

fn notices(target: Target, may_pass: &[(&str, &str)]) {
    if clang::missing() {
        return;
    }
    let names = KERNELS.map(|(name, ..)| name);
    let run = |object: &[u8], seed, kernel: usize| complaints(object, seed, KERNELS[kernel]);
    mutants::check(clang::orders(target), &names, Lacks::One, may_pass, run);
}

#[test]
fn a_missing_instruction_is_noticed() {
    notices(Target::Gfx942, &MAY_PASS);
}

#[test]
fn a_missing_instruction_of_gfx90a_is_noticed() {
    notices(Target::Gfx90a, &MAY_PASS_GFX90A);
}
