//! Litmus tests in lazy mode: no seed breaks an order of the headers, and with any instruction removed that makes one,
//! some seed does.
use crate::clang::{self, Line};
use crate::gpu::Gpu;
use std::time::Duration;
use warpverbs_gfx::{Caching, CodeObject, Stop};

/// Each kernel's blocks and threads.
const KERNELS: [(&str, u32, u32); 18] = [
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
    ("lock_by_cas", 4, 1),
    ("add_acq_rel_gpu", 2, 1),
    ("block_then_release_sys", 2, 128),
    ("acquire_then_block", 2, 128),
    ("wqe_bit_doorbell", 3, 64),
];
/// Seeds that a kernel of the headers passes.
const SEEDS: u64 = 100;
/// Seeds of which one notices that an instruction is missing.
const MORE: u64 = 600;

/// What the kernel says under the seed: the number of complaints, or an error.
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
    for kernel in KERNELS {
        for seed in 0..SEEDS {
            assert_eq!(complaints(clang::orders(), seed, kernel), Ok(0), "{kernel:?}, seed {seed}");
        }
    }
}

/// Instructions that are not there.
struct Mutant {
    name: String,
    kernel: (&'static str, u32, u32),
    object: Vec<u8>,
}

/// What is in the place of an instruction, if it is a write-back, an invalidation, or a wait for global memory.
fn without(line: &Line) -> Option<Vec<u32>> {
    match line.text.split(' ').next() {
        Some("buffer_wbl2" | "buffer_inv") => Some(vec![0xbf80_0000; 2]),
        // All bits of vmcnt: no wait for it.
        Some("s_waitcnt") if line.text.contains("vmcnt") => Some(vec![line.words[0] | 0xc00f]),
        _ => None,
    }
}

/// One of each such instruction of the kernels above. Of waits that follow each other one would be enough, so they are
/// one mutant.
fn mutants() -> Vec<Mutant> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("orders.co");
    let object = clang::orders();
    std::fs::write(&path, object).expect("room for the object");
    let parsed = CodeObject::parse(object).unwrap_or_else(|error| panic!("{error}"));
    let (start, code) = parsed.code();
    let file = object.windows(code.len()).position(|bytes| bytes == code).expect("its code");
    let (mut all, mut behind): (Vec<Mutant>, _) = (Vec::new(), 0);
    for line in clang::disassemble(&path) {
        let kernel = KERNELS.iter().find(|(name, ..)| *name == line.function);
        let (Some(&kernel), Some(nothing)) = (kernel, without(&line)) else { continue };
        let again = nothing.len() == 1 && line.address == behind;
        behind = line.address + 4;
        if !again {
            let text = format!("{}: {} #", line.function, line.text);
            let before = all.iter().filter(|other| other.name.starts_with(&text)).count();
            all.push(Mutant { name: format!("{text}{before}"), kernel, object: object.to_vec() });
        }
        let changed = &mut all.last_mut().expect("one at least").object;
        let at = file + (line.address - start) as usize;
        for (word, new) in changed[at..].chunks_exact_mut(4).zip(nothing) {
            word.copy_from_slice(&new.to_le_bytes());
        }
    }
    all
}

/// Mutants that no seed notices, and why.
const NOT_NOTICED: [(&str, &str); 15] = [
    ("load16_acquire_gpu: s_waitcnt vmcnt(0) #0", SECOND_HALF),
    ("load16_acquire_gpu: buffer_inv sc1 #0", SECOND_HALF),
    ("load16_acquire_gpu: s_waitcnt vmcnt(0) #1", LOOP),
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
const LOOP: &str =
    "a loop then takes what its last turn had read, and an invalidation came behind that";
const WARM: &str = "of loads whose values do not matter: they bring old copies into caches";
const POSTER: &str =
    "a poster's release in the scope of the GPU, which has an L2 in each XCD, goes to memory";

#[test]
fn a_missing_instruction_is_noticed() {
    if clang::missing() {
        return;
    }
    let all = mutants();
    let mut wrong = Vec::new();
    for mutant in &all {
        let noticed =
            (0..MORE).find(|&seed| complaints(&mutant.object, seed, mutant.kernel) != Ok(0));
        let excused = NOT_NOTICED.iter().any(|(name, _)| *name == mutant.name);
        println!("{}: {noticed:?}", mutant.name);
        if noticed.is_some() == excused {
            wrong.push(&mutant.name);
        }
    }
    println!("{} mutants", all.len());
    assert!(wrong.is_empty(), "not noticed, or in the list and noticed: {wrong:#?}");
}
