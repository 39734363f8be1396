//! Every kernel file under NVRTC.

use warpverbs::gpu::Image;
use warpverbs::gpu::cuda::{Cache, cubin};
use warpverbs::kernels::{interchange, loopback, perf, selftest, stress, waits};

const IMAGES: [&Image; 6] = [
    &interchange::IMAGE,
    &loopback::IMAGE,
    &perf::IMAGE,
    &selftest::IMAGE,
    &stress::IMAGE,
    &waits::IMAGE,
];

#[test]
#[ignore = "needs NVRTC"]
fn every_kernel_compiles_for_every_architecture() {
    for image in IMAGES {
        for arch in ["sm_80", "sm_90", "sm_100"] {
            let compiled = cubin(image, arch, &Cache::Off);
            let (bytes, _) = compiled.unwrap_or_else(|e| panic!("{} for {arch}: {e}", image.name));
            assert_eq!(&bytes[..4], b"\x7fELF", "{} for {arch}", image.name);
        }
    }
}
