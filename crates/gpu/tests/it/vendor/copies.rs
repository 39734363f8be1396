//! Copies: by every way, in order, and beside kernels that leave room or none.

use super::{HANG, SPIN, add_one, common, device, random_bytes, read_all};
use common::{Spin, within};
use std::sync::Arc;
use std::time::Instant;
use warpverbs_gpu::driver::{Cache, CopyCounts, CopyPath, CopyPolicy, DriverGpu, OpenOptions};
use warpverbs_gpu::{Dim, Gpu, Place, open_with};
use warpverbs_mem::{Pending, Progress, Region, copy};

const BIG: usize = 64 << 20;

fn started(dst: &Region, src: &Region, len: usize) -> Option<Pending> {
    match copy(dst, 0, src, 0, len).unwrap() {
        Progress::Done => None,
        Progress::Pending(pending) => Some(pending),
    }
}

fn copied(dst: &Region, src: &Region, len: usize) {
    let asked = Instant::now();
    if let Some(pending) = started(dst, src, len) {
        while !pending.is_done().unwrap() {
            assert!(asked.elapsed() < HANG, "a copy of {len} bytes does not land");
        }
    }
}

/// How many copies went which way since `before`.
fn since(gpu: &DriverGpu, before: CopyCounts) -> (u64, u64) {
    let now = gpu.copy_counts();
    (now.direct - before.direct, now.bounced - before.bounced)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_way_moves_the_right_bytes() {
    let (_turn, default) = device();
    let paths = [CopyPath::Async, CopyPath::Peer, CopyPath::Bounce, CopyPath::Batch];
    let mut policies = vec![CopyPolicy::ByRoom];
    policies.extend(paths.map(CopyPolicy::Always));
    if !default.has_copy_path(CopyPath::Batch) {
        policies.pop();
    }
    let data = random_bytes(3 << 20);
    for policy in policies {
        let options = OpenOptions { cache: Cache::Off, copy: Some(policy) };
        let gpu = open_with(common::choice(0), options).unwrap();
        for len in [1, 8, 63, 4096, 65_537, 1 << 20, (2 << 20) + 3] {
            let up = gpu.alloc(len, Place::Shared).unwrap();
            let down = gpu.alloc(len, Place::Shared).unwrap();
            let a = gpu.alloc(len, Place::Device).unwrap();
            let b = gpu.alloc(len, Place::Device).unwrap();
            up.region().write(0, &data[..len]).unwrap();
            copied(a.region(), up.region(), len);
            copied(b.region(), a.region(), len);
            copied(down.region(), b.region(), len);
            let mut out = vec![0; len];
            down.region().read(0, &mut out).unwrap();
            assert!(out == data[..len], "{policy} {len}");
        }
        let (direct, bounced) = since(&gpu, CopyCounts::default());
        let all_bounced = policy == CopyPolicy::Always(CopyPath::Bounce);
        assert_eq!((direct, bounced), if all_bounced { (0, 7) } else { (7, 0) }, "{policy}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_land_in_the_order_they_were_started() {
    let (_turn, gpu) = device();
    let big = gpu.alloc(BIG, Place::Device).unwrap();
    let other = gpu.alloc(BIG, Place::Device).unwrap();
    let flag = gpu.alloc(8, Place::Device).unwrap();
    let one = gpu.alloc(8, Place::Shared).unwrap();
    let before = gpu.copy_counts();
    let mut pending = Vec::new();
    let mut start = |rounds| {
        for _ in 0..rounds {
            pending.extend(started(big.region(), other.region(), BIG));
            pending.extend(started(flag.region(), one.region(), 8));
        }
    };
    start(8);
    // The way changes twice, with copies of the one before the change on their way.
    let spin = Spin::fill(&*gpu, SPIN);
    start(4);
    spin.end().unwrap();
    start(8);
    assert_eq!(since(&gpu, before), (16, 4));
    let asked = Instant::now();
    loop {
        // Newest first: if a later one is done, every earlier one must be.
        let done: Vec<bool> = pending.iter().rev().map(|p| p.is_done().unwrap()).collect();
        let first_done = done.iter().position(|&d| d).unwrap_or(done.len());
        assert!(done[first_done..].iter().all(|&d| d), "{done:?}");
        if first_done == 0 {
            break;
        }
        assert!(asked.elapsed() < HANG);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_and_small_allocations_go_on_while_a_kernel_fills_the_device() {
    let (_turn, gpu) = device();
    let len = 1 << 20;
    let data = random_bytes(len);
    let host = gpu.alloc(len, Place::Shared).unwrap();
    let (a, b) = (gpu.alloc(len, Place::Device).unwrap(), gpu.alloc(len, Place::Device).unwrap());
    drop(gpu.alloc(4096, Place::Device).unwrap());
    let before = gpu.copy_counts();
    let mut spin = Spin::fill(&*gpu, SPIN);
    let (worker, expected) = (gpu.clone(), data.clone());
    let ended = within(HANG, move || {
        host.region().write(0, &expected).unwrap();
        copied(a.region(), host.region(), len);
        copied(b.region(), a.region(), len);
        let small = worker.alloc(4096, Place::Device).unwrap();
        worker.write(&small, 0, &expected[..4096]).unwrap();
        (read_all(&*worker, &b), read_all(&*worker, &small))
    });
    let was_running = spin.is_running();
    spin.end().unwrap();
    let (big, small) = ended.expect("a copy waits for the kernel");
    assert!(was_running, "the kernel ended too early to show anything");
    assert!(big == data && small == data[..4096]);
    assert_eq!(since(&gpu, before), (0, 1));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_beside_kernels_that_leave_room_are_direct_and_land() {
    let (_turn, gpu) = device();
    let len = 16 << 20;
    let data = random_bytes(len);
    let (a, b) = (gpu.alloc(len, Place::Device).unwrap(), gpu.alloc(len, Place::Device).unwrap());
    for (dims, name) in [
        (vec![Dim::new(gpu.info().sm_count, 1024)], "half of the device"),
        (vec![Dim::new(1, 32); 6], "small kernels"),
    ] {
        gpu.write(&a, 0, &data).unwrap();
        gpu.write(&b, 0, &vec![0; len]).unwrap();
        let before = gpu.copy_counts();
        let mut spins: Vec<Spin> = dims
            .into_iter()
            .map(|dim| Spin::start(&*gpu, dim, SPIN, SPIN).expect("blocks start"))
            .collect();
        let (to, from) = (b.region().clone(), a.region().clone());
        let ended = within(HANG, move || copied(&to, &from, len));
        let were_running = spins.iter_mut().all(Spin::is_running);
        spins.into_iter().for_each(|spin| spin.end().unwrap());
        assert!(ended.is_some(), "beside {name}: a copy waits");
        assert!(were_running, "{name} ended too early to show anything");
        assert_eq!(since(&gpu, before), (1, 0), "beside {name}");
        assert!(read_all(&*gpu, &b) == data, "beside {name}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_kernel_that_fills_the_device_starts_after_direct_copies_have_landed() {
    let (_turn, gpu) = device();
    // A busy CPU does not copy as fast as a GPU, and launches do not wait for long.
    let len = if gpu.info().is_emulated() { BIG / 16 } else { 4 * BIG };
    let (a, b) = (gpu.alloc(len, Place::Device).unwrap(), gpu.alloc(len, Place::Device).unwrap());
    drop(gpu.alloc(4096, Place::Device).unwrap());
    let mut overtakable = 0;
    for _ in 0..8 {
        let before = gpu.copy_counts();
        let copies: Vec<Pending> =
            (0..64).filter_map(|_| started(b.region(), a.region(), len)).collect();
        assert_eq!(since(&gpu, before), (64, 0));
        overtakable += u32::from(!copies[63].is_done().unwrap());
        let mut spin = Spin::fill(&*gpu, SPIN);
        let landed = copies.iter().filter(|copy| copy.is_done().unwrap()).count();
        let was_running = spin.is_running();
        let late = started(b.region(), a.region(), 8);
        assert_eq!(since(&gpu, before), (64, 1));
        let ended =
            within(HANG, move || while !late.as_ref().is_none_or(|p| p.is_done().unwrap()) {});
        spin.end().unwrap();
        assert_eq!(landed, 64, "a kernel overtook copies that need room");
        assert!(was_running, "the kernel ended too early to show anything");
        assert!(ended.is_some(), "a copy waits for the kernel");
    }
    assert!(overtakable > 0, "the copies were never slower than a launch");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_abandoned_kernel_keeps_its_room() {
    let (_turn, gpu) = device();
    let (a, b) = (gpu.alloc(8, Place::Device).unwrap(), gpu.alloc(8, Place::Device).unwrap());
    let before = gpu.copy_counts();
    let stop = Spin::fill_and_abandon(&*gpu, SPIN);
    copied(b.region(), a.region(), 8);
    assert_eq!(since(&gpu, before), (0, 1));
    stop();
    // The next launch that ends lets the abandoned one be looked at.
    let words = gpu.alloc(4096, Place::Device).unwrap();
    add_one(&*gpu, &words, 1);
    let asked = Instant::now();
    while since(&gpu, before).0 == 0 {
        assert!(asked.elapsed() < HANG, "the room of an ended kernel is not given back");
        add_one(&*gpu, &words, 1);
        copied(b.region(), a.region(), 8);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_gpus_copy_and_reach_each_other() {
    let (_turn, first) = device();
    let Ok(second) = common::open(1) else {
        println!("one GPU only: nothing to test");
        return;
    };
    let len = (1 << 20) + 5;
    let data = random_bytes(len);
    let a = first.alloc(len, Place::Device).unwrap();
    let b = second.alloc(len, Place::Device).unwrap();
    first.write(&a, 0, &data).unwrap();
    copied(b.region(), a.region(), len);
    assert_eq!(since(&second, CopyCounts::default()), (1, 0));
    assert!(read_all(&second, &b) == data);
    second.enable_peer(&*first).unwrap();
    second.enable_peer(&*first).unwrap();
    // The second GPU's kernel counts in the first GPU's memory.
    first.write(&a, 0, &[0; 4096]).unwrap();
    add_one(&second, &a, 1024);
    assert_eq!(read_all(&*first, &a)[..8], [1, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_between_two_gpus_go_on_while_a_kernel_fills_either() {
    let (_turn, first) = device();
    let Ok(second) = common::open(1).map(Arc::new) else {
        println!("one GPU only: nothing to test");
        return;
    };
    let len = (3 << 20) + 1;
    let a = first.alloc(len, Place::Device).unwrap();
    let b = second.alloc(len, Place::Device).unwrap();
    for (full, name) in [(&first, "first"), (&second, "second")] {
        let data = random_bytes(len);
        for (to, from, owner) in [(&b, &a, &second), (&a, &b, &first)] {
            let sender = if Arc::ptr_eq(owner, &first) { &second } else { &first };
            sender.write(from, 0, &data).unwrap();
            owner.write(to, 0, &vec![0; len]).unwrap();
            let before = owner.copy_counts();
            let mut spin = Spin::fill(&**full, SPIN);
            let regions = (to.region().clone(), from.region().clone());
            let ended = within(HANG, move || copied(&regions.0, &regions.1, len));
            let was_running = spin.is_running();
            spin.end().unwrap();
            assert!(ended.is_some(), "the {name} is full: a copy waits for its kernel");
            assert!(was_running, "the kernel ended too early to show anything");
            assert_eq!(since(owner, before), (0, 1), "the {name} is full");
            assert!(read_all(&**owner, to) == data, "the {name} is full");
        }
    }
}
