//! Why a link was not opened.

use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a link was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system refused.
    #[error("cannot open a link at {addr}: {kind}")]
    Open {
        /// The address to take.
        addr: SocketAddr,
        /// The system's error.
        kind: io::ErrorKind,
    },
    /// The process, or the system, has no descriptor left.
    #[error("cannot open a link at {addr}: no descriptor is left ({name})")]
    Descriptors {
        /// The address to take.
        addr: SocketAddr,
        /// EMFILE: this process has as many as it may; ENFILE: the system has.
        name: &'static str,
    },
    /// Peers must be able to send to the address, so it is not "any".
    #[error("a link needs the address of one interface, got {addr}")]
    UnspecifiedAddress {
        /// The address given.
        addr: SocketAddr,
    },
}

#[cfg(feature = "udp")]
impl LinkError {
    /// From the system's error when a link was opened at `addr`.
    pub(crate) fn open(addr: SocketAddr, error: &io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::MFILE) => Self::Descriptors { addr, name: "EMFILE" },
            Some(Errno::NFILE) => Self::Descriptors { addr, name: "ENFILE" },
            _ => Self::Open { addr, kind: error.kind() },
        }
    }
}
