//! The host's work by calls of the NIC's: no ring, no engine, no other thread.
//!
//! Sends are numbered and posted under one lock, so that the NIC has them in the order of their
//! indexes. The NIC is asked for a completion wherever the poster asked for one, at half of what the
//! queue holds, and for everything but a plain WRITE: the end of one can be asked for later, by a
//! WRITE of no bytes behind it. A request that is not given to the NIC (a NOP, or one that breaks a
//! rule) is deferred here, and completes or fails once all work before it is complete.
//!
//! ```text
//! send    numbers, posts; completions; deferred requests
//! recv    the same for receives
//! ```

mod recv;
mod send;

use super::protocol::Ring;
use super::queue::WorkQueue;
use super::words::Words;
use crate::FirstError;
use crate::provider::{CompletionPort, DirectPorts};
use recv::Receiving;
use send::Sending;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use warpverbs_mlx5::export::PollWord;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::Gone;
use warpverbs_rdma::{Completion, Status};

/// The syndrome of work whose NIC is gone.
const GONE: Syndrome = Syndrome::of_failure(Status::Fatal);
/// Completions taken at a time.
const BATCH: usize = 32;

/// The queues of an endpoint.
#[derive(Debug)]
pub(super) struct Direct {
    /// Sends that may be in flight at the NIC.
    send_depth: u64,
    send: Mutex<Sending>,
    /// Its holder polls the send queue.
    sent: Mutex<Poll>,
    /// How many requests are deferred in `send`.
    deferred: AtomicUsize,
    /// Opcodes of the work requests in flight, by slot.
    opcodes: Box<[AtomicU8]>,
    /// Receives that may be in flight at the NIC.
    recv_depth: u64,
    recv: Mutex<Receiving>,
    /// Its holder polls the receive queue.
    arrived: Mutex<Poll>,
    /// Counts resets: a completion of an older generation is ignored.
    generation: AtomicU8,
    first_error: Mutex<Option<FirstError>>,
    /// The QP is in ERR, or on its way there.
    failed: AtomicBool,
}

/// Completions taken from the NIC and not yet processed.
#[derive(Debug)]
struct Poll {
    port: Box<dyn CompletionPort>,
    taken: Box<[Completion; BATCH]>,
    next: usize,
    count: usize,
}

impl Poll {
    fn new(port: Box<dyn CompletionPort>) -> Self {
        Self { port, taken: Box::new([Completion::default(); BATCH]), next: 0, count: 0 }
    }

    /// The next completion, if there is one.
    #[inline]
    fn next(&mut self) -> Result<Option<Completion>, Gone> {
        if self.next == self.count {
            (self.next, self.count) = (0, 0);
            self.count = self.port.poll(&mut self.taken[..])?.min(BATCH);
        }
        if self.next == self.count {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(self.taken[self.next - 1]))
    }

    fn clear(&mut self) {
        while let Ok(Some(_)) = self.next() {}
    }
}

/// The identity of a request at the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    generation: u8,
    /// Indexes that it takes; 0 for a request that only asks for a completion of those before it.
    indexes: u8,
    /// The index after it, 48 bits.
    end: u64,
}

const END: u64 = (1 << 48) - 1;

impl Id {
    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.generation) << 56 | u64::from(self.indexes) << 48 | self.end & END
    }

    #[inline]
    fn unpack(id: u64) -> Self {
        Self { generation: (id >> 56) as u8, indexes: (id >> 48) as u8, end: id & END }
    }

    fn index(self) -> u64 {
        self.end - u64::from(self.indexes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For pollers: `None` if another thread is polling.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Hands the indexes below `upto` back to posters. The lock bit of the word has no part in this:
/// kernels do not post to such queues, and the pollers' locks are mutexes.
#[inline]
fn retire(queue: &WorkQueue, upto: u64) {
    // Release, pairs with the acquire of posters that look for room.
    queue.poll().fetch_max(PollWord::new(upto, false).0, Release);
}

impl Direct {
    pub(super) fn new(ports: DirectPorts, log_send: u8) -> Self {
        let DirectPorts { send_depth, recv_depth, send, recv, sent, arrived } = ports;
        Self {
            send_depth: send_depth.into(),
            send: Mutex::new(Sending::new(send)),
            sent: Mutex::new(Poll::new(sent)),
            deferred: AtomicUsize::new(0),
            opcodes: (0..1usize << log_send).map(|_| AtomicU8::new(0)).collect(),
            recv_depth: recv_depth.into(),
            recv: Mutex::new(Receiving::new(recv)),
            arrived: Mutex::new(Poll::new(arrived)),
            generation: AtomicU8::new(0),
            first_error: Mutex::new(None),
            failed: AtomicBool::new(false),
        }
    }

    pub(super) fn first_error(&self) -> Option<FirstError> {
        *lock(&self.first_error)
    }

    /// The QP is in ERR: nothing more is given to the NIC.
    pub(super) fn has_failed(&self) {
        self.failed.store(true, Release);
    }

    /// Forgets all work in flight; the QP is in RESET, and nobody posts or polls.
    pub(super) fn reset(&self) {
        self.generation.fetch_add(1, Relaxed);
        lock(&self.send).reset();
        self.deferred.store(0, Relaxed);
        // The new generation's completions need the room.
        for poll in [&self.sent, &self.arrived] {
            lock(poll).clear();
        }
        *lock(&self.first_error) = None;
        self.failed.store(false, Release);
    }

    /// The first failure ends the QP.
    #[cold]
    fn end(&self, q: &Words) {
        if !self.failed.swap(true, Release)
            && let Err(error) = q.fail_qp()
        {
            tracing::warn!(%error, qpn = q.qpn.get(), "the QP did not go to ERR");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_come_back() {
        for (generation, indexes, end) in [(0, 1, 1), (255, 4, END), (7, 0, 0x1234_5678_9abc)] {
            let id = Id { generation, indexes, end };
            assert_eq!(Id::unpack(id.pack()), id);
        }
    }
}
