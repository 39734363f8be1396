//! Builds `kernels` for the host SIMT device and embeds their source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    // `target.h` is shared with the kernels of examples.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    Builder::new("kernels")
        .include(format!("{folder}/include"))
        .include(format!("{folder}/src"))
        .gpu_path("::warpverbs_gpu")
        .compile()
}
