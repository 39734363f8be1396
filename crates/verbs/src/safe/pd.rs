//! Protection domains.

use super::{Context, Owned, VerbsError};
use crate::call::object;
use crate::sys;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain: keys of its memory work for its queues only. Cloning shares it.
#[derive(Clone)]
pub struct Pd {
    inner: Arc<Owned<sys::ibv_pd, Context>>,
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pd({})", self.context().device().name())
    }
}

impl Pd {
    /// A new domain of `context`.
    pub fn new(context: &Context) -> Result<Self, VerbsError> {
        let (call, api) = ("ibv_alloc_pd", context.api());
        // SAFETY: a live context.
        let ptr = object(call, unsafe { (api.ibv_alloc_pd)(context.ptr().as_ptr()) })?;
        let destroy = ("ibv_dealloc_pd", api.ibv_dealloc_pd);
        // SAFETY: made above; whatever is made in the domain holds it.
        let inner = unsafe { Owned::new(ptr, destroy, context.clone(), ()) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        self.inner.parent()
    }

    /// The library's object, which lives as long as this one.
    pub fn ptr(&self) -> NonNull<sys::ibv_pd> {
        self.inner.ptr()
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
