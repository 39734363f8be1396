//! Threads beside the one that measures.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

/// The result of a thread, or its panic.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs `work` here, and `partner` on a thread that goes on until its flag is set: at the end of `work`,
/// by a panic as well.
pub(crate) fn with_partner<P: Send, W>(
    partner: impl FnOnce(&AtomicBool) -> P + Send,
    work: impl FnOnce() -> W,
) -> (W, P) {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let partner = scope.spawn(|| partner(&over));
        let end = Over(&over);
        let done = work();
        drop(end);
        (done, joined(partner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_partner_ends_with_the_work_and_with_its_panic() {
        let until = |over: &AtomicBool| {
            while !over.load(Ordering::Acquire) {
                thread::yield_now();
            }
            2
        };
        assert_eq!(with_partner(until, || 1), (1, 2));
        let panics = AssertUnwindSafe(|| with_partner(until, || panic!("the work")));
        assert!(catch_unwind(panics).is_err());
    }
}
