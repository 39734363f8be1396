//! Builds `kernels/src` for the host SIMT device and embeds its source for GPUs.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    // `DEP_WARPVERBS_INCLUDE` in the build scripts of packages that depend on this one.
    println!("cargo::metadata=include={}/kernels/include", env!("CARGO_MANIFEST_DIR"));
    Builder::new("kernels/src").include("kernels/include").compile()
}
