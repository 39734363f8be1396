//! Rights of a key, and why a registration or an access is refused.

use bitflags::bitflags;
use thiserror::Error;

bitflags! {
    /// Rights of a key. Reading by the owner is always allowed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The owner's NIC may write: receive buffers, READ destinations, atomic results.
        const LOCAL_WRITE = 1;
        /// A peer may write. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 2;
        /// A peer may read.
        const REMOTE_READ = 4;
        /// A peer may do atomics. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 8;
        /// LOCAL_INVAL, and SEND_INVAL from a peer, may take the key back.
        const INVALIDATE = 16;
    }
}

/// Why a region was not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum KeyError {
    /// Remote writes and atomics need local write access (IBTA C10-54).
    #[error("access {asked:?} needs LOCAL_WRITE as well")]
    NeedsLocalWrite { asked: Access },
    /// All of the address range would not fit in 64 bits.
    #[error("region {addr:#x}+{len:#x} wraps the address space")]
    Wraps { addr: u64, len: u64 },
    /// Too many keys are in use.
    #[error("all {max} memory keys are in use")]
    Exhausted { max: usize },
    /// The system's random source failed.
    #[error("no random bytes for a key")]
    NoEntropy,
}

/// Why an access through a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum AccessError {
    /// No region has this index.
    #[error("key {key:#010x} is not registered")]
    UnknownKey { key: u32 },
    /// The index exists, with another variant.
    #[error("key {key:#010x} has variant {:#04x}, expected {expected:#04x}", key & 0xff)]
    WrongVariant { key: u32, expected: u8 },
    /// The key was taken back by LOCAL_INVAL, SEND_INVAL or a revocation.
    #[error("key {key:#010x} was invalidated")]
    Invalidated { key: u32 },
    /// The region belongs to another protection domain.
    #[error("key {key:#010x} is of protection domain {found}, expected {expected}")]
    WrongPd { key: u32, found: u32, expected: u32 },
    /// The key lacks a right.
    #[error("key {key:#010x} allows {granted:?}, needed {needed:?}")]
    Denied { key: u32, granted: Access, needed: Access },
    /// The range is not inside the region.
    #[error("{addr:#x}+{len:#x} is outside {start:#x}+{region_len:#x} of key {key:#010x}")]
    OutOfBounds { key: u32, addr: u64, len: u64, start: u64, region_len: u64 },
}
