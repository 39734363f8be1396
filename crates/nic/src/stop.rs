//! A NIC that stopped for good: its cause, and the watchers that are called.

use crate::NicError;
use std::sync::{Mutex, OnceLock, PoisonError, Weak};

/// Called when a NIC stops: see [`SoftNic::stopped`](crate::SoftNic::stopped).
pub trait StopWatcher: Send + Sync {
    /// `cause` is [`NicError::Stopped`]. Called once, by whichever thread noticed; must not wait.
    fn nic_stopped(&self, cause: &NicError);
}

/// The cause, once there is one, and the watchers until then.
#[derive(Default)]
pub(crate) struct Stop {
    cause: OnceLock<NicError>,
    watchers: Mutex<Vec<Weak<dyn StopWatcher>>>,
}

impl Stop {
    pub(crate) fn cause(&self) -> Option<&NicError> {
        self.cause.get()
    }

    /// Whether this is the first cause: the others are forgotten.
    pub(crate) fn set(&self, cause: NicError) -> bool {
        self.cause.set(cause).is_ok()
    }

    /// After [`Self::set`]. A watcher that is added meanwhile sees the cause, or is in the list.
    pub(crate) fn call_watchers(&self) {
        let watchers = {
            let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *watchers)
        };
        let Some(cause) = self.cause() else { return };
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            watcher.nic_stopped(cause);
        }
    }

    pub(crate) fn watch(&self, watcher: Weak<dyn StopWatcher>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = self.cause() {
            drop(watchers);
            if let Some(watcher) = watcher.upgrade() {
                watcher.nic_stopped(cause);
            }
            return;
        }
        // Dead ones go when the list would grow: it stays within twice the living.
        if watchers.len() == watchers.capacity() {
            watchers.retain(|watcher| watcher.strong_count() > 0);
        }
        watchers.push(watcher);
    }
}
