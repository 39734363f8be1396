//! Builds the kernels for the host SIMT device and embeds their source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    Builder::new("kernels").every_nic(["ep"]).gpu_path("::warpverbs_gpu").compile()
}
