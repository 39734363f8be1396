//! The streams whose events travel on one connection.

use super::frame::Event;
use crate::AgentError;
use crate::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// One end of a stream, as its connection knows it.
pub(crate) trait End: Send + Sync {
    /// Handles an event. An error says which rule the peer has broken.
    fn event(&self, event: Event<'_>) -> Result<(), String>;
    /// The connection is lost.
    fn lose(&self, why: &AgentError);
}

/// The streams of a connection, by the numbers that their senders give them.
#[derive(Default)]
pub(crate) struct Streams {
    next: AtomicU64,
    ends: Mutex<HashMap<u64, Weak<dyn End>>>,
}

impl Streams {
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, id: u64, end: &Arc<impl End + 'static>) {
        let end: Arc<dyn End> = end.clone();
        lock(&self.ends).insert(id, Arc::downgrade(&end));
    }

    pub(crate) fn remove(&self, id: u64) {
        lock(&self.ends).remove(&id);
    }

    /// Events of a stream that has ended here are ignored.
    pub(crate) fn event(&self, id: u64, event: Event<'_>) -> Result<(), String> {
        let end = lock(&self.ends).get(&id).and_then(Weak::upgrade);
        end.map_or(Ok(()), |end| end.event(event).map_err(|why| format!("stream {id}: {why}")))
    }

    pub(crate) fn lose(&self, why: &AgentError) {
        let ends: Vec<_> = lock(&self.ends).drain().filter_map(|(_, end)| end.upgrade()).collect();
        ends.iter().for_each(|end| end.lose(why));
    }
}
