//! Examples on the GPU of `WARPVERBS_TEST_GPU`, which may be an emulated one (docs/hip.md).

use crate::common::{Running, example, well};
use crate::gpu;

/// With what makes them short enough for an emulator.
const EXAMPLES: [&str; 17] = [
    "loopback_send_recv",
    "loopback_write",
    "loopback_write_inline",
    "loopback_read",
    "loopback_atomic",
    "gpu_interchange",
    "heap_interchange",
    "kv_blocks --blocks 256 --iterations 1",
    "dist_write --procs 2 --end 64K",
    "dist_send_recv --procs 2",
    "dist_atomic --procs 2",
    "shmem_ring --procs 2",
    "shmem_barrier --procs 2 --rounds 64",
    "shmem_allgather --procs 2",
    "shmem_pipeline --procs 2 --bytes 4K",
    "shmem_allreduce --procs 2",
    "moe_layer --procs 2 --route mixed",
];

/// Each says which device it ran on, so that nobody takes an emulated one for silicon.
#[test]
#[ignore = "needs a GPU"]
fn examples_pass_on_a_gpu() {
    let gpu = gpu::gpu(0);
    let opened = warpverbs::gpu::open(gpu.parse().expect("a GPU")).expect("the GPU");
    let device = &opened.info().name;
    let names = |said: &str| assert!(said.contains(device), "{device} is not in {said}");
    for name in EXAMPLES {
        let out = example(name).args(["--gpu", &gpu]).output().expect("the example runs");
        names(&well(name, &out));
        println!("{name}: passed");
    }
    let side = |mode: &str, port: &str| {
        let flags = ["--mode", mode, "--port", port, "--gpu", &gpu, "--size", "64K"];
        Running::start(example("simple_write").args(flags))
    };
    let mut initiator = side("initiator", "0");
    let at = initiator.says("waiting for the target at ");
    let target = side("target", at.rsplit(':').next().unwrap_or_default());
    for process in [target, initiator] {
        names(&well("simple_write", &process.end()));
    }
}
