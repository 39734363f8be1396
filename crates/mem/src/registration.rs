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

/// A way that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// The way.
    pub how: RegistrationPath,
    /// The reason.
    pub why: String,
}

impl NotTaken {
    /// All of them, in one line.
    pub fn list(tried: &[Self]) -> String {
        let lines: Vec<_> = tried.iter().map(|way| format!("{}: {}", way.how, way.why)).collect();
        lines.join("; ")
    }
}

/// The way that was taken, and the better ones that were not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationChoice {
    /// The way.
    pub by: RegistrationPath,
    /// Better ways.
    pub not_taken: Vec<NotTaken>,
}

impl RegistrationChoice {
    /// By the best way there is.
    pub fn best(by: RegistrationPath) -> Self {
        Self { by, not_taken: Vec::new() }
    }

    /// One line: which way, and why none of the better ones.
    pub fn why(&self) -> String {
        match self.not_taken.len() {
            0 => self.by.to_string(),
            _ => format!("{} ({})", self.by, NotTaken::list(&self.not_taken)),
        }
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
