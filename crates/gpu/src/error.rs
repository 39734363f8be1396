//! What can go wrong with a device or a kernel.

use std::time::Duration;
use thiserror::Error;
use warpverbs_mem::MemError;

/// A device refused or failed a request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A library that is loaded at run time is not there.
    #[error("{library} cannot be loaded: {reason}")]
    Library {
        /// Name of the library.
        library: &'static str,
        /// What the loader said.
        reason: String,
    },
    /// No such device.
    #[error("no device {asked}; this machine has {found}")]
    NoDevice {
        /// What was asked for.
        asked: String,
        /// What there is.
        found: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {name} ({code})")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's code.
        code: i64,
        /// The driver's name for it.
        name: String,
    },
    /// A kernel did not compile; `log` is the compiler's.
    #[error("kernel image {image} does not compile for {arch}:\n{log}")]
    Compile {
        /// Image name.
        image: &'static str,
        /// Target architecture.
        arch: String,
        /// The compiler's output.
        log: String,
    },
    /// A launch was shaped wrongly.
    #[error("launch of {kernel}: {field} is {value}, expected {expected}")]
    BadLaunch {
        /// Kernel name.
        kernel: &'static str,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would do.
        expected: &'static str,
    },
    /// The device cannot do this.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// What was asked.
        what: &'static str,
    },
    /// Memory could not be had or touched.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// A file of the compile cache could not be used.
    #[error("compile cache {path}: {source}")]
    Cache {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A kernel ended badly or not at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The kernel had not ended when the launch's deadline passed.
    #[error("kernel still running after {after:?}\n{report}")]
    Deadline {
        /// The deadline.
        after: Duration,
        /// What each warp was doing, as far as the device can tell.
        report: String,
    },
    /// The kernel stopped with an error.
    #[error("kernel failed: {0}")]
    Failed(#[from] GpuError),
}
