//! The host as a poster: reserving, waiting, completing.

use super::backoff::Backoff;
use super::host::HostQueues;
use super::protocol::{Ring, reserved};
use super::work::Posted;
use crate::QueueKind;
use crate::SendFlags;
use crate::{SharedReceiveQueue, TransportError, WaitError};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

/// Posts work to an endpoint from the host and waits for it. Any number of threads may hold one
/// for the same endpoint at the same time. Nothing here allocates. Locks are taken only inside a
/// NIC's library, or around its calls.
///
/// `post_*` calls that return without error have been rung for. They wait only for room, at most
/// for the endpoint's timeout (or that of [`Poster::with_timeout`]), and then leave nothing behind.
/// After a work request has failed, every call returns that first error.
#[derive(Clone, Copy)]
pub struct Poster<'e> {
    pub(super) q: &'e HostQueues,
    /// QP number of the peer, 0 if not connected.
    pub(super) peer: &'e AtomicU32,
    pub(super) srq: Option<&'e SharedReceiveQueue>,
    pub(super) timeout: Duration,
}

impl<'e> Poster<'e> {
    pub(crate) fn new(
        q: &'e HostQueues,
        peer: &'e AtomicU32,
        srq: Option<&'e SharedReceiveQueue>,
        timeout: Duration,
    ) -> Self {
        Self { q, peer, srq, timeout }
    }

    /// The same, with another deadline for every call; zero never waits.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Takes what has completed off the send CQ, without waiting, and returns the index below
    /// which all send work is complete. Compare with [`Posted::end`].
    #[doc(alias = "PollCqOnce")]
    pub fn poll(&self) -> Result<u64, TransportError> {
        self.q.poll_send()
    }

    /// Whether a signalled work request (or a signalled one after it) has completed. Never waits.
    pub fn is_done(&self, work: Posted) -> Result<bool, TransportError> {
        Ok(self.poll()? >= work.end)
    }

    /// Waits until a send work request, and with it every earlier one, is complete. If neither it
    /// nor a later one is signalled, a NOP that is follows it.
    #[doc(alias = "PollCq")]
    #[inline]
    pub fn wait(&self, work: Posted) -> Result<(), TransportError> {
        self.wait_until(work.end, work.signaled)
    }

    /// Waits until everything posted to the send queue before this call is complete, signalled or
    /// not.
    #[doc(alias = "flush")]
    pub fn quiet(&self) -> Result<(), TransportError> {
        self.wait_until(reserved(&self.q.words.send, Acquire), false)
    }

    fn wait_until(&self, mut end: u64, mut signaled: bool) -> Result<(), TransportError> {
        let q = self.q;
        let mut backoff = Backoff::new(self.timeout);
        loop {
            if q.words.send.completed() >= end {
                return Ok(());
            }
            q.drain_send();
            if q.words.send.completed() >= end {
                return Ok(());
            }
            q.check()?;
            q.words.check_abort()?;
            if !signaled && q.words.send.unsignaled().load(Relaxed) >= end {
                (end, signaled) = (self.post_nop(SendFlags::SIGNALED)?.end, true);
            }
            if !backoff.pause() {
                return Err(WaitError::Timeout {
                    qpn: q.words.qpn.get(),
                    queue: QueueKind::Send,
                    expected: end,
                    actual: q.words.send.completed(),
                    after: self.timeout,
                }
                .into());
            }
        }
    }

    /// Posts as soon as there is room.
    #[inline]
    pub(super) fn when_room(
        &self,
        kind: QueueKind,
        post: impl Fn() -> Option<Posted>,
    ) -> Result<Posted, TransportError> {
        match post() {
            Some(posted) => Ok(posted),
            None => self.when_room_at_last(kind, post),
        }
    }

    #[cold]
    fn when_room_at_last(
        &self,
        kind: QueueKind,
        post: impl Fn() -> Option<Posted>,
    ) -> Result<Posted, TransportError> {
        let (q, queue) = (self.q, self.q.words.queue(kind));
        let mut backoff = Backoff::new(self.timeout);
        loop {
            // Receives are retired by the user, who takes their completions.
            if kind == QueueKind::Send {
                q.drain_send();
            }
            if let Some(posted) = post() {
                return Ok(posted);
            }
            q.check()?;
            q.words.check_abort()?;
            if !backoff.pause() {
                let (qpn, depth, after) = (q.words.qpn.get(), queue.depth(), self.timeout);
                return Err(WaitError::QueueFull { qpn, queue: kind, depth, after }.into());
            }
        }
    }
}
