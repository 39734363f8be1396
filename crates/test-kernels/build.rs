//! Builds `kernels` for the host SIMT device and embeds their source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    let every_nic = [
        "conform",
        "ep",
        "ep_perf",
        "nixl",
        "perf",
        "shm",
        "shm_litmus",
        "shm_mail",
        "shm_perf",
        "stress",
    ];
    Builder::new("kernels").every_nic(every_nic).gpu_path("::warpverbs_gpu").compile()
}
