//! The same calls again and again, every one of which is compared by a hash of all that it gave.

use crate::case::Case;
use crate::cases::{Layers, at_pace, under_seed};
use crate::data::Outputs;
use crate::ranks::{Pace, Routes, pointer};
use rand::RngExt;
use rand::rngs::SmallRng;
use warpverbs::gpu::{Dim, Place};
use warpverbs_dev::simt_seeds;
use warpverbs_ep::{Combine, Layout};
use warpverbs_test_kernels::ep::EpAgain;
use zerocopy::IntoBytes;

fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The sum of `hash_of` of numbers `first..` of an array.
fn hash_of<T: Copy + Into<u64>>(kind: u64, first: usize, values: &[T]) -> u64 {
    let one = |(i, value): (u64, &T)| mixed(mixed(kind << 56 | i).wrapping_add((*value).into()));
    (first as u64..).zip(values).map(one).fold(0, u64::wrapping_add)
}

/// `hash_of_call` of what the reference gives, by batch and rank.
fn expected(layers: &Layers) -> Vec<u64> {
    let Layers { case, inputs, .. } = layers;
    let all = Outputs::expected(case, inputs);
    let [hidden, local, ranks, tokens] =
        [case.hidden, case.local(), case.ranks, case.tokens].map(|n| n as usize);
    let capacity = case.capacity();
    let one = |i: usize| {
        let own = case.config.experts_of(case.ranks, (i % ranks) as u32).len();
        let count = inputs.counts[i] as usize;
        let mut sum = hash_of(5, 0, &all.sums[i * tokens * hidden..][..count * hidden]);
        if case.layout == Layout::RankMajor {
            return sum;
        }
        let (counts, bases) = (&all.counts[i * local..][..own], &all.bases[i * local..][..own]);
        let ranges = &all.ranges[i * local * ranks..][..own * ranks];
        let mut add = |hash: u64| sum = sum.wrapping_add(hash);
        let tables = [hash_of(0, 0, counts), hash_of(1, 0, bases), hash_of(2, 0, ranges)];
        tables.into_iter().for_each(&mut add);
        for (&count, &base) in counts.iter().zip(bases) {
            let (rows, at) = (count as usize, base as usize);
            add(hash_of(3, at, &all.tokens[i * capacity + at..][..rows]));
            let packed = &all.packed[(i * capacity + at) * hidden..][..rows * hidden];
            add(hash_of(4, at * hidden, packed));
        }
        sum
    };
    (0..(case.calls * case.ranks) as usize).map(one).collect()
}

/// Runs the batches of the case in turn, `calls` times in all.
fn again(layers: &Layers, calls: u32) {
    let Layers { case, inputs, ranks, .. } = layers;
    let memory = |bytes: usize| ranks.gpu.alloc(bytes.max(16), Place::Shared);
    let given = |bytes: &[u8]| {
        let buffer = memory(bytes.len()).expect("memory");
        ranks.gpu.write(&buffer, 0, bytes).expect("write");
        buffer
    };
    let each = |bytes: usize| given(&vec![0; bytes * case.ranks as usize]);
    let (rows, experts) = (given(inputs.rows.as_bytes()), given(inputs.experts.as_bytes()));
    let (weights, outputs) = (given(inputs.weights.as_bytes()), given(inputs.outputs.as_bytes()));
    let (counts, expected) = (given(inputs.counts.as_bytes()), given(expected(layers).as_bytes()));
    let [hidden, local, tokens] = [case.hidden, case.local(), case.tokens].map(|n| n as usize);
    let [packed, of_token] = [2 * hidden, 4].map(|n| each(n * case.capacity()));
    let [of_expert, bases, ranges] = [4, 4, 8 * case.ranks as usize].map(|n| each(n * local));
    let (sums, wrong, status) = (each(2 * tokens * hidden), each(4), each(4));
    let [come, hashes] = [each(8), each(8)];
    let kernel = EpAgain {
        members: layers.members(),
        ranks: case.ranks,
        blocks: case.dim.0,
        calls,
        batches: case.calls,
        hidden: case.hidden,
        top_k: case.top_k,
        tokens: case.tokens,
        local: case.local(),
        capacity: case.capacity() as u32,
        counts: pointer(&counts),
        rows: pointer(&rows),
        experts: pointer(&experts),
        weights: pointer(&weights),
        outputs: pointer(&outputs),
        packed: pointer(&packed),
        of_token: pointer(&of_token),
        of_expert: pointer(&of_expert),
        bases: pointer(&bases),
        ranges: pointer(&ranges),
        sums: pointer(&sums),
        expected: pointer(&expected),
        come: pointer(&come),
        hashes: pointer(&hashes),
        wrong: pointer(&wrong),
        status: pointer(&status),
    };
    let what = format!("{case:?}, {}", ranks.what);
    let ended = ranks.run_kernel(&kernel, Dim::new(case.ranks * case.dim.0, case.dim.1));
    ended.unwrap_or_else(|e| panic!("{what}: {e}"));
    let none = vec![0; 4 * case.ranks as usize];
    let read = |buffer| ranks.read(buffer)[..none.len()].to_vec();
    assert_eq!((read(&wrong), read(&status)), (none.clone(), none.clone()), "{what}");
    // All have come to the end.
    let ended = (case.epoch + calls) & 0xff_ffff;
    (0..case.ranks).for_each(|rank| assert_eq!(layers.last_ended(rank), ended, "{what}"));
    layers.check_canaries(&what);
}

/// A few batches, the epoch's bits running over soon.
fn batches(rng: &mut SmallRng, routes: Routes) -> Case {
    let (layout, combine) = [
        (Layout::ExpertMajor, Combine::Reduced),
        (Layout::RankMajor, Combine::Exact),
        (Layout::Flat { align: 4 }, Combine::Exact),
        (Layout::RankMajor, Combine::Summed),
    ][rng.random_range(0..4)];
    let mut case = Case::new((rng.random_range(2..=4), routes), [8, 64, 4, 11], layout, combine);
    (case.calls, case.epoch, case.dim) = (5, (1 << 24) - 20, (3, 64));
    case
}

#[test]
fn every_call_of_many_has_the_hash_of_the_reference() {
    for seed in simt_seeds(0xb00, 3) {
        let routes = Routes::ALL[seed as usize % Routes::ALL.len()];
        again(&under_seed(seed, |rng| batches(rng, routes)), 50);
    }
}

/// 10^5 times, in the layout that the seed chooses: one to two minutes.
#[test]
#[ignore = "needs a GPU"]
fn every_call_of_many_on_a_gpu_has_the_hash_of_the_reference() {
    for seed in simt_seeds(0xb00, 1) {
        again(&at_pace(Pace::Gpu, seed, |rng| batches(rng, Routes::Direct)), 100_000);
    }
}
