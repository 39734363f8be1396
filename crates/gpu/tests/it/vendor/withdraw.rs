//! Lists of blocks that are withdrawn while kernels fill the device, and while they are copied.

use super::{HANG, SPIN, common, device, random_bytes, read_all};
use common::Spin;
use std::time::{Duration, Instant};
use warpverbs_gpu::{BlockRun, BlockSide, Blocks, Buffer, Gpu, Launch, Place};

const BLOCK: u64 = 64 << 10;
/// A kernel that copies after all is likely to have done so by then; none that is right does at any time.
const LATER: Duration = Duration::from_millis(200);

/// All of the second buffer to the first.
fn list(gpu: &dyn Gpu, buffers: &[Buffer; 2]) -> Blocks {
    let side = |buffer| BlockSide { buffer, offset: 0, stride: BLOCK };
    let count = buffers[0].len() as u64 / BLOCK;
    let run = BlockRun { to: side(0), from: side(1), bytes: BLOCK, count };
    Blocks::new(gpu, buffers, &[run]).unwrap()
}

fn withdrawn(launch: &mut Launch) {
    let asked = Instant::now();
    while !launch.withdraw().unwrap() {
        assert!(asked.elapsed() < HANG, "it is not withdrawn");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_launch_is_withdrawn_while_other_kernels_fill_the_device() {
    let (_turn, gpu) = device();
    gpu.load(Blocks::IMAGE).unwrap();
    let len = 16 << 20;
    for place in [Place::Device, Place::Shared] {
        let buffers = [Place::Device, place].map(|place| gpu.alloc(len, place).unwrap());
        let [to, from] = [(); 2].map(|()| random_bytes(len));
        gpu.write(&buffers[0], 0, &to).unwrap();
        gpu.write(&buffers[1], 0, &from).unwrap();
        let list = list(&*gpu, &buffers);
        let mut spin = Spin::fill(&*gpu, SPIN);
        for _ in 0..3 {
            let mut launch = list.copy(&*gpu, None, HANG).unwrap();
            withdrawn(&mut launch);
        }
        assert!(spin.is_running(), "the withdrawal has waited for other kernels");
        spin.end().unwrap();
        std::thread::sleep(LATER);
        assert!(read_all(&*gpu, &buffers[0]) == to, "a launch that was withdrawn has copied");
        list.copy(&*gpu, None, HANG).unwrap().wait().unwrap();
        assert!(read_all(&*gpu, &buffers[0]) == from);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_launch_that_was_withdrawn_while_it_ran_writes_nothing_later() {
    let (_turn, gpu) = device();
    let len = 512 << 20;
    // Over the bus, so that it takes some milliseconds.
    let buffers = [Place::Shared, Place::Device].map(|place| gpu.alloc(len, place).unwrap());
    gpu.write(&buffers[1], 0, &random_bytes(len)).unwrap();
    let list = list(&*gpu, &buffers);
    let mut partly = 0;
    for millis in 0..8 {
        buffers[0].region().fill(0, len, 0).unwrap();
        let mut launch = list.copy(&*gpu, None, HANG).unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        withdrawn(&mut launch);
        let at_end = read_all(&*gpu, &buffers[0]);
        partly += usize::from(at_end != read_all(&*gpu, &buffers[1]));
        assert!(read_all(&*gpu, &buffers[0]) == at_end, "bytes landed after it was withdrawn");
    }
    println!("{partly} of 8 were withdrawn before all was copied");
}
