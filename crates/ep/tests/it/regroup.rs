//! Members that regroup, as threads of one process.

use crate::launches::{EXPERTS, HIDDEN, Layer, Memory, TOP_K};
use crate::threads::{PATIENCE, Rank, config as heap_config, ranks, world_config};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use warpverbs::transport::Outcome;
use warpverbs_dev::seed;
use warpverbs_ep::{Ep, EpConfig, EpError, Layout};
use warpverbs_gpu::Dim;
use warpverbs_rendezvous::{World, WorldError};
use warpverbs_shmem::{Heap, RoutePolicy};

fn config() -> EpConfig {
    EpConfig::new(6, HIDDEN, TOP_K, EXPERTS).channels(2)
}

fn made(rank: &mut Rank, config: &EpConfig) -> Result<(Heap, Ep), EpError> {
    // No wait ends by itself, however slow the machine is.
    let heap = heap_config().timeout(PATIENCE).routes(RoutePolicy::RdmaOf(vec![1]));
    let mut heap = rank.heap(&heap)?;
    let mut ep = Ep::new(&mut heap, &mut rank.world, config)?;
    ep.set_dim(Dim::new(2, 32));
    ep.set_deadline(4 * PATIENCE);
    Ok((heap, ep))
}

/// A call that must be right.
fn call(rank: &Rank, heap: &Heap, ep: &mut Ep, channel: usize, seed: u64, away: &[u32]) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let layer = Layer::random(&config(), ep.ways(), &mut rng);
    let memory = Memory::new(rank, ep, &layer);
    let routed = ep.dispatch(heap, channel, &memory.tokens(), &memory.packed).unwrap();
    ep.combine(heap, routed, &memory.outputs, &memory.sums).unwrap();
    let left = layer.without(&config(), ep.ways(), away);
    memory.check(rank, &left, Layout::ExpertMajor);
}

/// A member that regroups ends the waits of the others, which begin the call anew with the same members.
#[test]
fn a_call_that_failed_is_made_again_by_the_same_members() {
    let seed = seed();
    ranks(3, |rank| {
        let (mut heap, mut ep) = made(rank, &config()).unwrap();
        call(rank, &heap, &mut ep, 1, seed, &[]);
        rank.meet();
        if rank.number() != 2 {
            let layer = Layer::random(&config(), ep.ways(), &mut SmallRng::seed_from_u64(seed));
            let memory = Memory::new(rank, &ep, &layer);
            // Rank 2 makes no such call.
            let failed = ep.dispatch(&heap, 1, &memory.tokens(), &memory.packed).unwrap_err();
            let EpError::Kernel { outcome, missing, .. } = &*failed.cause else {
                panic!("{failed}")
            };
            assert_eq!(*outcome, Outcome::Aborted);
            assert!(missing.contains(&2), "{failed}");
        }
        let regrouped = ep.regroup(&mut heap, &mut rank.world, &[0, 1, 2]).unwrap();
        assert_eq!((regrouped.generation, &regrouped.done[..]), (1, &[0, 1][..]));
        for channel in [0, 1, 0] {
            call(rank, &heap, &mut ep, channel, seed ^ 1, &[]);
        }
        rank.meet();
    });
}

/// A rank is excluded that lives, and comes back with other settings: all say so. The others go on.
#[test]
fn a_rank_that_comes_back_with_other_settings_is_refused() {
    let seed = seed();
    ranks(3, |rank| {
        let (mut heap, mut ep) = made(rank, &config()).unwrap();
        call(rank, &heap, &mut ep, 0, seed, &[]);
        rank.meet();
        let unequal = "layout differs: rank 0 has 1, rank 1 has 2";
        if rank.number() == 1 {
            // The proposal of the others is there.
            rank.world.client().get("warpverbs/test/0/view/1/members").unwrap();
            let error = rank.world.regroup(&[0, 1, 2]).unwrap_err();
            let expected = WorldError::Excluded { rank: 1, members: vec![0, 2] };
            assert_eq!(error.to_string(), expected.to_string());
            drop((heap, ep));
            let port = rank.world.client().peer().port();
            rank.world = World::rejoin(&world_config(1, 3, port)).unwrap();
            let other = config().layout(Layout::Flat { align: 8 });
            let error = made(rank, &other).err().unwrap();
            assert_eq!(error.to_string(), unequal);
            return;
        }
        let without = ep.exclude(&mut heap, &mut rank.world, &[1]).unwrap();
        assert_eq!(without.members, [0, 2]);
        call(rank, &heap, &mut ep, 0, seed ^ 1, &[1]);
        rank.meet();
        let error = ep.admit(&mut heap, &mut rank.world, &[1]).unwrap_err();
        assert_eq!(error.to_string(), unequal);
        let without = ep.exclude(&mut heap, &mut rank.world, &[1]).unwrap();
        assert_eq!((without.generation, &without.done[..]), (2, &[2, 0][..]));
        call(rank, &heap, &mut ep, 0, seed ^ 2, &[1]);
        call(rank, &heap, &mut ep, 1, seed ^ 3, &[1]);
        // A call that needs all ranks is refused at once.
        let error = heap.grow(&mut rank.world).unwrap_err().to_string();
        assert!(error.contains("ranks [1] are away"), "{error}");
        rank.meet();
    });
}
