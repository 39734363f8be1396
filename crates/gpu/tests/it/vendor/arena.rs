//! Segments of device memory, mapped by one device or two.

use super::common::{Spin, choice, open};
use super::{SPIN, add_one, device, random_bytes, read_all};
use std::fs::File;
use warpverbs_gpu::{ArenaError, Gpu, list};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_segment_is_zeroed_device_memory_that_kernels_and_copies_use() {
    let (_turn, gpu) = device();
    assert!(gpu.info().shareable);
    let arena = gpu.arena(1 << 36).unwrap();
    let len = 2 * arena.granule();
    let segment = arena.commit(arena.granule(), len).unwrap();
    let buffer = segment.buffer();
    assert_eq!(buffer.kernel_addr(), arena.addr() + arena.granule());
    assert_eq!(buffer.region().kind().to_string(), choice(0).to_string());
    assert!(read_all(&*gpu, buffer).iter().all(|byte| *byte == 0));
    add_one(&*gpu, buffer, (len / 4) as u32);
    assert!(read_all(&*gpu, buffer).chunks(4).all(|word| word == 1u32.to_ne_bytes()));
    match (gpu.info().dmabuf, buffer.region().export_dmabuf()) {
        (true, exported) => drop(exported.unwrap()),
        (false, exported) => assert!(exported.is_err()),
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_mappings_of_one_device_show_the_same_bytes_and_outlive_the_exporter() {
    let (_turn, gpu) = device();
    let (here, there) = (gpu.arena(1 << 32).unwrap(), gpu.arena(1 << 32).unwrap());
    let len = here.granule();
    let own = here.commit(0, len).unwrap();
    let bytes = random_bytes(len as usize);
    gpu.write(own.buffer(), 0, &bytes).unwrap();
    let attached = there.attach(3 * len, len, own.export().unwrap()).unwrap();
    drop((own, here));
    assert!(read_all(&*gpu, attached.buffer()) == bytes);
}

#[test]
#[ignore = "needs two NVIDIA GPUs with peer access"]
fn a_kernel_of_one_device_changes_memory_of_another() {
    let (_turn, gpu) = device();
    let found = list().into_iter().filter(|found| found.kind == gpu.info().kind);
    if found.count() < 2 {
        return eprintln!("SKIPPED: one NVIDIA GPU here, two are needed");
    }
    let other = open(1).unwrap();
    let (here, there) = (gpu.arena(1 << 32).unwrap(), other.arena(1 << 32).unwrap());
    let len = here.granule().max(there.granule());
    let own = here.commit(0, len).unwrap();
    let attached = there.attach(len, len, own.export().unwrap()).unwrap();
    add_one(&other, attached.buffer(), (len / 4) as u32);
    assert!(read_all(&*gpu, own.buffer()).chunks(4).all(|word| word == 1u32.to_ne_bytes()));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn wrong_descriptors_and_lengths_are_refused() {
    let (_turn, gpu) = device();
    let arena = gpu.arena(1 << 32).unwrap();
    let len = arena.granule();
    let own = arena.commit(0, len).unwrap();
    let wrong = [
        arena.attach(len, 2 * len, own.export().unwrap()),
        arena.attach(len, len, File::open("/dev/null").unwrap().into()),
    ];
    for refused in wrong.map(Result::unwrap_err) {
        assert!(matches!(refused, ArenaError::WrongDescriptor { .. }), "{refused}");
    }
    let refused = arena.commit(0, len).unwrap_err();
    assert!(matches!(refused, ArenaError::Occupied { .. }), "{refused}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn segments_come_beside_a_kernel_and_go_after_it() {
    let (_turn, gpu) = device();
    let arena = gpu.arena(1 << 32).unwrap();
    let len = arena.granule();
    let mut spin = Spin::fill(&*gpu, SPIN);
    let segment = arena.commit(0, len).unwrap();
    drop(segment);
    assert!(matches!(arena.commit(0, len), Err(ArenaError::Occupied { .. })));
    assert!(spin.is_running());
    spin.end().unwrap();
    assert!(arena.commit(0, len).is_ok());
}
