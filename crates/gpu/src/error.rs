//! Errors of a device or a kernel.

use std::time::Duration;
use thiserror::Error;
use warpverbs_layout::NicFormat;
use warpverbs_mem::MemError;

/// A device refused or failed a request.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum GpuError {
    /// A library that is loaded at run time is not there.
    #[error("{library} is not installed ({file} not found)")]
    NotFound { library: &'static str, file: String },
    /// A library that is loaded at run time is there, but unusable.
    #[error("{library} cannot be used: {reason}")]
    Library { library: &'static str, reason: String },
    /// No such device.
    #[error("no device {asked}; this machine has {found}")]
    NoDevice { asked: String, found: String },
    /// A driver call failed.
    #[error("{call} failed: {name} ({code})")]
    Driver { call: &'static str, code: i64, name: String },
    /// The driver does not map a device's register into kernels.
    #[error(
        "{call} with IOMEMORY failed: {name} ({code}); kernels ring a NIC's register only where NVIDIA's \
         kernel module was loaded with NVreg_RegistryDwords=\"PeerMappingOverride=1\" (`warpverbs doctor \
         path` says so); the way `proxy` needs no such mapping"
    )]
    RegisterNotMapped { call: &'static str, code: i64, name: String },
    /// A kernel did not compile; `log` is the compiler's.
    #[error("kernel image {image} does not compile for {arch}:\n{log}")]
    Compile { image: &'static str, arch: String, log: String },
    /// A launch was shaped wrongly.
    #[error("launch of {kernel}: {field} is {value}, expected {expected}")]
    BadLaunch { kernel: &'static str, field: &'static str, value: u64, expected: &'static str },
    /// Queue pairs of several formats, or of one that the kernel was not compiled for.
    #[error("launch of {kernel}: its queue pairs are of {found:?}, expected one of {compiled}")]
    NicFormat { kernel: &'static str, found: Vec<NicFormat>, compiled: String },
    /// Blocks that wait for each other do not all run at once.
    #[error(
        "launch of {kernel}: {blocks} blocks wait for each other, and the device holds {most} of this \
         kernel with {threads} threads at once"
    )]
    NotResident { kernel: &'static str, blocks: u32, threads: u32, most: u32 },
    /// A kernel would touch more elements than a pointer has.
    #[error("launch of {kernel}: it touches {touched} elements of `{parameter}`, which has {len}")]
    TooShort { kernel: &'static str, parameter: &'static str, len: u64, touched: u64 },
    /// An argument of a launch is invalid.
    #[error("launch of {kernel}: `{parameter}` is not {expected}")]
    BadArgument { kernel: &'static str, parameter: &'static str, expected: &'static str },
    /// A structure for kernels has an invalid member.
    #[error("element {index}: a member is not {expected}")]
    BadElement { index: usize, expected: &'static str },
    /// A setting of a device is out of range or not understood.
    #[error("{setting} is {value:?}, expected {expected}")]
    BadSetting { setting: &'static str, value: String, expected: &'static str },
    /// The operating system would not start a thread.
    #[error("cannot start a thread for {kernel}: {cause}")]
    Thread { kernel: &'static str, cause: std::io::Error },
    /// The device cannot do this.
    #[error("{device} does not support {what}")]
    Unsupported { device: String, what: &'static str },
    /// A launcher's declaration of a kernel differs from the compiled code.
    #[error("kernel {kernel}: {what}: {declared} declared, {compiled} compiled")]
    BadEntry { kernel: &'static str, what: &'static str, declared: u64, compiled: u64 },
    /// A kernel stopped with an error of the device.
    #[error(
        "{device}: kernel {kernel} stopped: {name} ({code}); the device's context is lost to this process"
    )]
    KernelFailed { kernel: &'static str, device: String, code: i64, name: String },
    /// The device did not do in time what it always does at once.
    #[error("{device}: {what} has not ended after {after:?}")]
    Stuck { device: String, what: &'static str, after: Duration },
    /// Other kernels fill the device, and keep launches that were withdrawn from beginning.
    #[error(
        "{waiting} launches that were withdrawn have not begun yet, of which there may be {most}"
    )]
    Withdrawn { waiting: usize, most: usize },
    /// Host memory can be mapped once, or again inside the range that is mapped; all in whole pages.
    #[error(
        "host memory {start:#x}..{end:#x} overlaps {mapped_start:#x}..{mapped_end:#x}, which is \
         mapped; map the larger range first"
    )]
    PartlyMapped { start: u64, end: u64, mapped_start: u64, mapped_end: u64 },
    /// Memory could not be had or touched.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// A file of the compile cache could not be used.
    #[error("compile cache {path}: {cause}")]
    Cache { path: std::path::PathBuf, cause: std::io::Error },
}

/// A kernel ended badly or not at all.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum LaunchError {
    /// The kernel had not ended when the launch's deadline passed.
    #[error("kernel still running after {after:?}\n{report}")]
    Deadline { after: Duration, report: String },
    /// The SIMT device ended the kernel for a fault of one of its lanes.
    #[error(transparent)]
    Simt(#[from] crate::simt::SimtFault),
    /// The kernel stopped with an error.
    #[error(transparent)]
    Failed(#[from] GpuError),
}
