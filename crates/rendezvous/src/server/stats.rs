//! Reports of a server about itself.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::ProtocolError;
use crate::store::Refusal;

/// Why a connection was closed by the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum Cause {
    /// Its bytes are not the protocol's.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The store refused what it asked for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A message, or the validation of a new connection, was not complete in time.
    #[error("message not complete within {limit:?}")]
    SlowToSend { limit: Duration },
    /// A reply was not taken in time.
    #[error("reply not taken within {limit:?}")]
    SlowToRead { limit: Duration },
    /// Messages in progress need more memory than there is.
    #[error("buffers and store would hold {size} bytes, at most {limit} allowed")]
    Memory { size: usize, limit: usize },
    /// One connection too many.
    #[error("{limit} connections are open already")]
    TooManyConnections { limit: usize },
    /// The server's process may not open another descriptor.
    #[error("the store's process is out of file descriptors (ulimit -n)")]
    NoDescriptors,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(io::ErrorKind),
}

/// A connection that the server closed for cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The other end.
    pub peer: SocketAddr,
    /// Why.
    pub cause: Cause,
}

/// Counts since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests carried out.
    pub requests: u64,
    /// Connections closed for cause.
    pub faults: u64,
}

/// State that the server's thread and its owner share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stop: AtomicBool,
    state: Mutex<(Stats, VecDeque<Fault>)>,
}

const FAULTS_KEPT: usize = 64;

impl Shared {
    pub(super) fn stop(&self) {
        // Release pairs with the Acquire in `stopped`; the waker is what ends the wait.
        self.stop.store(true, Ordering::Release);
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn stats(&self) -> Stats {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).0);
    }

    pub(super) fn fault(&self, peer: SocketAddr, cause: Cause) {
        tracing::warn!(%peer, %cause, "store closes a connection");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.faults += 1;
        if state.1.len() == FAULTS_KEPT {
            state.1.pop_front();
        }
        state.1.push_back(Fault { peer, cause });
    }

    pub(super) fn take_faults(&self) -> Vec<Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.1).into()
    }
}
