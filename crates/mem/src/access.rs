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
pub enum KeyError {
    /// Remote writes and atomics need local write access (IBTA C10-54).
    #[error("access {asked:?} needs LOCAL_WRITE as well")]
    NeedsLocalWrite {
        /// The flags asked for.
        asked: Access,
    },
    /// All of the address range would not fit in 64 bits.
    #[error("region {addr:#x}+{len:#x} wraps the address space")]
    Wraps {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// Too many keys are in use.
    #[error("all {max} memory keys are in use")]
    Exhausted {
        /// Keys at most.
        max: usize,
    },
    /// The system's random source failed.
    #[error("no random bytes for a key")]
    NoEntropy,
}

/// Why an access through a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No region has this index.
    #[error("key {key:#010x} is not registered")]
    UnknownKey {
        /// The key presented.
        key: u32,
    },
    /// The index exists, with another variant.
    #[error("key {key:#010x} has variant {:#04x}, expected {expected:#04x}", key & 0xff)]
    WrongVariant {
        /// The key presented.
        key: u32,
        /// The variant that is registered.
        expected: u8,
    },
    /// The key was taken back by LOCAL_INVAL, SEND_INVAL or a revocation.
    #[error("key {key:#010x} was invalidated")]
    Invalidated {
        /// The key presented.
        key: u32,
    },
    /// The region belongs to another protection domain.
    #[error("key {key:#010x} is of protection domain {found}, expected {expected}")]
    WrongPd {
        /// The key presented.
        key: u32,
        /// Domain of the key.
        found: u32,
        /// Domain of the queue.
        expected: u32,
    },
    /// The key lacks a right.
    #[error("key {key:#010x} allows {granted:?}, needed {needed:?}")]
    Denied {
        /// The key presented.
        key: u32,
        /// Rights of the key.
        granted: Access,
        /// Rights asked for.
        needed: Access,
    },
    /// The range is not inside the region.
    #[error("{addr:#x}+{len:#x} is outside {start:#x}+{region_len:#x} of key {key:#010x}")]
    OutOfBounds {
        /// The key presented.
        key: u32,
        /// First address asked for.
        addr: u64,
        /// Bytes asked for.
        len: u64,
        /// First address of the region.
        start: u64,
        /// Bytes of the region.
        region_len: u64,
    },
}
