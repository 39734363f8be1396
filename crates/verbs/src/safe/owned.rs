//! Objects of libraries, each destroyed once.

use crate::call::check;
use std::any::Any;
use std::ffi::c_int;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// An object that is destroyed when this is dropped, and then what it was made from. Memory that it
/// uses is freed between the two, and never if the library does not give the object up.
pub(crate) struct Owned<T, Parent: fmt::Debug, Memory = ()> {
    ptr: NonNull<T>,
    destroy: Destroy<T>,
    parent: Parent,
    memory: ManuallyDrop<Memory>,
}

/// Everything that an object of a vendor's library uses besides its parent.
pub(crate) type Uses = Option<Arc<dyn Any + Send + Sync>>;

/// A function of a library, by name.
pub(crate) type Destroy<T> = (&'static str, unsafe extern "C" fn(*mut T) -> c_int);

// SAFETY: libibverbs and libmlx5 allow the use of an object from any thread.
unsafe impl<T, Parent: fmt::Debug + Send, Memory: Send> Send for Owned<T, Parent, Memory> {}
// SAFETY: as above, at the same time too: providers lock queues, and other calls are one ioctl each.
unsafe impl<T, Parent: fmt::Debug + Sync, Memory: Sync> Sync for Owned<T, Parent, Memory> {}

impl<T, Parent: fmt::Debug, Memory> Drop for Owned<T, Parent, Memory> {
    fn drop(&mut self) {
        let (call, destroy) = self.destroy;
        // SAFETY: a live object, says `new`, destroyed once, here. Objects made from it held it and
        // are gone; events are acknowledged as soon as they are read.
        match check(call, unsafe { destroy(self.ptr.as_ptr()) }) {
            // SAFETY: the device has given the memory up; dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            Err(error) => {
                tracing::error!(parent = ?self.parent, %error, "an object and its memory are left");
            }
        }
    }
}

impl<T, Parent: fmt::Debug, Memory> Owned<T, Parent, Memory> {
    /// # Safety
    /// `ptr` is a live object that was made from `parent`, nobody else destroys it, and `destroy` does;
    /// whatever is made from it holds this object.
    pub(crate) unsafe fn new(
        ptr: NonNull<T>,
        destroy: Destroy<T>,
        parent: Parent,
        memory: Memory,
    ) -> Self {
        Self { ptr, destroy, parent, memory: ManuallyDrop::new(memory) }
    }

    /// The library's object, which lives as long as this one.
    pub(crate) fn ptr(&self) -> NonNull<T> {
        self.ptr
    }

    /// Its context, domain, or device.
    pub(crate) fn parent(&self) -> &Parent {
        &self.parent
    }

    /// The memory that it uses.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}
