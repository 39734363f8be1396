//! The thread's subject, and when it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_meet::Wake;

/// Gives the text.
pub(crate) type Source = dyn Fn() -> String + Send;

/// The end of the thread's wait.
#[derive(Clone)]
pub(super) struct Ending {
    pub(super) wake: Arc<Wake>,
    ends: Arc<AtomicBool>,
}

impl Ending {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { wake: Arc::new(Wake::new()?), ends: Arc::default() })
    }

    pub(super) fn has_come(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    pub(super) fn come(&self) {
        self.ends.store(true, Ordering::Release);
        self.wake.wake();
    }
}
