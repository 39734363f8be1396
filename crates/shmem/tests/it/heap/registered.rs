//! Buffers of the user's own.

use crate::calls::{Move, Wait};
use crate::heap::processes::raised;
use crate::heap::ranks::{PATIENCE, Rank, SIZE, config, ranks};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_shmem::{Heap, HeapConfig, Registered, Route, RoutePolicy, ShmemError, Signal, Sym};
use warpverbs_test_kernels::shm as k;
use warpverbs_transport::Outcome;

const PAGES: u64 = 7;
const PAGE: u64 = 1 << 16;
const LEN: u64 = PAGES * PAGE;

/// Memory over several allocations, as torch's expandable segments are.
fn segments(gpu: &Arc<dyn Gpu>) -> Buffer {
    let arena = gpu.arena(2 * LEN).unwrap();
    let parts: Vec<_> = [(1, 1), (2, 2), (4, 4)]
        .map(|(at, pages)| arena.commit(at * PAGE, pages * PAGE).unwrap())
        .into();
    arena.join(&parts).unwrap()
}

/// Memory that cannot be mapped by others.
fn private(gpu: &Arc<dyn Gpu>) -> Buffer {
    gpu.alloc(LEN as usize, Place::Device).unwrap()
}

fn byte(rank: u32, i: u64) -> u8 {
    (i.wrapping_mul(31) + u64::from(rank) * 97 + (i >> 8)) as u8
}

/// Offset of `at` in the buffer from the heap's base, for at_offset.
fn offset(heap: &Heap, buffer: &Buffer, at: u64) -> u64 {
    (buffer.kernel_addr() + at).wrapping_sub(heap.report().base)
}

/// Each puts a part of its buffer into the next rank's, with a signal in the heap, gets a part of the
/// last one's, and compares.
fn around(rank: &mut Rank, heap: &Heap, own: &Registered, signals: &Sym<Signal>) {
    let (me, world) = (heap.rank(), heap.world());
    let (next, last) = ((me + 1) % world, (me + world - 1) % world);
    let buffer = own.buffer();
    let bytes: Vec<u8> = (0..LEN).map(|i| byte(me, i)).collect();
    for (round, &(to, from, len)) in [
        (0, LEN / 2, 1),
        (PAGE - 5, 4 * PAGE + 3, 16),
        (3, 3 * PAGE + 7, 2 * PAGE + 9),
        (PAGE, 4 * PAGE, 3 * PAGE),
        (17, LEN, 0),
    ]
    .iter()
    .enumerate()
    {
        for group in 0..3 {
            rank.gpu.write(buffer, 0, &bytes).unwrap();
            rank.meet();
            let [at_to, at_from] = [to, from].map(|at| offset(heap, buffer, at));
            let put = Move { group, to: at_to, from: at_from, bytes: len, pe: next };
            rank.run(heap, put.put_signal(signals.offset(), false, 1)).unwrap();
            let value = 3 * round as u64 + u64::from(group) + 1;
            let wait = Wait { group, value, ..raised(signals, last, PATIENCE) };
            rank.run(heap, wait.kernel()).unwrap();
            let mut found = vec![0; LEN as usize];
            rank.gpu.read(buffer, 0, &mut found).unwrap();
            let expected = |i: u64| match i.checked_sub(to).filter(|at| *at < len) {
                Some(at) => byte(last, from + at),
                None => byte(me, i),
            };
            let wrong = (0..).zip(&found).find(|(i, found)| **found != expected(*i));
            assert_eq!(wrong, None, "rank {me} round {round} group {group}");
            rank.meet();
            // Back again, into the heap's neighbour: what was put there is fetched.
            rank.gpu.write(buffer, from, &vec![0; len as usize]).unwrap();
            rank.run(heap, Move { to: at_from, from: at_to, ..put }.get()).unwrap();
            rank.gpu.read(buffer, 0, &mut found).unwrap();
            let back = (from..from + len).all(|i| found[i as usize] == byte(me, i));
            assert!(back, "rank {me} round {round} group {group}");
            rank.meet();
        }
    }
}

fn made(rank: &mut Rank, config: &HeapConfig) -> (Heap, Sym<Signal>) {
    let mut heap = rank.heap(config).unwrap();
    let signals = heap.alloc_zeroed::<Signal>(&mut rank.world, 2).unwrap();
    (heap, signals)
}

#[test]
fn memory_over_several_allocations_is_reached_like_the_heap() {
    for (count, policy) in [(2, RoutePolicy::Auto), (3, RoutePolicy::RdmaOf(vec![1]))] {
        ranks(count, |rank| {
            let (mut heap, signals) = made(rank, &config().routes(policy.clone()));
            let own = heap.register(&mut rank.world, &segments(&rank.gpu)).unwrap();
            let routes: Vec<_> = own.routes().iter().map(|decision| decision.route).collect();
            assert_eq!(routes, heap.routes());
            around(rank, &heap, &own, &signals);
            assert!(heap.health().unwrap().is_ok());
            heap.unregister(&mut rank.world, own).unwrap();
        });
    }
}

#[test]
fn memory_that_cannot_be_mapped_is_reached_through_queue_pairs() {
    ranks(2, |rank| {
        let (mut heap, signals) = made(rank, &config().queue_pairs(true));
        let own = heap.register(&mut rank.world, &private(&rank.gpu)).unwrap();
        let peer = 1 - rank.number() as usize;
        assert_eq!((heap.routes()[peer], own.routes()[peer].route), (Route::Direct, Route::Rdma));
        let why = own.routes()[peer].explain();
        assert!(why.contains("was not allocated to be shared"), "{why}");
        around(rank, &heap, &own, &signals);
        // Beside one that is mapped, and after it is gone.
        let more = heap.register(&mut rank.world, &segments(&rank.gpu)).unwrap();
        heap.unregister(&mut rank.world, own).unwrap();
        rank.gpu.write(more.buffer(), 0, &[7; 64]).unwrap();
        rank.meet();
        heap.write(&signals, &[0; 32]).unwrap();
        rank.meet();
        around(rank, &heap, &more, &signals);
    });
}

/// A put by RDMA, unawaited, then one by stores, then a signal alone: a rank that sees the signal sees both.
#[test]
fn a_signal_follows_puts_of_both_routes() {
    let seen = AtomicU32::new(0);
    ranks(2, |rank| {
        let (mut heap, signals) = made(rank, &config().queue_pairs(true));
        let place = heap.alloc::<u8>(4096).unwrap();
        let far = heap.register(&mut rank.world, &private(&rank.gpu)).unwrap();
        for round in 1..=50u64 {
            if rank.number() == 0 {
                rank.gpu.write(far.buffer(), 0, &vec![round as u8; LEN as usize]).unwrap();
                heap.write(&place, &[round as u8; 4096]).unwrap();
                let first = offset(&heap, far.buffer(), 0);
                let both = |heap, status| k::ShmPutBoth {
                    heap,
                    first,
                    first_bytes: LEN,
                    second: place.offset(),
                    second_bytes: 4096,
                    signal: signals.offset(),
                    pe: 1,
                    status,
                };
                rank.run(&heap, both).unwrap();
            } else {
                let wait = Wait { group: 0, value: round, ..raised(&signals, 0, PATIENCE) };
                rank.run(&heap, wait.kernel()).unwrap();
                let (mut there, mut here) = (vec![0; LEN as usize], vec![0; 4096]);
                rank.gpu.read(far.buffer(), 0, &mut there).unwrap();
                heap.read(&place, &mut here).unwrap();
                assert!(there.iter().chain(&here).all(|byte| *byte == round as u8), "{round}");
                seen.fetch_add(1, Ordering::Relaxed);
            }
            rank.meet();
        }
    });
    assert_eq!(seen.into_inner(), 50);
}

#[test]
fn what_cannot_be_reached_or_differs_is_refused_on_all_ranks() {
    let seen = ranks(2, |rank| {
        let (mut heap, _) = made(rank, &config());
        let world = &mut rank.world;
        let whole = rank.gpu.alloc(SIZE as usize, Place::Device).unwrap();
        let lone = heap.register(world, &whole).unwrap_err();
        let arena = rank.gpu.arena(4 * PAGE).unwrap();
        let shared = arena.commit(0, 2 * PAGE).unwrap();
        let part = shared.buffer().slice(0, (100 + world.rank()) as usize).unwrap();
        let unequal = heap.register(world, &part).unwrap_err();
        let empty = shared.buffer().slice(0, (100 * world.rank()) as usize).unwrap();
        let empty = heap.register(world, &empty).unwrap_err();
        assert!(matches!(empty, ShmemError::Step { rank: 0, .. } | ShmemError::Config { .. }));
        // Nothing of all this is left, and a good one is taken.
        let own = heap.register(world, shared.buffer()).unwrap();
        let (mut other, _) = made(rank, &config());
        let refused = other.unregister(&mut rank.world, own.clone()).unwrap_err();
        assert!(!matches!(refused, ShmemError::Meet { .. }), "{refused}");
        let [to, from] = [2 * PAGE - 8, 0].map(|at| offset(&heap, own.buffer(), at));
        let put = |bytes| rank.run(&heap, Move { group: 2, to, from, bytes, pe: 1 }.put());
        assert_eq!((put(8), put(9)), (Ok(()), Err(Outcome::BadAddress)));
        rank.meet();
        (lone.to_string(), unequal.to_string())
    });
    for (lone, unequal) in &seen {
        assert!(lone.contains("not allocated to be shared"), "{lone}");
        assert!(lone.contains("no queue pairs") && lone.contains("for rank"), "{lone}");
        assert!(unequal.contains("length of the buffer differs"), "{unequal}");
        assert!(unequal.contains("rank 1 has 101") || unequal.contains("101"), "{unequal}");
    }
}
