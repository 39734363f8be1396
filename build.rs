//! Builds the kernels of examples for the host SIMT device and embeds their source for GPUs. The
//! kernels of a feature are left out without it.

use warpverbs_kernel_build::{BuildError, Builder};

/// Kernels that one feature alone needs.
const OF_FEATURES: [(&str, &[&str]); 3] = [
    ("AGENT", &["simple_write"]),
    ("EP", &["moe_layer"]),
    ("SHMEM", &["shm_coll", "shm_pipeline"]),
];

/// Kernels that post, for queue pairs of every format.
const EVERY_NIC: [&str; 6] =
    ["dist", "loopback", "moe_layer", "shm_coll", "shm_pipeline", "simple_write"];

fn main() -> Result<(), BuildError> {
    // `DEP_WARPVERBS_INCLUDE` in the build scripts of packages that depend on this one.
    println!("cargo::metadata=include={}", warpverbs_kernel_build::headers().display());
    let without = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_none();
    let unneeded = OF_FEATURES.iter().filter(|(feature, _)| without(feature));
    let unneeded = unneeded.flat_map(|(_, names)| names.iter().copied());
    Builder::new("kernels/src").leave_out(unneeded).every_nic(EVERY_NIC).compile()
}
