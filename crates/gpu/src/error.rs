//! Errors of a device or a kernel.

use std::time::Duration;
use thiserror::Error;
use warpverbs_mem::MemError;

/// A device refused or failed a request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A library that is loaded at run time is not there.
    #[error("{library} is not installed ({file} not found)")]
    NotFound {
        /// Name of the library.
        library: &'static str,
        /// The first file name that was tried.
        file: String,
    },
    /// A library that is loaded at run time is there, but unusable.
    #[error("{library} cannot be used: {reason}")]
    Library {
        /// Name of the library.
        library: &'static str,
        /// The loader's message, or the part that is missing.
        reason: String,
    },
    /// No such device.
    #[error("no device {asked}; this machine has {found}")]
    NoDevice {
        /// The device asked for.
        asked: String,
        /// The devices here.
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
    /// The driver does not map a device's register into kernels.
    #[error(
        "{call} with IOMEMORY failed: {name} ({code}); kernels ring a NIC's register only where NVIDIA's \
         kernel module was loaded with NVreg_RegistryDwords=\"PeerMappingOverride=1\" (`warpverbs doctor \
         path` says so); the way `proxy` needs no such mapping"
    )]
    RegisterNotMapped {
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
        /// The values allowed.
        expected: &'static str,
    },
    /// Blocks that wait for each other do not all run at once.
    #[error(
        "launch of {kernel}: {blocks} blocks wait for each other, and the device holds {most} of this \
         kernel with {threads} threads at once"
    )]
    NotResident {
        /// Kernel name.
        kernel: &'static str,
        /// Blocks of the launch.
        blocks: u32,
        /// Threads of each.
        threads: u32,
        /// Blocks that the device holds while nothing else runs.
        most: u32,
    },
    /// A kernel would touch more elements than a pointer has.
    #[error("launch of {kernel}: it touches {touched} elements of `{parameter}`, which has {len}")]
    TooShort {
        /// Kernel name.
        kernel: &'static str,
        /// The pointer.
        parameter: &'static str,
        /// Elements behind the pointer.
        len: u64,
        /// Elements that the kernel may touch in this shape.
        touched: u64,
    },
    /// An argument of a launch is invalid.
    #[error("launch of {kernel}: `{parameter}` is not {expected}")]
    BadArgument {
        /// Kernel name.
        kernel: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The values allowed.
        expected: &'static str,
    },
    /// A structure for kernels has an invalid member.
    #[error("element {index}: a member is not {expected}")]
    BadElement {
        /// Index of the structure.
        index: usize,
        /// The values allowed.
        expected: &'static str,
    },
    /// A setting of a device is out of range or not understood.
    #[error("{setting} is {value:?}, expected {expected}")]
    BadSetting {
        /// Field or environment variable.
        setting: &'static str,
        /// The value given.
        value: String,
        /// The values allowed.
        expected: &'static str,
    },
    /// The operating system would not start a thread.
    #[error("cannot start a thread for {kernel}: {cause}")]
    Thread {
        /// Kernel name.
        kernel: &'static str,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The device cannot do this.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// The operation asked for.
        what: &'static str,
    },
    /// A launcher's declaration of a kernel differs from the compiled code.
    #[error("kernel {kernel}: {what}: {declared} declared, {compiled} compiled")]
    BadEntry {
        /// Kernel name.
        kernel: &'static str,
        /// The property that differs.
        what: &'static str,
        /// As the launcher has it.
        declared: u64,
        /// As the compiled code has it.
        compiled: u64,
    },
    /// A kernel stopped with an error of the device.
    #[error(
        "{device}: kernel {kernel} stopped: {name} ({code}); the device's context is lost to this process"
    )]
    KernelFailed {
        /// Kernel name.
        kernel: &'static str,
        /// The device.
        device: String,
        /// The driver's code.
        code: i64,
        /// The driver's name for it.
        name: String,
    },
    /// The device did not do in time what it always does at once.
    #[error("{device}: {what} has not ended after {after:?}")]
    Stuck {
        /// The device.
        device: String,
        /// The operation waited for.
        what: &'static str,
        /// For how long.
        after: Duration,
    },
    /// Other kernels fill the device, and keep launches that were withdrawn from beginning.
    #[error(
        "{waiting} launches that were withdrawn have not begun yet, of which there may be {most}"
    )]
    Withdrawn {
        /// How many.
        waiting: usize,
        /// The bound, at which no other launch that can be withdrawn begins.
        most: usize,
    },
    /// Host memory can be mapped once, or again inside the range that is mapped.
    #[error(
        "host memory {start:#x}..{end:#x} overlaps {mapped_start:#x}..{mapped_end:#x}, which is \
         mapped; map the larger range first"
    )]
    PartlyMapped {
        /// First byte asked for, rounded to pages.
        start: u64,
        /// End of what was asked for, rounded to pages.
        end: u64,
        /// First byte mapped.
        mapped_start: u64,
        /// End of what is mapped.
        mapped_end: u64,
    },
    /// Memory could not be had or touched.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// A file of the compile cache could not be used.
    #[error("compile cache {path}: {cause}")]
    Cache {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        cause: std::io::Error,
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
        /// State of each warp, as far as the device can tell.
        report: String,
    },
    /// The SIMT device ended the kernel for a fault of one of its lanes.
    #[error(transparent)]
    Simt(#[from] crate::simt::SimtFault),
    /// The kernel stopped with an error.
    #[error(transparent)]
    Failed(#[from] GpuError),
}
