//! Builds `kernels/src` for the host SIMT device and embeds its source for GPUs.

fn main() -> Result<(), warpverbs_kernel_build::BuildError> {
    warpverbs_kernel_build::Builder::new("kernels/src").include("kernels/include").compile()
}
