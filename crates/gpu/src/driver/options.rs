//! The settings with which a device is opened.

use super::cache::Cache;
use super::copy_policy::CopyPolicy;
use crate::GpuError;

/// Settings of a GPU, as it is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where compiled kernels are kept.
    pub cache: Cache,
    /// How bytes move inside the device; what [`COPY_ENV`](super::COPY_ENV) says if not given.
    pub copy: Option<CopyPolicy>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { cache: Cache::from_env(), copy: None }
    }
}

impl OpenOptions {
    pub(super) fn policy(&self) -> Result<CopyPolicy, GpuError> {
        self.copy.map_or_else(CopyPolicy::from_env, Ok)
    }
}
