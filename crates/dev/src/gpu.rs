//! Which GPU the tests for a real one take.

/// The name of GPU `ordinal` for `--gpu`: of the kind that `WARPVERBS_TEST_GPU` names, `cuda` or `hip`, else of
/// NVIDIA.
///
/// # Panics
/// The variable has another value.
pub fn gpu(ordinal: u32) -> String {
    let kind = std::env::var("WARPVERBS_TEST_GPU").unwrap_or_else(|_| "cuda".to_owned());
    assert!(matches!(&*kind, "cuda" | "hip"), "WARPVERBS_TEST_GPU is {kind}, expected cuda or hip");
    format!("{kind}:{ordinal}")
}
