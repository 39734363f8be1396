//! A lock that a panic does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The data stays consistent when a holder panics: nothing here panics half way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
