//! Builds `kernels` for the host SIMT device and embeds their source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    // `target.h` is shared with the kernels of examples.
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/src");
    Builder::new("kernels").include(shared).gpu_path("::warpverbs_gpu").compile()
}
