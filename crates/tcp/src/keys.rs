//! Registered memory of a domain.

use super::error::TcpError;
use super::protocol::{Memory, Need, Refusal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpverbs_mem::{Access, KeyHint, KeyTable, Region};

/// All keys of a domain are of one protection domain.
const DOMAIN: u32 = 0;

/// The keys of a domain, shared with its links.
#[derive(Clone)]
pub(super) struct Keys(Arc<Mutex<KeyTable>>);

impl Keys {
    pub(super) fn new() -> Result<Self, TcpError> {
        Ok(Self(Arc::new(Mutex::new(KeyTable::new(None)?))))
    }

    fn table(&self) -> MutexGuard<'_, KeyTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.table().len()
    }

    /// The bytes `[addr, addr + len)`, if the peer may access them in this way.
    pub(super) fn find(
        &self,
        key: u32,
        addr: u64,
        len: u64,
        need: Need,
    ) -> Result<Region, Refusal> {
        let access = match need {
            Need::Read => Access::REMOTE_READ,
            Need::Write => Access::REMOTE_WRITE,
        };
        let (table, hint) = (self.table(), &mut KeyHint::default());
        let end = addr.checked_add(len).ok_or(Refusal::OutOfBounds)?;
        // A region is one range: it covers the bytes if it covers both ends.
        table.lookup(hint, DOMAIN, key, end, 0, access)?;
        let span = table.lookup(hint, DOMAIN, key, addr, 0, access)?;
        span.region.slice(span.offset, len as usize).map_err(|_| Refusal::OutOfBounds)
    }
}

impl Memory for Keys {
    fn check(&mut self, key: u32, addr: u64, len: u64, need: Need) -> Result<(), Refusal> {
        self.find(key, addr, len, need).map(|_| ())
    }
}

/// A view of the keys for the next frame: memory that it has found is sent even if it is deregistered
/// meanwhile.
pub(super) struct Asked<'a> {
    keys: &'a Keys,
    found: Option<Region>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(keys: &'a Keys) -> Self {
        Self { keys, found: None }
    }

    /// The memory that was asked for last, if the peer may access it.
    pub(super) fn found(self) -> Option<Region> {
        self.found
    }
}

impl Memory for Asked<'_> {
    fn check(&mut self, key: u32, addr: u64, len: u64, need: Need) -> Result<(), Refusal> {
        let found = self.keys.find(key, addr, len, need);
        self.found = found.as_ref().ok().cloned();
        found.map(|_| ())
    }
}

/// Memory that peers may access until this value is dropped. A transfer that is under way then
/// fails; bytes that a socket has begun to deliver may still arrive until it does.
pub struct RegisteredRegion {
    keys: Keys,
    key: u32,
    region: Region,
}

impl RegisteredRegion {
    pub(super) fn new(keys: &Keys, region: &Region, access: Access) -> Result<Self, TcpError> {
        let access = match access.contains(Access::REMOTE_WRITE) {
            true => access | Access::LOCAL_WRITE,
            false => access,
        };
        let key = keys.table().insert(DOMAIN, region, access)?;
        Ok(Self { keys: keys.clone(), key, region: region.clone() })
    }

    /// Address, length and key, by which a peer accesses the memory.
    pub fn remote(&self) -> RemoteKey {
        let (addr, len) = (self.region.addr(), self.region.len() as u64);
        RemoteKey { addr, len, key: self.key }
    }
}

impl Drop for RegisteredRegion {
    fn drop(&mut self) {
        let _ = self.keys.table().remove(self.key);
    }
}

/// Memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteKey {
    /// Address of the first byte, as its owner registered it.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The key.
    pub key: u32,
}

impl RemoteKey {
    /// Length of [`RemoteKey::to_bytes`].
    pub const BYTES: usize = 20;

    /// The same memory without its first `offset` bytes. The owner refuses accesses beyond the end.
    pub fn at(self, offset: u64) -> Self {
        let (addr, len) = (self.addr.wrapping_add(offset), self.len.saturating_sub(offset));
        Self { addr, len, key: self.key }
    }

    /// Address, length and key, little endian, to be sent to a peer.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Reads [`RemoteKey::to_bytes`].
    ///
    /// # Errors
    /// The length is wrong. Values are checked by their owner when they are used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TcpError> {
        let wrong = TcpError::NotRemoteKey { len: bytes.len(), expected: Self::BYTES };
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| wrong)?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let key = u32::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
        Ok(Self { addr: long(0), len: long(8), key })
    }
}
