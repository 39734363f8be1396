//! Errors of access to memory.

use thiserror::Error;

/// A refused or failed access.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum MemError {
    /// The range does not lie inside the region.
    #[error("range {offset:#x}+{len:#x} is outside a region of {region_len:#x} bytes")]
    OutOfBounds { offset: u64, len: u64, region_len: u64 },
    /// An atomic access must be naturally aligned.
    #[error("address {addr:#x} is not aligned to {align} bytes")]
    Misaligned { addr: u64, align: usize },
    /// The CPU cannot load from or store to this memory.
    #[error("memory at {addr:#x} is not host memory")]
    NotHost { addr: u64 },
    /// The owner of the memory has unmapped it, or has taken its rights away. Some of the bytes may
    /// have been moved. They were to be `written`, or else read or changed by an atomic.
    #[error("{len} bytes at {addr:#x} are not mapped{}", if *written { " for writing" } else { "" })]
    Unmapped { addr: u64, len: usize, written: bool },
    /// Neither side of a copy can reach the other.
    #[error("no copy engine moves bytes between {from} and {to}")]
    NoCopier { from: crate::Kind, to: crate::Kind },
    /// The copy engine refused or failed; `code` is the driver's own.
    #[error("copy engine failed with driver code {code}: {what}")]
    CopyFailed { code: i64, what: &'static str },
    /// The operating system would not give memory.
    #[error("cannot map {len} bytes of host memory: {errno}")]
    Map { len: usize, errno: nix::errno::Errno },
}
