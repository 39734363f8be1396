//! Thousands of lanes on one queue pair, far beyond its depth and across the 16-bit wrap.

use crate::bed::lockstep;
use crate::device::world::{POLICIES, World, pointer};
use warpverbs::gpu::{Dim, Remote};
use warpverbs::transport::CqMode;
use warpverbs_dev::{pattern, runs};
use warpverbs_test_kernels::stress as k;

/// Bytes of a cell, and of the part that counts, in `stress.cu`.
const CELL: usize = 512;
const CELL_USED: usize = 232;

fn mixed(world: &World, depth: u32, mode: CqMode, dim: Dim, rounds: u32, seed: u64) {
    let threads = (dim.blocks() * dim.threads()) as usize;
    let (a, b) = world.pair(&world.config(depth).send_cq(mode));
    let (local, remote) = (world.memory(threads * CELL), world.memory(threads * CELL));
    let (expect, status) = (world.memory(threads * CELL), world.memory(threads * 4));
    let kernel = k::Mixed {
        qp: a.device_qp(),
        mine: pointer(&local),
        from: local.local().into(),
        to: remote.remote().into(),
        expect: pointer(&expect),
        rounds,
        seed,
        status: pointer(&status),
    };
    world.run(&kernel, dim);
    world.all_ok(&status, &[&a, &b]);
    let (expected, found) = (world.bytes(&expect), world.bytes(&remote));
    for (thread, (want, have)) in
        expected.chunks_exact(CELL).zip(found.chunks_exact(CELL)).enumerate()
    {
        assert_eq!(want[..CELL_USED], have[..CELL_USED], "{}, thread {thread}", world.what);
    }
}

#[test]
fn every_operation_by_chance_is_done_once_and_in_order() {
    for seed in 0..12u64 {
        let policy = POLICIES[seed as usize % 4];
        let mode = if seed % 3 == 0 { CqMode::Ring } else { CqMode::Collapsed };
        // Single threads, part of a warp in two dimensions, several blocks.
        let dim = [Dim::new(1, 1), Dim::of(3, (20, 2)), Dim::new(4, 96)][seed as usize / 4];
        let depth = [128, 256][seed as usize % 2];
        mixed(&World::seeded(seed, policy), depth, mode, dim, 40, seed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Thread,
    Warp,
    Block,
    EachOfWarp,
    EachOfBlock,
    Verbs,
    NoWait,
}

const SCOPES: [Scope; 7] = [
    Scope::Thread,
    Scope::Warp,
    Scope::Block,
    Scope::EachOfWarp,
    Scope::EachOfBlock,
    Scope::Verbs,
    Scope::NoWait,
];

/// Those in which lanes of a warp may post on one queue pair: not by verbs if they run in lockstep, where
/// one that waits for room keeps another from ringing.
fn scopes<const N: usize>(scopes: [Scope; N]) -> Vec<Scope> {
    scopes.into_iter().filter(|scope| !lockstep() || *scope != Scope::Verbs).collect()
}

/// Returns how many WQEBBs went through the queue.
fn scoped(world: &World, depth: u32, dim: Dim, rounds: u32, scope: Scope) -> u64 {
    let threads = (dim.blocks() * dim.threads()) as usize;
    let groups = match scope {
        Scope::Warp => {
            dim.blocks() as usize * dim.threads().div_ceil(world.gpu.info().warp_size) as usize
        }
        Scope::Block => dim.blocks() as usize,
        _ => threads,
    };
    let bytes = 24;
    let (a, b) = world.pair(&world.config(depth));
    let (local, remote) = (world.memory(groups * bytes), world.memory(groups * bytes));
    let (counters, status) = (world.memory(groups * 8), world.memory(threads * 4));
    let data = pattern(groups * bytes, 1);
    world.fill(&local, &data);
    let kernel = k::Scoped {
        qp: a.device_qp(),
        from: local.local().into(),
        to: remote.remote().into(),
        counter: counters.remote().into(),
        bytes: bytes as u32,
        rounds,
        how: scope as u32,
        status: pointer(&status),
    };
    world.run(&kernel, dim);
    world.all_ok(&status, &[&a, &b]);
    assert!(world.bytes(&remote) == data, "{scope:?}, {}: bytes differ", world.what);
    for (group, count) in world.words(&counters).into_iter().enumerate() {
        assert_eq!(count, u64::from(rounds), "{scope:?}, {}: adds of {group}", world.what);
    }
    a.health().expect("health").send.completed
}

#[test]
fn every_scope_posts_everything_exactly_once() {
    for (i, scope) in scopes(SCOPES).into_iter().enumerate() {
        let world = World::seeded(0x5c0e + i as u64, POLICIES[i % 4]);
        // Partial warps in every block.
        scoped(&world, 128, Dim::new(3, 80), 5, scope);
    }
}

#[test]
fn four_thousand_lanes_go_ten_times_round_and_across_the_wrap() {
    for i in 0..runs(2) {
        let world = World::seeded(0xb16 + i, POLICIES[i as usize % 4]);
        let scope = [Scope::Thread, Scope::EachOfWarp][i as usize % 2];
        let done = scoped(&world, 1024, Dim::new(32, 128), 9, scope);
        // Also more than ten times the depth.
        assert!(done > 1 << 16, "{done} WQEBBs");
    }
}

/// Small rings and whole warps: passes that end at the end of a word, WQEs that span words, laps that
/// are ready from end to end before anybody looks. See docs/ordering.md.
#[test]
fn full_rings_and_split_wqes_are_rung_for_whole() {
    let scopes = scopes([Scope::Thread, Scope::EachOfWarp, Scope::EachOfBlock, Scope::Verbs]);
    for i in 0..runs(8) {
        let (seed, policy) = (0xc07 + i, POLICIES[i as usize % 4]);
        let scope = scopes[i as usize % scopes.len()];
        scoped(&World::seeded(seed, policy), 128, Dim::new(4, 128), 8, scope);
        let world = World::seeded(seed, policy);
        mixed(&world, 128, CqMode::Collapsed, Dim::new(2, 96), 30, i);
    }
}

fn ordered(world: &World, depth: u32, dim: Dim, rounds: u32) {
    let threads = (dim.blocks() * dim.threads()) as usize;
    let (a, b) = world.pair(&world.config(depth));
    let (cells, status) = (world.memory(threads * 8 + 8), world.memory(threads * 4));
    let kernel = k::Ordered {
        qp: a.device_qp(),
        cells: cells.remote().into(),
        counter: Remote::from(cells.remote()).offset(threads as u64 * 8),
        rounds,
        status: pointer(&status),
    };
    world.run(&kernel, dim);
    world.all_ok(&status, &[&a, &b]);
    let found = world.words(&cells);
    assert!(found[..threads].iter().all(|v| *v == u64::from(rounds)), "{}", world.what);
    assert_eq!(found[threads], threads as u64, "{}: signals", world.what);
}

#[test]
fn a_threads_writes_stay_in_order() {
    for seed in 0..8 {
        ordered(&World::seeded(seed, POLICIES[seed as usize % 4]), 128, Dim::new(2, 64), 12);
    }
}

fn messages(world: &World, depth: u32, receives: u32, dim: Dim, rounds: u32) {
    let threads = (dim.blocks() * dim.threads()) as usize;
    let count = threads / 2 * rounds as usize;
    let (a, b) = world.pair(&world.config(depth).recv_depth(receives));
    let (local, remote) = (world.memory(count * 8), world.memory(count * 8));
    let (sums, status) = (world.memory(8), world.memory(threads * 4));
    world.fill(&local, &pattern(count * 8, 2));
    let kernel = k::Messages {
        from: a.device_qp(),
        to: b.device_qp(),
        source: local.local().into(),
        target: remote.local().into(),
        rounds,
        sums: pointer(&sums),
        status: pointer(&status),
    };
    world.run(&kernel, dim);
    world.all_ok(&status, &[&a, &b]);
    let n = count as u64;
    assert_eq!(world.words(&sums), [n * (n + 1) / 2], "{}: immediates", world.what);
    let sorted = |memory| {
        let mut words = world.words(memory);
        words.sort_unstable();
        words
    };
    assert!(sorted(&local) == sorted(&remote), "{}: messages differ", world.what);
}

#[test]
fn every_message_arrives_once() {
    for seed in 0..8 {
        let world = World::seeded(0x3e55 + seed, POLICIES[seed as usize % 4]);
        // Receive queues smaller than a warp and larger. In lockstep, lanes that offer receives and then
        // take messages need room for the receives of all of them.
        let receives = if lockstep() { 64 } else { [4, 64][seed as usize % 2] };
        messages(&world, 128, receives, Dim::new(2, 64), 3);
    }
}

/// Rings whose WQEs have one size, without a record: the same calls, and the same outcome.
#[test]
fn queues_of_other_formats_do_everything_once_and_in_order() {
    for nic in ["soft-bnxt", "soft-ionic"] {
        for seed in 0..runs(3) {
            let world = || World::through(nic, 0xf0e + seed);
            mixed(&world(), 128, CqMode::Ring, Dim::new(3, 96), 40, seed);
            let all = scopes([Scope::Thread, Scope::Warp, Scope::Block, Scope::EachOfWarp]);
            let more = scopes([Scope::EachOfBlock, Scope::Verbs, Scope::NoWait]);
            for scope in all.into_iter().chain(more) {
                scoped(&world(), 128, Dim::new(3, 80), 5, scope);
            }
            ordered(&world(), 128, Dim::new(2, 64), 12);
            messages(&world(), 128, 64, Dim::new(2, 64), 3);
        }
        scoped(&World::through(nic, 0xb17), 1024, Dim::new(32, 128), 9, Scope::EachOfWarp);
    }
}

fn everything(world: &World) {
    mixed(world, 256, CqMode::Collapsed, Dim::new(8, 128), 60, 1);
    mixed(world, 1024, CqMode::Ring, Dim::new(16, 96), 60, 2);
    for scope in SCOPES {
        scoped(world, 1024, Dim::new(32, 128), 20, scope);
        // Half a warp in x, and a grid in two dimensions.
        scoped(world, 1024, Dim::of((2, 3), (16, 2)), 20, scope);
    }
    scoped(world, 8192, Dim::new(132, 256), 20, Scope::EachOfWarp);
    scoped(world, 128, Dim::new(132, 256), 4, Scope::Thread);
    ordered(world, 1024, Dim::new(32, 128), 30);
    messages(world, 1024, 256, Dim::new(8, 128), 20);
}

#[test]
#[ignore = "needs a GPU"]
fn on_a_gpu_everything_is_done_once_and_in_order() {
    for policy in POLICIES {
        everything(&World::real(&warpverbs_dev::gpu(0), policy));
    }
}
