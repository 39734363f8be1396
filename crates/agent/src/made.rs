//! Values that one thread at a time makes, and the others wait for, each until its own deadline.

use crate::deadline::Deadline;
use crate::{AgentError, at_hand, lock};
use std::sync::{Condvar, Mutex};

/// A value that is made when it is first needed. No lock is held while it is made.
pub(crate) struct Made<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Nothing,
    Making,
    Ready(T),
}

impl<T> Default for Made<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State::Nothing), changed: Condvar::new() }
    }
}

/// The end of an attempt, also by a panic.
struct Attempt<'a, T>(&'a Made<T>);

impl<T> Drop for Attempt<'_, T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if matches!(*state, State::Making) {
            *state = State::Nothing;
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl<T: Clone> Made<T> {
    /// The value, made by this thread if there is none and no other thread is at it. If that other
    /// thread fails, this one tries.
    pub(crate) fn get_or_make(
        &self,
        deadline: &Deadline,
        what: impl Fn() -> String,
        make: impl FnOnce() -> Result<T, AgentError>,
    ) -> Result<T, AgentError> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                State::Ready(made) => return Ok(made.clone()),
                _ if !at_hand::may_wait() => return Err(deadline.late(what())),
                State::Nothing => break,
                State::Making => {}
            }
            state = deadline.wait(&self.changed, state, &what)?;
        }
        *state = State::Making;
        drop(state);
        let attempt = Attempt(self);
        let made = make()?;
        *lock(&self.state) = State::Ready(made.clone());
        drop(attempt);
        Ok(made)
    }

    /// The value, if there is one.
    pub(crate) fn get(&self) -> Option<T> {
        match &*lock(&self.state) {
            State::Ready(made) => Some(made.clone()),
            _ => None,
        }
    }

    /// Forgets the value if it is the one that is meant: the next thread makes another. Never waits
    /// for a thread that makes one.
    pub(crate) fn discard(&self, is_meant: impl FnOnce(&T) -> bool) {
        let mut state = lock(&self.state);
        if let State::Ready(made) = &*state
            && is_meant(made)
        {
            let old = std::mem::replace(&mut *state, State::Nothing);
            drop(state);
            drop(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn it() -> String {
        "it".into()
    }

    #[test]
    fn who_waits_for_another_thread_waits_until_its_own_deadline() {
        let made = Made::default();
        let (begin, begun) = channel();
        let (end, ended) = channel();
        let far = &Deadline::after(Duration::from_secs(60));
        std::thread::scope(|scope| {
            let made = &made;
            let first = scope.spawn(move || {
                let make = || {
                    begin.send(()).unwrap();
                    let (): () = ended.recv().unwrap();
                    Err(AgentError::NotPosted)
                };
                made.get_or_make(far, it, make)
            });
            begun.recv().unwrap();
            let soon = Deadline::after(Duration::from_millis(1));
            let waited = made.get_or_make(&soon, it, || Ok(1));
            assert!(matches!(waited, Err(AgentError::Timeout { .. })));
            made.discard(|_| true);
            end.send(()).unwrap();
            assert!(first.join().unwrap().is_err());
            // After a failure the next one tries.
            assert_eq!(made.get_or_make(far, it, || Ok(2)).unwrap(), 2);
            assert_eq!(made.get_or_make(far, it, || Ok(3)).unwrap(), 2);
            made.discard(|value| *value == 7);
            assert_eq!(made.get_or_make(far, it, || Ok(3)).unwrap(), 2);
            made.discard(|value| *value == 2);
            assert_eq!(made.get_or_make(far, it, || Ok(3)).unwrap(), 3);
        });
    }
}
