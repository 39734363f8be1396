//! Calls that cannot be: each says what is wrong, and nothing has moved.

use crate::device::ranks::{LOG_SEGMENT, Pace, Ranks, Routes};
use std::time::Duration;
use warpverbs::gpu::{DeviceStatus, Dim, KernelPtr};
use warpverbs::transport::Outcome;
use warpverbs_shmem::{Export, ExportError, Rank, RdmaRoute};
use warpverbs_test_kernels::shm as k;

const BYTES: u64 = 1 << 12;
const DIM: Dim = Dim::new(1, 40);

fn put(ranks: &Ranks, group: u32, to: u64, from: u64, bytes: u64, pe: u32) -> Result<(), Outcome> {
    let heap = ranks.heaps[0].clone();
    ranks.launch(DIM, |status| k::ShmPut { heap, group, to, from, bytes, pe, status })
}

fn get(ranks: &Ranks, group: u32, to: u64, from: u64, bytes: u64, pe: u32) -> Result<(), Outcome> {
    let heap = ranks.heaps[0].clone();
    ranks.launch(DIM, |status| k::ShmGet { heap, group, to, from, bytes, pe, status })
}

#[test]
fn places_outside_the_heap_and_ranks_beyond_the_world_are_refused() {
    for routes in [Routes::Direct, Routes::Rdma] {
        let ranks = Ranks::new(2, BYTES as usize, routes, Pace::Seeded(2));
        let bad = Err(Outcome::BadAddress);
        for group in [0, 1, 2] {
            assert_eq!(put(&ranks, group, 0, 64, 8, 2), Err(Outcome::NoPeer));
            assert_eq!(put(&ranks, group, 0, 64, 8, u32::MAX), Err(Outcome::NoPeer));
            for (to, bytes) in [
                (BYTES, 1),
                (BYTES - 7, 8),
                (0, BYTES + 1),
                (8, u64::MAX),
                (u64::MAX - 3, 8),
                (1 << 50, 0),
            ] {
                assert_eq!(put(&ranks, group, to, 0, bytes, 1), bad, "{to:#x} {bytes:#x}");
                assert_eq!(get(&ranks, group, 0, to, bytes, 1), bad, "{to:#x} {bytes:#x}");
            }
            assert_eq!(put(&ranks, group, BYTES, 0, 0, 1), Ok(()));
            // The memory that the NIC would have to read or write has no key.
            if routes == Routes::Rdma {
                assert_eq!(put(&ranks, group, 0, BYTES, 8, 1), bad);
                assert_eq!(get(&ranks, group, BYTES - 4, 0, 8, 1), bad);
            }
        }
        assert_eq!(ranks.bytes(1), vec![0; BYTES as usize]);
    }
}

#[test]
fn words_off_their_alignment_are_refused() {
    let ranks = Ranks::new(2, BYTES as usize, Routes::Direct, Pace::Seeded(2));
    let heap = || ranks.heaps[0].clone();
    let signal = |signal| {
        ranks.launch(DIM, |status: KernelPtr<DeviceStatus>| k::ShmPutSignal {
            heap: heap(),
            group: 2,
            to: 0,
            from: 64,
            bytes: 8,
            signal,
            set: 0,
            value: 1,
            pe: 1,
            status,
        })
    };
    let wait = |signal| {
        ranks.launch(DIM, |status| k::ShmWait {
            heap: heap(),
            group: 1,
            signal,
            how: 0,
            value: 0,
            ns: 0,
            from: 1,
            status,
        })
    };
    let value = |to, width| {
        let (group, value, pe) = (0, 1, 1);
        let heap = heap();
        ranks.launch(DIM, |status| k::ShmPutValue { heap, group, to, value, width, pe, status })
    };
    let bad = Err(Outcome::BadAddress);
    assert_eq!((signal(8), signal(BYTES), signal(BYTES - 8)), (bad, bad, bad));
    assert_eq!((wait(8), wait(BYTES), wait(u64::MAX - 15)), (bad, bad, bad));
    assert_eq!((value(4, 8), value(6, 4), value(BYTES - 4, 8)), (bad, bad, bad));
    assert_eq!(value(7, 1), Ok(()));
}

#[test]
fn a_route_that_is_not_the_ranks_is_refused() {
    for (routes, route) in [(Routes::Direct, 2), (Routes::Rdma, 1)] {
        let ranks = Ranks::new(2, BYTES as usize, routes, Pace::Seeded(2));
        let heap = ranks.heaps[0].clone();
        let (group, to, from, bytes, pe) = (2, 0, 64, 8, 1);
        let outcome = ranks.launch(DIM, |status| k::ShmPutBy {
            heap,
            group,
            route,
            to,
            from,
            bytes,
            pe,
            status,
        });
        assert_eq!(outcome, Err(Outcome::NoPeer), "{}", ranks.what);
    }
}

/// Two ranks that reach each other directly.
fn export(ranks: &Ranks) -> Export {
    let rank = |i: usize| Rank {
        direct: Some(KernelPtr::new(&ranks.memory[i])),
        rdma: None,
        shared_atomics: false,
    };
    Export {
        rank: 0,
        ranks: vec![rank(0), rank(1)],
        bytes: BYTES,
        log_segment: LOG_SEGMENT,
        segments: Vec::new(),
        windows: Vec::new(),
        state: KernelPtr::new(&ranks.states[0]),
        alarms: KernelPtr::new(&ranks.alarms[0]),
        timeout: Duration::from_secs(1),
    }
}

#[test]
fn an_atomic_that_others_do_by_rdma_is_refused_where_there_is_no_queue_pair() {
    let ranks = Ranks::new(2, BYTES as usize, Routes::Direct, Pace::Seeded(2));
    let mut export = export(&ranks);
    export.ranks[1].shared_atomics = true;
    let heap = export.upload(&*ranks.gpu).expect("a heap");
    let olds = ranks.buffer(8 * 40);
    for group in [0, 2] {
        let heap = heap.clone();
        let outcome = ranks.launch(DIM, |status| k::ShmAtomic {
            heap,
            group,
            what: 0,
            width: 8,
            at: 0,
            first: 1,
            second: 0,
            pe: 1,
            olds: KernelPtr::new(&olds),
            status,
        });
        assert_eq!(outcome, Err(Outcome::MixedRoutes));
    }
    assert_eq!(ranks.word(1, 0), 0);
}

#[test]
fn a_rank_without_a_route_is_no_peer() {
    let ranks = Ranks::new(2, BYTES as usize, Routes::Direct, Pace::Seeded(2));
    let mut export = export(&ranks);
    export.ranks[1] = Rank::default();
    let heap = export.upload(&*ranks.gpu).expect("a heap");
    let outcome = ranks.launch(DIM, |status| k::ShmPut {
        heap,
        group: 2,
        to: 0,
        from: 64,
        bytes: 8,
        pe: 1,
        status,
    });
    assert_eq!(outcome, Err(Outcome::NoPeer));
}

#[test]
fn what_does_not_make_a_heap_is_refused_by_name() {
    let ranks = Ranks::new(2, BYTES as usize, Routes::Direct, Pace::Seeded(2));
    let refused = |change: &dyn Fn(&mut Export)| {
        let mut export = export(&ranks);
        change(&mut export);
        export.upload(&*ranks.gpu).expect_err("refused")
    };
    let small = |change: &dyn Fn(&mut Export), what, rank| match refused(change) {
        ExportError::Small { what: found, rank: whose, .. } => {
            assert_eq!((found, whose), (what, rank))
        }
        other => panic!("{other}"),
    };
    small(&|e| e.bytes = BYTES + 1, "memory", 0);
    small(
        &|e| e.ranks[1].direct = KernelPtr::at(&ranks.memory[1], 0, BYTES as usize - 1).ok(),
        "memory",
        1,
    );
    small(
        &|e| e.ranks[1].direct = KernelPtr::at(&ranks.memory[1], 8, BYTES as usize - 8).ok(),
        "memory",
        1,
    );
    small(&|e| e.state = KernelPtr::at(&ranks.states[0], 0, 120).expect("a part"), "state", 0);
    small(&|e| e.alarms = KernelPtr::at(&ranks.alarms[0], 0, 8).expect("a part"), "alarms", 0);
    let none = refused(&|e| e.rank = 2);
    assert!(matches!(none, ExportError::NoOwnMemory { rank: 2, world: 2 }), "{none}");
    let route = |qps| Some(RdmaRoute { qps, segments: Vec::new() });
    let none = refused(&|e| e.ranks[1].rdma = route(Vec::new()));
    assert!(matches!(none, ExportError::Segments { rank: 0, expected: 1, found: 0, .. }), "{none}");
}
