//! The duties of a device that the device library relies on: the same kernels as on host SIMT and on CUDA.
use crate::clang;
use crate::gpu::Gpu;
use std::time::Duration;
use warpverbs_gfx::{LaunchError, Stop, Target};

/// The last wave of each block is not full.
const BLOCKS: [u32; 3] = [2, 3, 1];
const BLOCK: [u32; 3] = [10, 5, 3];
const GROUPS: u64 = 6;
const THREADS: u64 = GROUPS * 150;
const SEEDS: std::ops::Range<u64> = 0..6;

fn with_selftest(body: impl Fn(&Gpu, u64)) {
    if clang::missing() {
        return;
    }
    for target in Target::ALL {
        for seed in SEEDS {
            body(&Gpu::of(clang::selftest(target), seed), seed);
            body(&Gpu::lazy(clang::selftest(target), seed), seed);
        }
    }
}

#[test]
fn threads_know_who_they_are() {
    with_selftest(|gpu, _| {
        let out = gpu.buffer(vec![0_u32; 4 * THREADS as usize + 2]);
        gpu.launch("identify", BLOCKS, BLOCK, &[out.address()])
            .unwrap_or_else(|error| panic!("{error}"));
        let out = out.to_vec();
        for thread in 0..THREADS as u32 {
            let own = thread % 150;
            let row = &out[4 * thread as usize..][..4];
            assert_eq!(row, [own, thread / 150, own % 64, own / 64], "thread {thread}");
        }
        assert_eq!(out[4 * THREADS as usize..], [150, 6]);
    });
}

#[test]
fn lanes_exchange_and_vote() {
    with_selftest(|gpu, _| {
        let out = gpu.buffer(vec![0_u64; 4 * THREADS as usize]);
        gpu.launch("collect", BLOCKS, BLOCK, &[out.address()])
            .unwrap_or_else(|error| panic!("{error}"));
        let out = out.to_vec();
        for thread in 0..THREADS {
            let (group, own) = (thread / 150 * 150, thread % 150);
            let first = group + own / 64 * 64;
            let lanes: Vec<u64> =
                (first..(group + 150).min(first + 64)).map(|thread| 1000 + thread).collect();
            let bits = |holds: &dyn Fn(u64) -> bool| {
                lanes
                    .iter()
                    .enumerate()
                    .fold(0_u64, |mask, (lane, &value)| mask | u64::from(holds(value)) << lane)
            };
            let next = lanes[(own as usize % 64 + 1) % lanes.len()];
            let equal = bits(&|value| value % 3 == (1000 + thread) % 3);
            let expected = [next, bits(&|value| value % 2 == 1), equal, lanes.iter().sum()];
            assert_eq!(out[4 * thread as usize..][..4], expected, "thread {thread}");
        }
    });
}

#[test]
fn branches_part_and_meet() {
    with_selftest(|gpu, seed| {
        let (counts, groups) = (gpu.buffer(vec![0_u64; 2]), gpu.buffer(vec![0_u64; 1]));
        let arguments = [counts.address(), groups.address(), 5];
        gpu.launch("diverge", BLOCKS, BLOCK, &arguments).unwrap_or_else(|error| panic!("{error}"));
        // Lanes are numbered within waves, which are even in number of lanes, so half of them take each branch.
        assert_eq!(counts.to_vec(), [5 * THREADS / 2; 2], "seed {seed}");
    });
}

#[test]
fn barriers_hold_the_group_together() {
    with_selftest(|gpu, seed| {
        let out = gpu.buffer(vec![0_u64; GROUPS as usize]);
        gpu.launch("reduce", BLOCKS, BLOCK, &[out.address(), 3])
            .unwrap_or_else(|error| panic!("{error}"));
        let sum = |group: u64| {
            (0..3).map(|round| (0..150).map(|own| group * 150 + own + round).sum::<u64>()).sum()
        };
        assert_eq!(out.to_vec(), (0..GROUPS).map(sum).collect::<Vec<u64>>(), "seed {seed}");
    });
}

#[test]
fn atomic_operations_lose_nothing() {
    with_selftest(|gpu, seed| {
        let (cells, lock) = (gpu.buffer(vec![0_u64; 7]), gpu.buffer(vec![0_u32; 1]));
        let arguments = [cells.address(), lock.address(), 3];
        gpu.launch("atomics", BLOCKS, BLOCK, &arguments).unwrap_or_else(|error| panic!("{error}"));
        let (sum, xor) = (0..THREADS).fold((0, 0), |(sum, xor), id| (sum + 3 * id, xor ^ id));
        let all = (0..THREADS).fold(0, |all, id| all | id);
        let expected = [sum, xor, all, THREADS - 1, 3 * THREADS, 3 * THREADS, 9 * THREADS];
        assert_eq!(cells.to_vec(), expected, "seed {seed}");
    });
}

#[test]
fn a_token_passes_all_threads() {
    with_selftest(|gpu, seed| {
        let (token, data, late) =
            (gpu.buffer(vec![0_u64]), gpu.buffer(vec![0_u64]), gpu.buffer(vec![0_u32]));
        let arguments = [token.address(), data.address(), late.address(), 50_000_000_000];
        gpu.launch("relay", [2, 1, 1], [100, 1, 1], &arguments)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (token.to_vec()[0], data.to_vec()[0], late.to_vec()[0]),
            (200, 199 * 100, 0),
            "seed {seed}"
        );
    });
}

#[test]
fn a_kernel_and_the_host_answer_each_other() {
    with_selftest(|gpu, _| {
        let (flag, reply) = (gpu.buffer(vec![0_u64]), gpu.buffer(vec![0_u64]));
        let arguments = [flag.address(), reply.address(), 7];
        let address = flag.address();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                // SAFETY: the buffer lives longer than the scope, and kernels access it by atomic operations alone.
                let flag = unsafe { std::sync::atomic::AtomicU64::from_ptr(address as *mut u64) };
                flag.store(7, std::sync::atomic::Ordering::Release);
            });
            gpu.launch("answer", [1, 1, 1], [1, 1, 1], &arguments)
                .unwrap_or_else(|error| panic!("{error}"));
        });
        assert_eq!(reply.to_vec(), [8]);
    });
}

#[test]
fn a_wait_for_nobody_ends_with_a_report() {
    with_selftest(|gpu, seed| {
        let (flag, reply) = (gpu.buffer(vec![0_u64]), gpu.buffer(vec![0_u64]));
        let arguments = [flag.address(), reply.address(), 7];
        let stop = Stop::default();
        if seed % 2 == 1 {
            stop.stop();
        }
        let time = if seed % 2 == 1 { Duration::from_secs(60) } else { Duration::from_millis(50) };
        let result = gpu.launch_for(time, stop, "answer", [2, 1, 1], [128, 1, 1], &arguments);
        let error = result.expect_err("nobody raises the flag");
        let LaunchError::Unfinished { stopped, left, places, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*stopped, *left, places.len()), (seed % 2 == 1, 4, 4), "{error}");
        let source = places[0].source.as_deref().unwrap_or_default();
        assert!(
            seed % 2 == 1 || source.contains("hip.h") || source.contains("selftest.cu"),
            "{error}"
        );
    });
}

#[test]
fn atomic_operations_are_the_hosts() {
    with_selftest(|gpu, seed| {
        const ROUNDS: u64 = 200;
        let cells = gpu.buffer(vec![0_u64; 64]);
        let address = cells.address();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for turn in 0..64 * ROUNDS {
                    let cell = (address + 8 * (turn % 64)) as *mut u64;
                    // SAFETY: the buffer lives longer than the scope, and kernels access it by atomic operations alone.
                    let cell = unsafe { std::sync::atomic::AtomicU64::from_ptr(cell) };
                    cell.fetch_add(1 << 32, std::sync::atomic::Ordering::Relaxed);
                }
            });
            let arguments = [address, ROUNDS, 0];
            gpu.launch("churn", [1, 1, 1], [64, 1, 1], &arguments)
                .unwrap_or_else(|error| panic!("{error}"));
        });
        assert_eq!(cells.to_vec(), [ROUNDS << 32 | ROUNDS; 64], "seed {seed}");
    });
}
