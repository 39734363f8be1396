//! Calls that cannot be: each says what is wrong, and nothing has moved.

use crate::calls::{Move, WAIT, Wait, put_value};
use crate::device::ranks::{LOG_SEGMENT, Pace, Ranks, Routes};
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr};
use warpverbs::transport::Outcome;
use warpverbs_shmem::{Export, ExportError, ExportWindow, Rank, RdmaRoute, WindowRank};
use warpverbs_test_kernels::shm as k;

const BYTES: u64 = 1 << 12;
const DIM: Dim = Dim::new(1, 40);
/// From rank 0 to rank 1.
const MOVE: Move = Move { group: 2, to: 0, from: 64, bytes: 8, pe: 1 };
const BAD: Result<(), Outcome> = Err(Outcome::BadAddress);

#[test]
fn places_outside_the_heap_and_ranks_beyond_the_world_are_refused() {
    for routes in Routes::APART {
        let ranks = Ranks::new(2, BYTES, routes, Pace::Seeded(2));
        for group in [0, 1, 2] {
            let put = |to, from, bytes, pe| {
                ranks.launch_on(0, DIM, Move { group, to, from, bytes, pe }.put())
            };
            let get = |to, from, bytes| {
                ranks.launch_on(0, DIM, Move { group, to, from, bytes, pe: 1 }.get())
            };
            assert_eq!(put(0, 64, 8, 2), Err(Outcome::NoPeer));
            assert_eq!(put(0, 64, 8, u32::MAX), Err(Outcome::NoPeer));
            for (to, bytes) in [
                (BYTES, 1),
                (BYTES - 7, 8),
                (0, BYTES + 1),
                (8, u64::MAX),
                (u64::MAX - 3, 8),
                (1 << 50, 0),
            ] {
                assert_eq!(put(to, 0, bytes, 1), BAD, "{to:#x} {bytes:#x}");
                assert_eq!(get(0, to, bytes), BAD, "{to:#x} {bytes:#x}");
            }
            assert_eq!(put(BYTES, 0, 0, 1), Ok(()));
            // The memory that the NIC would have to read or write has no key.
            if routes != Routes::Direct {
                assert_eq!(put(0, BYTES, 8, 1), BAD);
                assert_eq!(get(BYTES - 4, 0, 8), BAD);
            }
        }
        assert_eq!(ranks.bytes(1), vec![0; BYTES as usize]);
    }
}

#[test]
fn words_off_their_alignment_are_refused() {
    let ranks = Ranks::new(2, BYTES, Routes::Direct, Pace::Seeded(2));
    let signal = |signal| ranks.launch_on(0, DIM, MOVE.put_signal(signal, false, 1));
    let wait =
        |signal| ranks.launch_on(0, DIM, Wait { group: 1, signal, from: 1, ..WAIT }.kernel());
    let value = |to, width| ranks.launch_on(0, DIM, put_value(0, to, (1, width), 1));
    assert_eq!((signal(8), signal(BYTES), signal(BYTES - 8)), (BAD, BAD, BAD));
    assert_eq!((wait(8), wait(BYTES), wait(u64::MAX - 15)), (BAD, BAD, BAD));
    assert_eq!((value(4, 8), value(6, 4), value(BYTES - 4, 8)), (BAD, BAD, BAD));
    assert_eq!(value(7, 1), Ok(()));
}

#[test]
fn a_route_that_is_not_the_ranks_is_refused() {
    for (routes, route) in [(Routes::Direct, 2), (Routes::Rdma, 1)] {
        let ranks = Ranks::new(2, BYTES, routes, Pace::Seeded(2));
        let outcome = ranks.launch_on(0, DIM, MOVE.put_by(route));
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
    let ranks = Ranks::new(2, BYTES, Routes::Direct, Pace::Seeded(2));
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
    let ranks = Ranks::new(2, BYTES, Routes::Direct, Pace::Seeded(2));
    let mut export = export(&ranks);
    export.ranks[1] = Rank::default();
    let heap = export.upload(&*ranks.gpu).expect("a heap");
    let outcome = ranks.launch(DIM, |status| MOVE.put()(heap, status));
    assert_eq!(outcome, Err(Outcome::NoPeer));
}

#[test]
fn what_does_not_make_a_heap_is_refused_by_name() {
    let ranks = Ranks::new(2, BYTES, Routes::Direct, Pace::Seeded(2));
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
    // Even of no bytes, a registered buffer is one of each rank.
    let own = KernelPtr::at(&ranks.memory[0], 0, 0).expect("a part");
    let entries = vec![WindowRank::default()];
    let window = ExportWindow { own, near: None, ranks: entries };
    small(&|e| e.windows.push(window.clone()), "registered buffer", 1);
    let none = refused(&|e| e.ranks[1].rdma = route(Vec::new()));
    assert!(matches!(none, ExportError::Segments { rank: 0, expected: 1, found: 0, .. }), "{none}");
}
