//! Registered memory, and what a work request says of it.

use crate::provider::MemoryKey;
use crate::shared::DeviceShared;
use crate::wire::{Frame, Reader};
use crate::{HandleError, RegisterOptions, TransportError, UsageError};
use std::fmt;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Local, Remote};
use warpverbs_mem::{Access, Region, RegistrationPath};
use warpverbs_rdma::Decision;

/// Memory that a NIC may touch: a buffer and its keys. The buffer lives at least as long as this
/// value, and as long as the NIC needs it for work in flight.
#[doc(alias = "RdmaMemoryRegion")]
pub struct MemoryRegion {
    // Dropped first: the key dies before the bytes do.
    key: MemoryKey,
    access: Access,
    buffer: Buffer,
    _device: Arc<DeviceShared>,
}

impl MemoryRegion {
    pub(crate) fn new(
        device: Arc<DeviceShared>,
        buffer: Buffer,
        options: RegisterOptions,
    ) -> Result<Self, TransportError> {
        let key = device.nic.register(buffer.region(), &options)?;
        let how = key.how.explain();
        tracing::info!(region = ?buffer.region(), nic = device.nic.info().name, how, "registered");
        Ok(Self { key, access: options.access(), buffer, _device: device })
    }

    /// The registered bytes.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The registered bytes as NIC and host see them.
    pub fn region(&self) -> &Region {
        self.buffer.region()
    }

    /// Key for the own side's work requests.
    pub fn lkey(&self) -> u32 {
        self.key.lkey
    }

    /// Key for peers.
    pub fn rkey(&self) -> u32 {
        self.key.rkey
    }

    /// Rights of the keys.
    pub fn access(&self) -> Access {
        self.access
    }

    /// How the NIC reaches it, and why in no better way: [`Decision::explain`] is one line for people.
    pub fn how(&self) -> &Decision<RegistrationPath> {
        &self.key.how
    }

    /// Address of the first byte in work requests, the own and the peer's.
    pub fn addr(&self) -> u64 {
        self.region().addr()
    }

    /// Address of the first byte for loads and stores of a kernel.
    pub fn kernel_addr(&self) -> u64 {
        self.buffer.kernel_addr()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.region().len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.region().is_empty()
    }

    /// All of it, for the own side of a work request; a kernel takes it as a [`Local`].
    pub fn local(&self) -> LocalRegion {
        LocalRegion { addr: self.addr(), len: self.len() as u64, lkey: self.lkey() }
    }

    /// All of it, for a work request of a peer, whose kernel takes it as a [`Remote`]: send it [`RemoteRegion::to_bytes`].
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { addr: self.addr(), len: self.len() as u64, rkey: self.rkey() }
    }

    /// Copies bytes in from the host; waits for the GPU's copy engine if it is its memory.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), TransportError> {
        Ok(self.region().write_through(offset, data)?)
    }

    /// Copies bytes out to the host; waits for the GPU's copy engine if it is its memory.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), TransportError> {
        Ok(self.region().read_through(offset, out)?)
    }

    /// A copy of all bytes on the host, as [`Self::read`] makes it.
    pub fn to_vec(&self) -> Result<Vec<u8>, TransportError> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (access, key) = (self.access, self.lkey());
        write!(f, "MemoryRegion({:?}, {access:?}, key {key:#010x})", self.region())
    }
}

/// Part of an own registered region: plain data, good for work requests as long as the
/// [`MemoryRegion`] lives. A stale one makes the work request fail, nothing worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_sge")]
pub struct LocalRegion {
    addr: u64,
    len: u64,
    lkey: u32,
}

/// Part of a region of a peer: 28 bytes that may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    addr: u64,
    len: u64,
    rkey: u32,
}

macro_rules! part_of_region {
    ($name:ident, $key:ident, $side:literal) => {
        impl $name {
            #[doc = concat!("`len` bytes at `addr` under a key of the ", $side, ".")]
            pub const fn new(addr: u64, len: u64, $key: u32) -> Self {
                Self { addr, len, $key }
            }

            /// Address of the first byte, as its NIC knows it.
            pub const fn addr(&self) -> u64 {
                self.addr
            }

            /// Length in bytes.
            pub const fn len(&self) -> u64 {
                self.len
            }

            /// Whether there are no bytes.
            pub const fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The key, native byte order.
            pub const fn $key(&self) -> u32 {
                self.$key
            }

            /// `len` bytes from `offset` on.
            pub fn slice(&self, offset: u64, len: u64) -> Result<Self, UsageError> {
                match offset.checked_add(len) {
                    Some(end) if end <= self.len => {
                        Ok(Self { addr: self.addr.wrapping_add(offset), len, ..*self })
                    }
                    _ => Err(UsageError::OutOfRange { offset, len, region_len: self.len }),
                }
            }
        }
    };
}

part_of_region!(LocalRegion, lkey, "own side");
part_of_region!(RemoteRegion, rkey, "peer");

impl From<LocalRegion> for Local {
    fn from(LocalRegion { addr, lkey, .. }: LocalRegion) -> Self {
        Self { addr, lkey }
    }
}

impl From<RemoteRegion> for Remote {
    fn from(RemoteRegion { addr, rkey, .. }: RemoteRegion) -> Self {
        Self { addr, rkey }
    }
}

impl AsRef<[LocalRegion]> for LocalRegion {
    fn as_ref(&self) -> &[LocalRegion] {
        std::slice::from_ref(self)
    }
}

const FRAME: Frame = Frame { what: "remote region", magic: *b"WVMR", version: 1, body: 20 };

impl RemoteRegion {
    /// As versioned bytes, to be sent to the peer by any means.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(FRAME.body);
        body.extend_from_slice(&self.addr.to_le_bytes());
        body.extend_from_slice(&self.len.to_le_bytes());
        body.extend_from_slice(&self.rkey.to_le_bytes());
        FRAME.wrap(&body)
    }

    /// Parses what [`RemoteRegion::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HandleError> {
        let mut body = Reader(FRAME.unwrap(bytes)?);
        let (addr, len, rkey) = (body.u64(), body.u64(), body.u32());
        FRAME.field("len", len, addr.checked_add(len).is_some(), "less than the address space")?;
        Ok(Self { addr, len, rkey })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn regions_survive_travel(addr in 0..u64::MAX / 2, len in 0..u64::MAX / 2, rkey: u32) {
            let region = RemoteRegion::new(addr, len, rkey);
            prop_assert_eq!(RemoteRegion::from_bytes(&region.to_bytes()), Ok(region));
        }

        #[test]
        fn what_parses_is_what_was_written(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(region) = RemoteRegion::from_bytes(&bytes) {
                prop_assert_eq!(region.to_bytes(), bytes);
            }
        }

        #[test]
        fn slices_stay_inside(len in 0u64..100, offset: u64, part: u64) {
            let region = LocalRegion::new(1000, len, 1);
            match region.slice(offset, part) {
                Ok(slice) => prop_assert!(offset + part <= len && slice.addr() == 1000 + offset),
                Err(_) => prop_assert!(offset.checked_add(part).is_none_or(|end| end > len)),
            }
        }
    }

    #[test]
    fn a_region_that_wraps_is_refused() {
        let bytes = RemoteRegion::new(u64::MAX, 2, 1).to_bytes();
        assert!(matches!(
            RemoteRegion::from_bytes(&bytes),
            Err(HandleError::Field { field: "len", .. })
        ));
        assert!(matches!(
            RemoteRegion::from_bytes(b"WVEP\x01\x00\x24\x00"),
            Err(HandleError::Magic { found: [b'W', b'V', b'E', b'P'], .. })
        ));
    }
}
