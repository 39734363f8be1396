//! Fetching atomics, whose old values must all be different or follow one from another.

use crate::device::ranks::{Pace, Ranks, Routes, pointer};
use warpverbs::gpu::Dim;
use warpverbs::transport::Outcome;
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::shm as k;

const AT: u64 = 128;

/// The old values of one launch, one of each thread.
fn atomic(
    ranks: &Ranks,
    (from, pe): (u32, u32),
    dim: Dim,
    (group, what, width): (u32, u32, u32),
    (first, second): (u64, u64),
) -> Vec<u64> {
    let threads = if group == 0 { 2 * 40 } else { 1 };
    let olds = ranks.buffer(8 * 2 * 40);
    ranks.run_on(from, dim, |heap, status| k::ShmAtomic {
        heap,
        group,
        what,
        width,
        at: AT,
        first,
        second,
        pe,
        olds: pointer(&olds),
        status,
    });
    let bytes = ranks.read(&olds);
    let words = bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
    words.take(threads).collect()
}

#[test]
fn every_old_value_comes_once() {
    for seed in simt_seeds(0x20, 3) {
        for routes in Routes::ALL {
            for (width, mask) in [(4, u64::from(u32::MAX)), (8, u64::MAX)] {
                if width == 4 && !routes.has_narrow_atomics() {
                    continue;
                }
                let ranks = Ranks::new(3, 1 << 12, routes, Pace::Seeded(seed));
                // Wraps round.
                let start = mask - 100;
                ranks.fill(1, AT, &start.to_le_bytes()[..width as usize]);
                let mut seen = Vec::new();
                // The owner and both others, whatever their routes.
                for from in 0..3 {
                    seen.extend(atomic(&ranks, (from, 1), Dim::new(2, 40), (0, 0, width), (3, 0)));
                }
                for group in [1, 2] {
                    seen.extend(atomic(&ranks, (0, 1), Dim::new(2, 40), (group, 0, width), (3, 0)));
                }
                seen.iter_mut().for_each(|old| *old = old.wrapping_sub(start) & mask);
                seen.sort_unstable();
                let expected: Vec<u64> = (0..3 * 80 + 2).map(|i| 3 * i).collect();
                assert_eq!(seen, expected, "{}, {width} bytes", ranks.what);
                let last = start.wrapping_add(3 * (3 * 80 + 2)) & mask;
                assert_eq!(ranks.word(1, AT) & mask, last, "{}", ranks.what);
            }
        }
    }
}

#[test]
fn exchanges_store_what_they_say() {
    for routes in Routes::ALL {
        // Nor is there a swap that asks for nothing.
        if !routes.has_narrow_atomics() {
            continue;
        }
        for width in [4, 8] {
            let ranks = Ranks::new(2, 1 << 12, routes, Pace::Seeded(0x55));
            let mut word = 0;
            let big = if width == 4 { 0xfedc_ba98 } else { 0xfedc_ba98_7654_3210 };
            // what, first, second, and the word afterwards
            for (group, (what, first, second, after)) in [
                (1, 9, 5, 0),
                (1, 0, big, big),
                (2, 77, 0, 77),
                (1, 77, 1, 1),
                (1, 77, 2, 1),
                (0, 4, 0, 5),
            ]
            .into_iter()
            .enumerate()
            .map(|(i, step)| (1 + i as u32 % 2, step))
            {
                let dim = Dim::new(1, 40);
                let old = atomic(&ranks, (0, 1), dim, (group, what, width), (first, second));
                assert_eq!(old, [word], "{}, step {what} {first} {second}", ranks.what);
                word = after;
                assert_eq!(ranks.word(1, AT), word, "{}", ranks.what);
            }
        }
    }
}

#[test]
fn an_atomic_that_the_nic_lacks_is_refused() {
    for routes in [Routes::Bnxt, Routes::Ionic] {
        let ranks = Ranks::new(2, 1 << 12, routes, Pace::Seeded(0x56));
        let olds = ranks.buffer(8 * 2 * 40);
        let tried = |pe, width, what| {
            ranks.launch_on(0, Dim::new(1, 40), |heap, status| k::ShmAtomic {
                heap,
                group: 1,
                what,
                width,
                at: AT,
                first: 1,
                second: 2,
                pe,
                olds: pointer(&olds),
                status,
            })
        };
        assert_eq!(tried(1, 4, 0), Err(Outcome::Unsupported), "{}", ranks.what);
        assert_eq!(tried(1, 8, 0), Ok(()), "{}", ranks.what);
        assert_eq!(ranks.word(1, AT), 1, "{}", ranks.what);
    }
}
