//! `nixl._bindings.nixlXferTelemetry`.

use pyo3::prelude::*;
use warpverbs_nixl::Telemetry;

/// The cost of a transfer. Times are whole microseconds, rounded up.
#[pyclass(frozen, name = "nixlXferTelemetry", module = "nixl._bindings")]
#[allow(non_snake_case)]
#[derive(Default)]
pub(crate) struct XferTelemetry {
    /// When it was posted, since 1970.
    #[pyo3(get)]
    startTime: u64,
    /// Time inside of the call that posted.
    #[pyo3(get)]
    postDuration: u64,
    /// Time from the post to the end.
    #[pyo3(get)]
    xferDuration: u64,
    /// Bytes of all blocks.
    #[pyo3(get)]
    totalBytes: u64,
    /// Blocks.
    #[pyo3(get)]
    descCount: u64,
    /// Words for the paths taken.
    #[pyo3(get)]
    paths: Vec<String>,
}

#[pymethods]
impl XferTelemetry {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __repr__(&self) -> String {
        let Self { postDuration: post, xferDuration: all, totalBytes: bytes, .. } = self;
        let paths = self.paths.join(", ");
        let blocks = self.descCount;
        format!(
            "nixlXferTelemetry({bytes} bytes in {blocks} blocks by {paths}: {all} us, {post} us of them to post)"
        )
    }
}

impl From<Telemetry> for XferTelemetry {
    fn from(cost: Telemetry) -> Self {
        Self {
            startTime: cost.start_us,
            postDuration: cost.post_us,
            xferDuration: cost.transfer_us,
            totalBytes: cost.bytes,
            descCount: cost.descriptors as u64,
            paths: cost.paths.iter().map(ToString::to_string).collect(),
        }
    }
}
