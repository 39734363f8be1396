//! How a NIC reaches memory: by its address, as a dmabuf, or through copies.

use std::fmt;
use std::os::fd::OwnedFd;
use thiserror::Error;

/// How a device reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegistrationPath {
    /// Host memory, by its address.
    Host,
    /// A GPU's memory, which the software NIC has copied by the GPU's copy engine.
    CopyEngine,
    /// A GPU's memory, as a dmabuf: the NIC reads and writes it across PCIe.
    Dmabuf,
    /// A GPU's memory by its address, which a kernel module of the GPU's vendor knows.
    PeerMemory,
    /// Pinned host memory as a bounce buffer: the GPU's copy engine copies between the two.
    Bounce,
}

impl fmt::Display for RegistrationPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory",
            Self::CopyEngine => "copy engine of the GPU",
            Self::Dmabuf => "dmabuf",
            Self::PeerMemory => "peer memory module",
            Self::Bounce => "bounce through host memory",
        })
    }
}

/// Memory as a dmabuf, by which a NIC's driver reaches it.
#[derive(Debug)]
pub struct Dmabuf {
    /// Its descriptor.
    pub fd: OwnedFd,
    /// Where the memory begins in it, bytes.
    pub offset: u64,
}

/// Memory is not exported as a dmabuf or to other processes, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotExported(pub String);
