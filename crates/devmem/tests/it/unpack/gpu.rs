//! The same on an NVIDIA GPU, and that its kernel compiles.

use super::{WAYS, every_length_and_alignment, shuffled_stream};
use std::sync::Arc;
use warpverbs_gpu::cuda::{nvrtc, options};
use warpverbs_gpu::{Blocks, Gpu, GpuChoice, GpuKind, open};

pub(crate) fn cuda() -> Arc<dyn Gpu> {
    let gpu = open(GpuChoice::Cuda(0)).expect("an NVIDIA GPU");
    assert_eq!(gpu.info().kind, GpuKind::Cuda);
    gpu
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_way_moves_the_right_bytes_on_a_gpu() {
    let gpu = cuda();
    for way in WAYS {
        every_length_and_alignment(&gpu, way);
        for seed in 0..8 {
            shuffled_stream(&gpu, way, seed, 4_000_000);
        }
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn the_kernel_compiles_without_a_word() {
    let nvrtc = nvrtc().expect("NVRTC");
    for arch in ["sm_80", "sm_90", "sm_100"] {
        let mut options = options(arch);
        options.push("--ptxas-options=-v".to_owned());
        // A program that NVRTC finds in its cache is not assembled again, and its log is empty.
        if nvrtc.version() >= (13, 0) {
            options.push("--no-cache".to_owned());
        }
        let compiled = nvrtc
            .compile(Blocks::IMAGE.source, "blocks.cu", &options)
            .unwrap_or_else(|failure| panic!("{arch}: {}\n{}", failure.what, failure.log));
        println!("{arch}: {}", compiled.log);
        assert!(!compiled.log.contains("warning"), "{}", compiled.log);
        assert!(compiled.log.contains("0 bytes stack frame"), "{}", compiled.log);
    }
}
