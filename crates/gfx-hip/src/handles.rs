//! Handles, which stand for what a call made.

use crate::state::lock;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

/// Values by handle: numbers from 1 on, none of which is given out twice.
pub(crate) struct Handles<T>(Mutex<(usize, BTreeMap<usize, T>)>);

impl<T> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new((0, BTreeMap::new())))
    }

    /// A new handle.
    pub(crate) fn add(&self, value: T) -> *mut c_void {
        let (last, values) = &mut *lock(&self.0);
        *last += 1;
        values.insert(*last, value);
        *last as *mut c_void
    }

    /// Calls `get` with a handle's value; nothing if there is no such handle.
    pub(crate) fn with<R>(&self, handle: *mut c_void, get: impl FnOnce(&T) -> R) -> Option<R> {
        lock(&self.0).1.get(&(handle as usize)).map(get)
    }

    pub(crate) fn remove(&self, handle: *mut c_void) -> Option<T> {
        lock(&self.0).1.remove(&(handle as usize))
    }

    /// Gives a handle that was removed its value again.
    pub(crate) fn put_back(&self, handle: *mut c_void, value: T) {
        lock(&self.0).1.insert(handle as usize, value);
    }
}
