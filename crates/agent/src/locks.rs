//! The locks of this crate: who takes which, and in which order.
//!
//! A lock may be taken while those above it are held, and no other. Locks of one line are never held
//! together.
//!
//! | | lock | held | taken by |
//! |---|---|---|---|
//! | 1 | `run::Shared::run` | for a whole `post`, copies of the CPU and a connection that it makes included; else for a look | the thread that posts; all others only try |
//! | 2 | `Bounce::memory` | for a copy; others try, by their own deadlines | a `post` |
//! | 3 | `Job::lists` | while a list is made, or a copy goes through a bounce buffer | a `post` |
//! | 4 | `Peers::table` | while metadata is taken, and the peer that it replaces is given up | the program, the control thread |
//! | 5 | `Peer::known`; `Routed::routes` | for a look or a change | all |
//! | 6 | `Offered`; then the `state` of a receiver | for a look or a change | the program, the control thread |
//! | | the `state` of a sender | the same | the program, the control thread, wakers |
//! | 7 | `Memories::told` | while metadata is made | the program, the control thread |
//! | 8 | `Control::inbound` | while a peer is admitted, and while memory is revoked | the program, the control thread |
//! | 9 | `LocalMemory::tcp` | while a key is made | the control thread, and the thread that deregisters |
//! | 10 | `Serving`, then its `connections` | while connections are ended, which waits for copies under way into memory | the control thread, the threads that accept and serve |
//! | | `Answering` | for a look or a change; queue pairs end without it | the control thread |
//! | 11 | `Memories::table`; then `LocalMemory::exported`, `LocalMemory::keys`, `LocalMemory::held` | for a look or a change | all |
//! | | `Inbox::state` | the same | the program, the control thread |
//! | 12 | `Control::active`, `Control::handed`, `Link::revoking`, `Link::notices`, `Link::calls`, `Link::proofs`, `LocalMemory::lists`, `Streams::ends`, `Prover::process`, `Bounces` | for a look or a change | all |
//! | 13 | `Link::out` | while bytes are given to the system, which takes what it can at once | all |
//! | 14 | `Shared::outcome`, `Made::state`, `Gone::over`, `AGENTS`, `Peers::news_lock`, `Peer::told`, `WRITTEN` | for a look or a change | all |
//!
//! [`Made`](crate::made::Made) holds no lock while a value is made, so threads that need a connection,
//! queue pairs, sockets, a proof or a path which another thread makes wait each until their own deadline.
//! Apart from `run`, no lock is held while a peer is waited for. No lock is held while code of the program
//! runs: wakers are called, and registered memory is given up, when all are released.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks. The data behind a lock of this crate is changed whole, so that a panic of its holder leaves
/// nothing half written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`lock`], unless another thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
