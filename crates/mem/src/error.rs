//! Errors of access to memory.

use thiserror::Error;

/// A refused or failed access.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemError {
    /// The range does not lie inside the region.
    #[error("range {offset:#x}+{len:#x} is outside a region of {region_len:#x} bytes")]
    OutOfBounds {
        /// Offset asked for, bytes from the start of the region.
        offset: u64,
        /// Length asked for, bytes.
        len: u64,
        /// Length of the region, bytes.
        region_len: u64,
    },
    /// An atomic access must be naturally aligned.
    #[error("address {addr:#x} is not aligned to {align} bytes")]
    Misaligned {
        /// Absolute address.
        addr: u64,
        /// Alignment wanted, bytes.
        align: usize,
    },
    /// The CPU cannot load from or store to this memory.
    #[error("memory at {addr:#x} is not host memory")]
    NotHost {
        /// Absolute address.
        addr: u64,
    },
    /// The owner of the memory has unmapped it, or has taken its rights away. Some of the bytes may
    /// have been moved.
    #[error("{len} bytes at {addr:#x} are not mapped{}", if *written { " for writing" } else { "" })]
    Unmapped {
        /// Absolute address.
        addr: u64,
        /// Bytes.
        len: usize,
        /// They were to be written; otherwise read, or changed by an atomic.
        written: bool,
    },
    /// Neither side of a copy can reach the other.
    #[error("no copy engine moves bytes between {from} and {to}")]
    NoCopier {
        /// Kind of the source.
        from: crate::Kind,
        /// Kind of the destination.
        to: crate::Kind,
    },
    /// The copy engine refused or failed; `code` is the driver's own.
    #[error("copy engine failed with driver code {code}: {what}")]
    CopyFailed {
        /// The driver's error code.
        code: i64,
        /// The call that failed.
        what: &'static str,
    },
    /// The operating system would not give memory.
    #[error("cannot map {len} bytes of host memory: {errno}")]
    Map {
        /// Bytes asked for.
        len: usize,
        /// The system's error.
        errno: nix::errno::Errno,
    },
}
