//! One kernel for each kind of transfer, bytes compared on both sides.

use crate::device::world::{POLICIES, World, pointer};
use warpverbs::gpu::{Dim, Local, Remote};
use warpverbs::kernels::{interchange, loopback as k};
use warpverbs::raw::nic::DoorbellPolicy;
use warpverbs::transport::{CqMode, Endpoint, MemoryRegion};
use warpverbs_dev::pattern;

/// Lanes, and bytes each of them moves.
const DIM: Dim = Dim::new(2, 48);
const THREADS: usize = 96;

/// Two buffers of `len` bytes, the first with data, and a status word.
fn buffers(world: &World, len: usize) -> (MemoryRegion, MemoryRegion, MemoryRegion) {
    let (from, to) = (world.memory(len), world.memory(len));
    world.fill(&from, &pattern(len, 7));
    (from, to, world.memory(4))
}

fn same(world: &World, what: &str, from: &MemoryRegion, to: &MemoryRegion) {
    assert!(world.bytes(from) == world.bytes(to), "{what}: bytes differ; {}", world.what);
}

fn write(world: &World, a: &Endpoint, b: &Endpoint, bytes: u32) {
    let (from, to, status) = buffers(world, THREADS * bytes as usize);
    let kernel = k::Write {
        qp: a.device_qp(),
        from: from.local().into(),
        to: to.remote().into(),
        bytes,
        status: pointer(&status),
    };
    world.run(&kernel, DIM);
    world.all_ok(&status, &[a, b]);
    same(world, "WRITE", &from, &to);
}

fn write_inline(world: &World, a: &Endpoint, b: &Endpoint, bytes: u32) {
    let (from, to, status) = buffers(world, THREADS * bytes as usize);
    let kernel = k::WriteInline {
        qp: a.device_qp(),
        source: pointer(&from),
        to: to.remote().into(),
        bytes,
        status: pointer(&status),
    };
    world.run(&kernel, DIM);
    world.all_ok(&status, &[a, b]);
    same(world, "inline WRITE", &from, &to);
}

fn read(world: &World, a: &Endpoint, b: &Endpoint, bytes: u32) {
    let (from, to, status) = buffers(world, THREADS * bytes as usize);
    let kernel = k::Read {
        qp: a.device_qp(),
        to: to.local().into(),
        from: from.remote().into(),
        bytes,
        status: pointer(&status),
    };
    world.run(&kernel, DIM);
    world.all_ok(&status, &[a, b]);
    same(world, "READ", &from, &to);
}

fn atomic(world: &World, a: &Endpoint, b: &Endpoint) {
    let (words, olds, status) =
        (world.memory(16), world.memory((THREADS + 1) * 8), world.memory(4));
    world.fill(&words, &[100u64.to_le_bytes(), 5u64.to_le_bytes()].concat());
    let kernel = k::Atomic {
        qp: a.device_qp(),
        at: words.remote().into(),
        expected: 5,
        desired: 0x0123_4567_89ab_cdef,
        olds: pointer(&olds),
        status: pointer(&status),
    };
    world.run(&kernel, DIM);
    world.all_ok(&status, &[a, b]);
    assert_eq!(world.words(&words), [100 + THREADS as u64, 0x0123_4567_89ab_cdef]);
    let mut seen = world.words(&olds);
    assert_eq!(seen.pop(), Some(5), "old value of the compare-and-swap; {}", world.what);
    seen.sort_unstable();
    let expected: Vec<u64> = (100..100 + THREADS as u64).collect();
    assert_eq!(seen, expected, "every old value once; {}", world.what);
}

fn write_imm(world: &World, a: &Endpoint, b: &Endpoint) {
    let (from, to, status) = buffers(world, 1000);
    let received = world.memory(12);
    let kernel = k::WriteImm {
        from: a.device_qp(),
        to: b.device_qp(),
        local: from.local().into(),
        remote: to.remote().into(),
        bytes: 1000,
        imm: 0xfeed_0001,
        received: pointer(&received),
        status: pointer(&status),
    };
    world.run(&kernel, DIM);
    world.all_ok(&status, &[a, b]);
    same(world, "WRITE with immediate", &from, &to);
    // RESP_WR_IMM is 1.
    assert_eq!(world.statuses(&received), [1000, 0xfeed_0001, 1]);
}

fn send_recv(world: &World, a: &Endpoint, b: &Endpoint, bytes: usize, piece: u32) {
    let (from, to, status) = buffers(world, bytes);
    let counts = world.memory(24);
    let kernel = k::SendRecv {
        from: a.device_qp(),
        to: b.device_qp(),
        source: from.local().into(),
        target: to.local().into(),
        bytes: bytes as u64,
        piece,
        window: 8,
        counts: pointer(&counts),
        status: pointer(&status),
    };
    world.run(&kernel, Dim::new(1, 2 * world.gpu.info().warp_size));
    world.all_ok(&status, &[a, b]);
    same(world, "SEND", &from, &to);
    let pieces = bytes.div_ceil(piece as usize) as u64;
    assert_eq!(world.words(&counts), [pieces, pieces, 0]);
}

/// Every step by hand, then the protocol's way on the same queue pair, then by hand again.
fn step_by_step(world: &World, a: &Endpoint, b: &Endpoint) {
    let (from, to, status) = (world.memory(777), world.memory(777), world.memory(4));
    let (trace, wrong) = (world.memory(24), world.memory(8));
    for value in [42u8, 43] {
        let dim = Dim::new(2, 64);
        let bytes = 777;
        world.run(&interchange::Fill { data: pointer(&from), bytes, value }, dim);
        let kernel = interchange::Transfer {
            qp: a.device_qp(),
            from: from.local().into(),
            to: to.remote().into(),
            bytes: bytes as u32,
            status: pointer(&status),
            trace: pointer(&trace),
        };
        world.run(&kernel, Dim::new(1, 1));
        world.all_ok(&status, &[a, b]);
        let trace = world.words(&trace);
        assert_eq!((trace[1], trace[2]), (trace[0] + 1, trace[0] + 1));
        let data = pointer(&to);
        world.run(&interchange::Verify { data, bytes, value, wrong: pointer(&wrong) }, dim);
        assert_eq!(world.words(&wrong), [0], "{}", world.what);
        write(world, a, b, 16);
    }
}

fn every_kind(world: &World, mode: CqMode) {
    let config = world.config(128).send_cq(mode).inline_bytes(220);
    let (a, b) = world.pair(&config);
    for bytes in [1, 8, 100] {
        write(world, &a, &b, bytes);
        read(world, &a, &b, bytes);
    }
    // One, two and four WQEBBs each: the larger ones wrap round the ring's end in the middle.
    for bytes in [1, 12, 13, 28, 29, 92, 93, 220] {
        write_inline(world, &a, &b, bytes);
    }
    atomic(world, &a, &b);
    write_imm(world, &a, &b);
    send_recv(world, &a, &b, 10_000, 999);
    step_by_step(world, &a, &b);
}

#[test]
fn every_kind_of_transfer_moves_its_bytes() {
    for (i, policy) in POLICIES.into_iter().enumerate() {
        for mode in [CqMode::Collapsed, CqMode::Ring] {
            every_kind(&World::seeded(0x09 + i as u64, policy), mode);
        }
    }
}

#[test]
fn a_message_of_no_bytes_has_no_data_segment() {
    let world = World::seeded(3, DoorbellPolicy::DoorbellFirst);
    let (a, b) = world.pair(&world.config(128));
    let status = world.memory(4);
    let kernel = k::Write {
        qp: a.device_qp(),
        from: Local::default(),
        to: Remote::default(),
        bytes: 0,
        status: pointer(&status),
    };
    world.run(&kernel, DIM);
    world.all_ok(&status, &[&a, &b]);
    assert_eq!(a.health().expect("health").send.completed, THREADS as u64);
}

#[test]
fn fill_and_check_agree_and_a_wrong_byte_is_counted() {
    let world = World::seeded(4, DoorbellPolicy::DoorbellFirst);
    let (data, wrong) = (world.memory(1001), world.memory(8));
    let data_at = || pointer(&data);
    let check = |seed| k::Check { data: data_at(), bytes: 1001, seed, wrong: pointer(&wrong) };
    world.run(&k::Fill { data: data_at(), bytes: 1001, seed: 5 }, DIM);
    world.run(&check(5), DIM);
    assert_eq!(world.words(&wrong), [0]);
    let mut bytes = world.bytes(&data);
    bytes[1000] ^= 1;
    world.fill(&data, &bytes);
    world.run(&check(5), DIM);
    assert_eq!(world.words(&wrong), [1]);
}

#[test]
#[ignore = "needs a GPU"]
fn on_a_gpu_every_kind_of_transfer_moves_its_bytes() {
    for policy in [DoorbellPolicy::DoorbellFirst, DoorbellPolicy::RecordFirst] {
        for mode in [CqMode::Collapsed, CqMode::Ring] {
            every_kind(&World::real(&warpverbs_dev::gpu(0), policy), mode);
        }
    }
}
