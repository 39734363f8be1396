//! Memory as work requests name it. Addresses and keys are plain numbers: the device checks them
//! against what is registered.

use core::fmt;

/// Local key of registered memory, native byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lkey(pub u32);

/// Remote key of registered memory: what a peer names it by. Native byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Rkey(pub u32);

impl fmt::Display for Rkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A piece of local memory: one entry of a scatter/gather list. The layout is that of `ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the memory.
    pub lkey: Lkey,
}

impl Sge {
    /// `len` bytes at `addr`, under the local key `lkey`.
    #[inline]
    pub const fn new(addr: u64, len: u32, lkey: u32) -> Self {
        Self { addr, len, lkey: Lkey(lkey) }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte, in the peer's registration.
    pub addr: u64,
    /// The peer's key.
    pub rkey: Rkey,
}

impl Remote {
    /// The memory at `addr`, under the peer's key `rkey`.
    #[inline]
    pub const fn new(addr: u64, rkey: u32) -> Self {
        Self { addr, rkey: Rkey(rkey) }
    }
}
