//! Results in the heap, which are read where they were made.

use crate::launches::{EXPERTS, HIDDEN, Layer, Memory, TOP_K};
use crate::threads::{PATIENCE, Rank, config as heap_config, ranks};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use warpverbs::transport::Outcome;
use warpverbs_dev::seed;
use warpverbs_ep::{Combine, Ep, EpConfig, EpError, Layout};
use warpverbs_gpu::Dim;
use warpverbs_shmem::{Heap, RoutePolicy};
use zerocopy::IntoBytes;

fn config(combine: Combine) -> EpConfig {
    EpConfig::new(6, HIDDEN, TOP_K, EXPERTS)
        .layout(Layout::RankMajor)
        .combine(combine)
        .in_place(true)
}

fn made(rank: &mut Rank, policy: RoutePolicy, config: &EpConfig) -> (Heap, Ep) {
    let mut heap = rank.heap(&heap_config().timeout(PATIENCE).routes(policy)).unwrap();
    let mut ep = Ep::new(&mut heap, &mut rank.world, config).unwrap();
    ep.set_dim(Dim::new(2, 32));
    ep.set_deadline(4 * PATIENCE);
    (heap, ep)
}

/// The results of a call lie where those of the last one lay.
fn memory(rank: &Rank, heap: &Heap, ep: &Ep, layer: &Layer) -> Memory {
    let mut memory = Memory::new(rank, ep, layer);
    memory.outputs = ep.outputs(heap, 0).unwrap();
    memory
}

#[test]
fn results_are_read_where_they_were_made() {
    let seed = seed();
    for (policy, combine) in [
        (RoutePolicy::Auto, Combine::Summed),
        (RoutePolicy::Auto, Combine::Exact),
        (RoutePolicy::RdmaOf(vec![1]), Combine::Exact),
    ] {
        let config = config(combine);
        ranks(3, |rank| {
            let (heap, mut ep) = made(rank, policy.clone(), &config);
            let mut rng = SmallRng::seed_from_u64(seed);
            for _ in 0..4 {
                let layer = Layer::random(&config, ep.ways(), &mut rng);
                let memory = memory(rank, &heap, &ep, &layer);
                let routed = ep.dispatch(&heap, 0, &memory.tokens(), &memory.packed).unwrap();
                let outputs = layer.outputs[rank.number() as usize].as_bytes();
                rank.gpu.write(&memory.outputs, 0, outputs).unwrap();
                ep.combine(&heap, routed, &memory.outputs, &memory.sums).unwrap();
                memory.check(rank, &layer, Layout::RankMajor);
            }
            rank.meet();
        });
    }
}

/// Rows that are not in the channel are refused by the rank that has them, and its peers are told.
#[test]
fn rows_elsewhere_are_refused() {
    let (seed, config) = (seed(), config(Combine::Summed));
    ranks(2, |rank| {
        let (heap, mut ep) = made(rank, RoutePolicy::Auto, &config);
        // A rank that has no row elsewhere asks nobody.
        let layer = Layer::with_row(&config, ep.ways(), 0, 1, &mut SmallRng::seed_from_u64(seed));
        let mut memory = memory(rank, &heap, &ep, &layer);
        if rank.number() == 1 {
            memory.outputs = Memory::new(rank, &ep, &layer).outputs;
        }
        let routed = ep.dispatch(&heap, 0, &memory.tokens(), &memory.packed).unwrap();
        let failed = ep.combine(&heap, routed, &memory.outputs, &memory.sums).unwrap_err();
        let EpError::Kernel { outcome, missing, .. } = &*failed.cause else { panic!("{failed}") };
        assert!(missing.contains(&1), "{failed}");
        let expected = if rank.number() == 1 { Outcome::BadAddress } else { Outcome::PeerLost };
        assert_eq!(*outcome, expected, "{failed}");
        rank.meet();
    });
}

/// A rank that others exclude while it has yet to read their results may find others there, and learns of it.
#[test]
fn a_rank_that_is_excluded_before_it_has_read_says_so() {
    let (seed, config) = (seed(), config(Combine::Summed));
    ranks(3, |rank| {
        let (mut heap, mut ep) = made(rank, RoutePolicy::Auto, &config);
        let layer = Layer::random(&config, ep.ways(), &mut SmallRng::seed_from_u64(seed));
        let memory = memory(rank, &heap, &ep, &layer);
        let routed = ep.dispatch(&heap, 0, &memory.tokens(), &memory.packed).unwrap();
        let outputs = layer.outputs[rank.number() as usize].as_bytes();
        rank.gpu.write(&memory.outputs, 0, outputs).unwrap();
        let returned = ep.combine_send(&heap, routed, &memory.outputs).unwrap();
        if rank.number() != 1 {
            ep.combine_recv(&heap, returned, &memory.sums).unwrap();
            memory.check(rank, &layer, Layout::RankMajor);
            ep.exclude(&mut heap, &mut rank.world, &[1]).unwrap();
            rank.gpu.write(&memory.outputs, 0, &vec![0xee; memory.outputs.len()]).unwrap();
            // The excluded rank is in no barrier any more.
            let me = rank.number();
            rank.world.client().set(&format!("{me} overwrote"), b"").unwrap();
            rank.world.client().get("1 read").unwrap();
        } else {
            for other in [0, 2] {
                rank.world.client().get(&format!("{other} overwrote")).unwrap();
            }
            let failed = ep.combine_recv(&heap, returned, &memory.sums).unwrap_err();
            let EpError::Kernel { outcome, missing, .. } = &*failed.cause else {
                panic!("{failed}")
            };
            assert_eq!(*outcome, Outcome::PeerLost, "{failed}");
            assert!(missing.contains(&0) && missing.contains(&2), "{failed}");
            rank.world.client().set("1 read", b"").unwrap();
        }
    });
}
