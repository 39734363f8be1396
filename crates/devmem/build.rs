//! Builds the kernel that unpacks for the host SIMT device and embeds its source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/include");
    Builder::new("kernels").include(headers).gpu_path("::warpverbs_gpu").compile()
}
