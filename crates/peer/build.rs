//! Builds the probe for the host SIMT device and embeds its source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    Builder::new("kernels").gpu_path("::warpverbs_gpu").compile()
}
