//! Protection domains.

use super::{Context, VerbsError};
use crate::{result, sys};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain: keys of its memory work for its queues only. Cloning shares it.
#[derive(Clone)]
pub struct Pd {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    ptr: NonNull<sys::ibv_pd>,
}

// SAFETY: libibverbs allows the use of a protection domain from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above, at the same time too.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: whatever was made in the domain held it and is gone.
        if let Err(error) = unsafe { result::dealloc_pd(self.context.api(), self.ptr) } {
            tracing::warn!(device = self.context.device().name(), %error, "PD not given back");
        }
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pd({})", self.context().device().name())
    }
}

impl Pd {
    /// A new domain of `context`.
    pub fn new(context: &Context) -> Result<Self, VerbsError> {
        // SAFETY: a live context.
        let ptr = unsafe { result::alloc_pd(context.api(), context.ptr()) }?;
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), ptr }) })
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The library's object, which lives as long as this one.
    pub fn ptr(&self) -> NonNull<sys::ibv_pd> {
        self.inner.ptr
    }

    /// An object used with this domain must be of the same context.
    pub(super) fn check_context(
        &self,
        object: &'static str,
        context: &Context,
    ) -> Result<(), VerbsError> {
        if self.context() == context {
            return Ok(());
        }
        Err(VerbsError::OtherContext { object })
    }
}
