//! Calls that must not wait for a peer.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Calls may wait.
    Free,
    /// The call must not wait, and has not had to so far.
    Held,
    /// The call would have had to wait.
    Refused,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Free) };
}

/// Makes a call of an agent, such as [`Agent::transfer`](crate::Agent::transfer), unless it would have to wait. If it first
/// has to find a path, connect to a peer or ask it, the result is `None` and nothing has changed; the program can then make the
/// call again in a thread that may wait. Calls whose purpose is to wait, such as
/// [`Transfer::wait`](crate::Transfer::wait), wait here too.
pub fn at_hand<T>(call: impl FnOnce() -> T) -> Option<T> {
    /// The mode that was before, also after a panic.
    struct Before(Mode);
    impl Drop for Before {
        fn drop(&mut self) {
            MODE.set(self.0);
        }
    }
    let before = Before(MODE.replace(Mode::Held));
    let result = call();
    let refused = MODE.get() == Mode::Refused;
    drop(before);
    (!refused).then_some(result)
}

/// Whether this thread may wait for a peer; if not, the call that it is in has no result.
pub(crate) fn may_wait() -> bool {
    let free = MODE.get() == Mode::Free;
    if !free {
        MODE.set(Mode::Refused);
    }
    free
}
