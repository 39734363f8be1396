//! Calls whose thread must not wait for a peer.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Waiting is fine.
    Free,
    /// Nothing may be waited for, and nothing had to be so far.
    Held,
    /// Something would have had to be waited for.
    Refused,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Free) };
}

/// Makes a call of an agent, such as [`Agent::transfer`](crate::Agent::transfer), with what is at hand. If a path has to be
/// found first or a peer to be connected to or asked, nothing changes, and there is no result: a program whose thread must
/// not wait then makes the call from another one. The calls that wait in any case, by their names, do so here too.
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
