//! The connection to a peer, and who makes it. Its lock is held for moments: threads that need the
//! connection while another one makes it wait each until its own time is up.

use super::limit::Limit;
use super::link::Link;
use crate::AgentError;
use crate::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Slot {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Default)]
enum Stage {
    #[default]
    Empty,
    /// A thread is connecting.
    Making,
    Made(Arc<Link>),
}

/// What a thread finds that needs the connection.
pub(super) enum Found<'a> {
    Made(Arc<Link>),
    /// This thread is to make it.
    Empty(Claim<'a>),
}

/// The right to make the connection. Dropping it leaves that to another thread.
pub(super) struct Claim<'a>(&'a Slot);

impl Slot {
    fn set(&self, stage: Stage) {
        *lock(&self.stage) = stage;
        self.changed.notify_all();
    }

    /// The connection, if there is one.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        match &*lock(&self.stage) {
            Stage::Made(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// Waits while another thread connects.
    pub(super) fn find(
        &self,
        limit: &Limit,
        what: impl Fn() -> String,
    ) -> Result<Found<'_>, AgentError> {
        let mut stage = lock(&self.stage);
        loop {
            match &*stage {
                Stage::Made(link) => return Ok(Found::Made(link.clone())),
                Stage::Empty => {
                    *stage = Stage::Making;
                    return Ok(Found::Empty(Claim(self)));
                }
                Stage::Making => {}
            }
            let waited = self.changed.wait_timeout(stage, limit.left(&what)?);
            stage = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Claim<'_> {
    pub(super) fn fill(self, link: Arc<Link>) {
        self.0.set(Stage::Made(link));
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.set(Stage::Empty);
    }
}
