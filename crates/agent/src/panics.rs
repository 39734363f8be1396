//! Panics of code that this crate does not know: wakers, owners of memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code that may panic, and reports that; whether it has not.
pub(crate) fn guarded(what: &str, run: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return true };
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = said.unwrap_or("of another type than text"), "{what} panicked");
    // Its value is the program's, too, and may panic when it is dropped.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    false
}
