//! The host's work by calls of the NIC's: no ring, no engine, no other thread.
//!
//! Sends are numbered and posted under one lock, so that the NIC has them in the order of their
//! indexes. The NIC is asked for a completion wherever the poster asked for one, at half of what the
//! queue holds, and for everything but a plain WRITE: the end of one can be asked for later, by a
//! WRITE of no bytes behind it. What the NIC has nothing to do for, or may not be given, has its turn
//! here, once all before it is complete.
//!
//! ```text
//! send    numbers, translates, posts; completions back; the turns
//! recv    the same for receives
//! ```

mod recv;
mod send;

use super::host::HostQueues;
use super::protocol::Ring;
use super::queue::WorkQueue;
use crate::FirstError;
use crate::layout::Shape;
use crate::provider::{CompletionPort, DirectPorts};
use recv::Receiving;
use send::Sending;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use warpverbs_mlx5::export::PollWord;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::{Gone, ProxyLimits};
use warpverbs_rdma::{Completion, Status};

/// What work completes with whose NIC is gone.
const GONE: Syndrome = match Syndrome::of(Status::Fatal) {
    Some(syndrome) => syndrome,
    None => Syndrome::LocalQpOp,
};
/// Completions taken at a time.
const BATCH: usize = 32;

/// The queues of an endpoint.
#[derive(Debug)]
pub(super) struct Direct {
    limits: ProxyLimits,
    /// The NIC may be asked for READs and atomics.
    fetches: Arc<AtomicBool>,
    send: Mutex<Sending>,
    /// Whoever has it is the poller of the send queue.
    sent: Mutex<Poll>,
    /// How many turns there are in `send`.
    turns: AtomicUsize,
    /// Opcodes of the work requests in flight, by slot.
    opcodes: Box<[AtomicU8]>,
    recv: Mutex<Receiving>,
    /// Whoever has it is the poller of the receive queue.
    arrived: Mutex<Poll>,
    /// Counts resets, to tell what is of before one.
    life: AtomicU8,
    first_error: Mutex<Option<FirstError>>,
    /// The QP is in ERR, or on its way there.
    failed: AtomicBool,
}

/// Completions that were taken and not yet looked at.
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

/// The identity of work at the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    life: u8,
    /// Indexes that it takes; 0 for what only asks after the work before it.
    indexes: u8,
    /// The index after it, 48 bits.
    end: u64,
}

const END: u64 = (1 << 48) - 1;

impl Id {
    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.life) << 56 | u64::from(self.indexes) << 48 | self.end & END
    }

    #[inline]
    fn unpack(id: u64) -> Self {
        Self { life: (id >> 56) as u8, indexes: (id >> 48) as u8, end: id & END }
    }

    fn index(self) -> u64 {
        self.end - u64::from(self.indexes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For pollers: `None` if somebody else is polling.
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
    // Release, pairs with the acquire of those who look for room.
    queue.poll().fetch_max(PollWord::new(upto, false).0, Release);
}

impl Direct {
    pub(super) fn new(ports: DirectPorts, shape: &Shape) -> Self {
        let DirectPorts { limits, fetches, keys, send, recv, sent, arrived } = ports;
        let slots = 1usize << shape.log_send;
        Self {
            limits,
            fetches,
            send: Mutex::new(Sending::new(send, keys.clone())),
            sent: Mutex::new(Poll::new(sent)),
            turns: AtomicUsize::new(0),
            opcodes: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            recv: Mutex::new(Receiving::new(recv, keys)),
            arrived: Mutex::new(Poll::new(arrived)),
            life: AtomicU8::new(0),
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

    /// Everything under way is forgotten; the QP is in RESET, and nobody posts or polls.
    pub(super) fn reset(&self) {
        self.life.fetch_add(1, Relaxed);
        lock(&self.send).reset();
        self.turns.store(0, Relaxed);
        // Room for those that are to come.
        for poll in [&self.sent, &self.arrived] {
            lock(poll).clear();
        }
        *lock(&self.first_error) = None;
        self.failed.store(false, Release);
    }

    /// The first failure ends the QP.
    #[cold]
    fn end(&self, q: &HostQueues) {
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
        for (life, indexes, end) in [(0, 1, 1), (255, 4, END), (7, 0, 0x1234_5678_9abc)] {
            let id = Id { life, indexes, end };
            assert_eq!(Id::unpack(id.pack()), id);
        }
    }
}
