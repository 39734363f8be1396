//! Numbers of 8 bits on devices are those of the reference.

use crate::cases::words32;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{Buffer, Dim, Gpu, GpuChoice, KernelPtr, Place};
use warpverbs_dev::seed;
use warpverbs_ep::reference::{e4m3_of, float_of, float_of_e4m3};
use warpverbs_test_kernels::ep::EpE4m3;

/// All bf16, all halves between e4m3 and their neighbours, and any f32.
fn numbers() -> Vec<f32> {
    let mut numbers: Vec<f32> = (0..=u16::MAX).map(float_of).collect();
    for bits in 0..0x7e {
        let half = f32::midpoint(float_of_e4m3(bits), float_of_e4m3(bits + 1));
        let near = [half.next_down(), half, half.next_up()];
        numbers.extend(near.into_iter().flat_map(|value| [value, -value]));
    }
    let mut rng = SmallRng::seed_from_u64(seed());
    numbers.extend((0..20000).map(|_| f32::from_bits(rng.random())));
    // Of the magnitudes that differ.
    numbers.extend((0..20000).map(|_| rng.random_range(-500.0f32..500.0) * rng.random::<f32>()));
    numbers
}

fn device_agrees(gpu: &Arc<dyn Gpu>) {
    let numbers = numbers();
    let pairs = numbers.as_chunks::<2>().0;
    let [fast, slow] = [(); 2].map(|()| gpu.alloc(4 * pairs.len(), Place::Device).unwrap());
    let kernel = EpE4m3 {
        numbers: KernelPtr::upload(&**gpu, &numbers).unwrap(),
        pairs: pairs.len() as u32,
        fast: KernelPtr::new(&fast),
        slow: KernelPtr::new(&slow),
    };
    let launch = gpu.launch(&kernel, Dim::new(4, 64), Duration::from_secs(120)).unwrap();
    launch.wait().unwrap();
    let read = |buffer: &Buffer| {
        let mut bytes = vec![0; buffer.len()];
        gpu.read(buffer, 0, &mut bytes).unwrap();
        words32(&bytes)
    };
    let (fast, slow) = (read(&fast), read(&slow));
    for (i, pair) in pairs.iter().enumerate() {
        let [first, second] = pair.map(|value| u32::from(e4m3_of(value)));
        let expected = first | second << 8;
        assert_eq!((fast[i], slow[i]), (expected, expected), "{pair:?}: {:#x}", fast[i]);
    }
}

#[test]
fn e4m3_of_any_number_is_that_of_the_reference() {
    device_agrees(&warpverbs_gpu::open(GpuChoice::Simt).unwrap());
}

#[test]
#[ignore = "needs a GPU"]
fn e4m3_of_any_number_on_a_gpu_is_that_of_the_reference() {
    device_agrees(&warpverbs_gpu::open("cuda".parse().unwrap()).unwrap());
}
