//! The listening socket.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::ResolveError;

/// Why a server could not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum BindError {
    /// Another process listens there.
    #[error("{addr} is in use by another process; choose another port or end that process")]
    InUse { addr: SocketAddr },
    /// Another machine's address.
    #[error("{addr} is not an address of this machine; say which of its addresses to bind to")]
    NotLocal { addr: SocketAddr },
    /// Not allowed, as for ports below 1024.
    #[error("not allowed to listen at {addr}")]
    Denied { addr: SocketAddr },
    /// The name has no address to try.
    #[error("host {host:?} has no address to listen at")]
    NoAddress { host: String },
    /// The name could not be resolved.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Something else.
    #[error("cannot listen at {addr}: {cause}")]
    Io { addr: SocketAddr, cause: io::Error },
}

pub(super) fn listen(addr: SocketAddr) -> Result<TcpListener, BindError> {
    warpverbs_meet::listen(addr).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { addr },
        io::ErrorKind::AddrNotAvailable => BindError::NotLocal { addr },
        io::ErrorKind::PermissionDenied => BindError::Denied { addr },
        _ => BindError::Io { addr, cause },
    })
}
