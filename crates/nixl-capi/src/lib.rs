//! `libnixl_capi.so`: NIXL's C interface, as of its version 1.5.2, over [`warpverbs_nixl`].
//!
//! Programs load the library by its name, and declare its functions by NIXL's header. Nothing in
//! here is for Rust; `docs/nixl-capi.md` says what C programs can rely on.
//!
//! `border` has the caller's pointers, `handle` its handles, `call` what all functions have in common, `log`
//! where events go, `gpu` the GPU that the caller uses, `options` optional arguments; the functions are in `agent`,
//! `backend`, `lists`, `metadata`, `notify`, `params`, `query`, `register`, `remote`, `strings` and `transfer`, by their
//! subjects.

mod agent;
mod backend;
mod border;
mod call;
mod gpu;
mod handle;
mod lists;
mod log;
mod metadata;
mod notify;
mod options;
mod params;
mod query;
mod register;
mod remote;
mod strings;
mod transfer;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic of another thread under the lock leaves values that are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
