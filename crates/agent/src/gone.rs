//! Whether anybody holds memory that was registered.

use crate::deadline::Deadline;
use crate::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Says when the last holder of some memory is gone.
#[derive(Default)]
pub(crate) struct Gone {
    over: Mutex<bool>,
    news: Condvar,
}

/// Is kept with the memory: its drop is the news.
pub(crate) struct Presence(Arc<Gone>);

impl Gone {
    pub(crate) fn new() -> (Arc<Self>, Presence) {
        let gone = Arc::new(Self::default());
        (gone.clone(), Presence(gone))
    }

    /// Waits for `slice` at most, and not beyond `deadline`; whether nobody holds it.
    pub(crate) fn wait(&self, deadline: &Deadline, slice: Duration) -> bool {
        let over = lock(&self.over);
        let left = deadline.0.remaining().unwrap_or_default().min(slice);
        let waited = self.news.wait_timeout_while(over, left, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        *lock(&self.0.over) = true;
        self.0.news.notify_all();
    }
}
