//! Calls that cannot be: each says what is wrong, and nothing has moved.

use crate::views::agents::{Agents, DIM, GROUPS, ROUTES, Route};
use std::time::Duration;
use warpverbs::gpu::simt::SimtFault;
use warpverbs::gpu::{Dim, LaunchError};
use warpverbs::raw::gpu::views::{
    LocalPart, RemotePart, RemoteWay, ViewError, ViewWaits, local_view, remote_view,
};
use warpverbs::transport::Outcome;
use warpverbs_test_kernels::nixl as k;

const BYTES: u64 = 4096;
const ENTRIES: [(u64, u64); 2] = [(0, BYTES), (0, 16)];
const BAD: Result<(), Outcome> = Err(Outcome::BadAddress);

#[test]
fn ranges_outside_their_entries_and_entries_outside_their_view_are_refused() {
    for (route, group) in ROUTES.into_iter().flat_map(|r| GROUPS.map(|g| (r, g))) {
        let agents = Agents::new(BYTES as usize, route, 7);
        let (local, remote) = (agents.local(0, &ENTRIES), agents.remote(0, &ENTRIES));
        let put = |from_index, from, to_index, to, bytes| {
            let (local, remote) = (local.clone(), remote.clone());
            agents.launch(DIM, |status| k::NixlPut {
                local,
                remote,
                group,
                from_index,
                from,
                to_index,
                to,
                bytes,
                channel: 0,
                status,
            })
        };
        for (offset, bytes) in
            [(BYTES, 1), (BYTES - 7, 8), (0, BYTES + 1), (8, u64::MAX), (u64::MAX, 2)]
        {
            assert_eq!(put(0, offset, 0, 0, bytes), BAD, "{offset:#x} {bytes:#x}");
            assert_eq!(put(0, 0, 0, offset, bytes), BAD, "{offset:#x} {bytes:#x}");
        }
        assert_eq!((put(2, 0, 0, 0, 8), put(0, 0, 2, 0, 8)), (BAD, BAD));
        assert_eq!((put(u32::MAX, 0, 0, 0, 0), put(0, 0, u32::MAX, 0, 0)), (BAD, BAD));
        assert_eq!(put(0, BYTES, 0, BYTES, 0), Ok(()));
        assert_eq!(agents.read(&agents.memory[1]), vec![0; BYTES as usize]);
    }
}

#[test]
fn a_hole_is_no_peer_and_neither_is_one_that_is_reached_otherwise() {
    for route in ROUTES {
        let agents = Agents::new(BYTES as usize, route, 8);
        let local = agents.local(0, &ENTRIES);
        let view = |parts: &[Option<RemotePart>]| {
            remote_view(&*agents.gpu, parts, Duration::from_secs(1)).expect("a view")
        };
        let holes = view(&[None, Some(agents.part(0, (0, 16)))]);
        for group in GROUPS {
            let counter = k::Counter { offset: 0, value: 1, index: 0, channel: 0 };
            let remote = holes.clone();
            let added = agents.launch(DIM, |status| k::NixlAdd { remote, group, counter, status });
            assert_eq!(added, Err(Outcome::NoPeer));
        }
        let by = |route| {
            let (local, remote) = (local.clone(), agents.remote(0, &ENTRIES));
            agents.launch(DIM, |status| k::NixlPutBy { local, remote, route, bytes: 8, status })
        };
        let other = if route == Route::Direct { 2 } else { 1 };
        assert_eq!((by(other), by(3 - other)), (Err(Outcome::NoPeer), Ok(())));
    }
}

#[test]
fn local_memory_without_a_key_goes_by_loads_and_stores_alone() {
    for (route, expected) in [(Route::Direct, Ok(())), (Route::Rdma, BAD)] {
        let agents = Agents::new(BYTES as usize, route, 9);
        let part = LocalPart { memory: agents.memory[0].clone(), nic: None };
        let local = local_view(&*agents.gpu, &[part], &agents.waits[0]).expect("a view");
        let remote = agents.remote(0, &ENTRIES);
        let put = agents.launch(DIM, |status| k::NixlPut {
            local,
            remote,
            group: 2,
            from_index: 0,
            from: 0,
            to_index: 0,
            to: 0,
            bytes: 64,
            channel: 0,
            status,
        });
        assert_eq!(put, expected);
    }
}

#[test]
fn parts_that_do_not_make_a_view_are_refused_by_name() {
    let agents = Agents::new(BYTES as usize, Route::Rdma, 10);
    let rdma = agents.part(0, (0, 16));
    let RemoteWay::Rdma { place, bytes, .. } = rdma.way.clone() else { unreachable!("by RDMA") };
    let direct = RemotePart { way: RemoteWay::Direct(agents.memory[1].clone()), ..rdma.clone() };
    let none =
        RemotePart { way: RemoteWay::Rdma { place, bytes, qps: Vec::new() }, ..rdma.clone() };
    let refused = |parts: &[Option<RemotePart>]| {
        remote_view(&*agents.gpu, parts, Duration::from_secs(1)).expect_err("refused")
    };
    let other = RemotePart { peer: 5, ..direct.clone() };
    assert!(matches!(
        refused(&[Some(rdma), Some(other), None, Some(direct)]),
        ViewError::MixedRoutes { entry: 3, peer: 1 }
    ));
    assert!(matches!(refused(&[None, Some(none)]), ViewError::QueuePairs { entry: 1, found: 0 }));
}

fn wait(agents: &Agents, group: u32, ns: u64, peer: u32) -> Result<(), Outcome> {
    let local = agents.local(0, &ENTRIES);
    agents.launch(Dim::new(1, 40), |status| k::NixlWait {
        local,
        group,
        index: 1,
        offset: 0,
        how: 2,
        value: 9,
        ns,
        peer,
        status,
    })
}

#[test]
fn a_wait_ends_by_its_deadline_and_leaves_a_record() {
    for group in GROUPS {
        let agents = Agents::new(BYTES as usize, Route::Direct, 11);
        assert_eq!(agents.waits[0].record(&*agents.gpu).expect("a record"), None);
        assert_eq!(wait(&agents, group, 50_000, 1), Err(Outcome::Timeout));
        let record =
            agents.waits[0].record(&*agents.gpu).expect("a record").expect("a failed wait");
        assert_eq!((record.peer, record.expected, record.actual), (1, 9, 0));
        // All lanes of a warp look, of a block those of its first warp, and the first one that gives
        // up says so.
        let members = if group == 0 { 1 } else { agents.gpu.info().warp_size.into() };
        assert!(record.thread < members, "group {group}: thread {}", record.thread);
        assert_eq!(record.address, agents.memory[0].kernel_addr());
    }
}

#[test]
fn the_host_ends_waits_for_a_peer_and_all_waits() {
    let agents = Agents::new(BYTES as usize, Route::Direct, 12);
    let waits: &ViewWaits = &agents.waits[0];
    waits.give_up(&*agents.gpu, 1).expect("an alarm");
    waits.give_up(&*agents.gpu, 2).expect("nobody");
    assert_eq!(wait(&agents, 2, 0, 1), Err(Outcome::PeerLost));
    assert_eq!(wait(&agents, 1, 50_000, 0), Err(Outcome::Timeout));
    waits.abort(&*agents.gpu).expect("an alarm");
    assert_eq!(wait(&agents, 0, 0, u32::MAX), Err(Outcome::Aborted));
}

#[test]
fn a_call_of_a_group_that_one_lane_makes_ends_the_launch() {
    for (route, group) in ROUTES.into_iter().flat_map(|r| [1, 2].map(|g| (r, g))) {
        for sync in [0, 1] {
            let agents = Agents::new(BYTES as usize, route, 13);
            let (local, remote) = (agents.local(0, &ENTRIES), agents.remote(0, &ENTRIES));
            let ended = agents.try_launch(Dim::new(1, 64), |status| k::NixlPartOfGroup {
                local,
                remote,
                group,
                sync,
                bytes: 1024,
                status,
            });
            let Err(LaunchError::Simt(fault)) = &ended else {
                panic!("{route:?} {group}: {ended:?}")
            };
            let named = matches!(
                fault,
                SimtFault::Trap { .. } | SimtFault::AbsentLanes { .. } | SimtFault::Deadlock { .. }
            );
            assert!(named, "{route:?} {group}: {fault}");
            assert_eq!(agents.read(&agents.memory[1]), vec![0; BYTES as usize]);
        }
    }
}
