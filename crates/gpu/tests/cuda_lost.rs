//! A kernel that fails takes its context with it, so this test has a process of its own.

mod common;

use common::{Call, within};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Dim, Gpu, GpuError, GpuKind, LaunchError, Place};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_failed_kernel_is_named_and_nothing_hangs_after_it() {
    let gpu = Arc::new(common::open(0).unwrap());
    let device = gpu.alloc(4 << 20, Place::Device).unwrap();
    let shared = gpu.alloc(4096, Place::Shared).unwrap();
    // Ends a hang.
    let limit = Duration::from_secs(240);
    let call = Call { name: "fail", args: Vec::new() };
    let failed = call.launch(&*gpu, Dim::new(1, 1), limit).unwrap().wait().unwrap_err();
    let LaunchError::Failed(GpuError::KernelFailed { kernel: "fail", name, .. }) = &failed else {
        panic!("expected the kernel's failure, got {failed}");
    };
    let errors = if gpu.info().kind == GpuKind::Hip { "hipError" } else { "CUDA_ERROR_" };
    assert!(name.starts_with(errors), "{name}");
    let after = within(limit, move || {
        let mut byte = [0];
        let read = gpu.read(&device, 0, &mut byte);
        drop((device, shared, gpu));
        read
    });
    let read = after.expect("something waits for a lost context");
    assert!(matches!(read, Err(GpuError::Driver { .. })), "{read:?}");
}
