//! The semantics of NIXL over [`warpverbs_agent`]: memory is named by address, length and device at both
//! ends, lists are of such descriptors, notifications wait without a window, and an agent is its own
//! peer. The Python package and the C library are thin fronts of this crate.
#![forbid(unsafe_code)]

mod agent;
mod backend;
mod config;
mod error;
mod exchange;
mod file;
mod index;
mod kind;
mod list;
mod memory;
mod prepared;
mod transfer;

pub use agent::{Adopt, Agent, Notifications};
pub use backend::{BackendId, Params, Plugin};
pub use config::{Config, CurrentGpu};
pub use error::{Error, Status};
pub use exchange::{NAMESPACE, Place, Store, WHOLE};
pub use file::{FileError, FileInfo, FilePath, FilePiece, FileTransfer, Files};
pub use kind::Kind;
pub use list::{Desc, List, MOST_DESCRIPTORS, RegDesc, RegList, Strided};
pub use prepared::Prepared;
pub use transfer::{Estimate, Notification, Telemetry, Transfer};
pub use warpverbs_agent::{Exchange, Op};
pub use warpverbs_mem::{FileEngine, FileOp};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic of another thread under the lock leaves values that are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
