//! The posting protocol in lazy mode, with a NIC that is a block of the kernel: no seed breaks it, and without any
//! instruction that makes an order some seed does.
use crate::clang;
use crate::gpu::Gpu;
use crate::mutants::{self, Lacks};
use std::time::Duration;
use warpverbs_gfx::{Caching, Stop, Target};

/// Each kernel's blocks, threads, and WRITEs of a poster.
const KERNELS: [(&str, u32, u32, u64); 3] =
    [("post_alone", 5, 1, 3), ("post_group", 4, 4, 2), ("post_for_block", 4, 128, 3)];
/// Seeds that the headers pass.
const SEEDS: u64 = 100;

fn complaints(object: &[u8], seed: u64, kernel: (&str, u32, u32, u64)) -> Result<u64, String> {
    let gpu = Gpu::lazy(object, seed);
    let [qp, queue, data] =
        [24, 0x500, 512].map(|len| gpu.cached(vec![0_u64; len], Caching::Cached));
    let [shared, landed, wrong] = [256, 512, 1].map(|len| gpu.buffer(vec![0_u64; len]));
    let arguments = [qp.address(), queue.address(), shared.address()];
    gpu.launch("prepare", [1; 3], [1; 3], &arguments).map_err(|error| error.to_string())?;
    let (name, blocks, threads, times) = kernel;
    let arguments = [qp.address(), data.address(), landed.address(), wrong.address(), times];
    let (time, stop) = (Duration::from_secs(30), Stop::default());
    let ended = gpu.launch_for(time, stop, name, [blocks, 1, 1], [threads, 1, 1], &arguments);
    ended.map(|()| wrong.to_vec()[0]).map_err(|error| error.to_string())
}

#[test]
fn posts_arrive() {
    if clang::missing() {
        return;
    }
    for target in Target::ALL {
        for kernel in KERNELS {
            for seed in 0..SEEDS {
                let found = complaints(clang::posts(target), seed, kernel);
                assert_eq!(found, Ok(0), "{kernel:?} on {target}, seed {seed}");
            }
        }
    }
}

/// Mutants that no seed need notice, and why.
const MAY_PASS: [(&str, &str); 6] = [
    ("post_alone: s_waitcnt behind buffer_wbl2 sc1", TOKEN),
    ("post_group: s_waitcnt behind buffer_wbl2 sc1", TOKEN),
    ("post_for_block: s_waitcnt behind buffer_wbl2 sc1", TOKEN),
    ("post_group: buffer_wbl2 sc0 sc1", POSTERS),
    ("post_group: buffer_inv sc0 sc1", TOGETHER),
    ("post_group: s_waitcnt behind buffer_wbl2 sc0 sc1", POSTERS),
];
const TOKEN: &str = "the poster asks for the token next, and waits then; another one has to ring meanwhile, and a NIC to look";
const TOGETHER: &str =
    "lanes leave a wait together, and those that do not poll acquire the poll word";
const POSTERS: &str = "each group has released its WQEs in the scope of the GPU before, and so to memory: there is an \
    L2 in each XCD";

/// The same of gfx90a's code.
const MAY_PASS_GFX90A: [(&str, &str); 2] = [
    ("post_alone: s_waitcnt behind buffer_wbl2", WAITED),
    ("post_group: s_waitcnt behind buffer_wbl2", WAITED),
];
const WAITED: &str =
    "the WQE's stores were waited for before, and this NIC does not look at the doorbell record";

fn notices(target: Target, may_pass: &[(&str, &str)]) {
    if clang::missing() {
        return;
    }
    let names = KERNELS.map(|(name, ..)| name);
    let run = |object: &[u8], seed, kernel: usize| complaints(object, seed, KERNELS[kernel]);
    mutants::check(clang::posts(target), &names, Lacks::All, may_pass, run);
}

#[test]
fn a_missing_instruction_is_noticed() {
    notices(Target::Gfx942, &MAY_PASS);
}

#[test]
fn a_missing_instruction_of_gfx90a_is_noticed() {
    notices(Target::Gfx90a, &MAY_PASS_GFX90A);
}
