//! Threads that run beside the calls of a world.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A thread that is told to end, and waited for, when this is dropped.
#[derive(Debug)]
pub(super) struct Background {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Tells a thread when to end.
pub(super) struct Stop(Receiver<()>);

impl Background {
    pub(super) fn start(
        name: &str,
        run: impl FnOnce(&Stop) + Send + 'static,
    ) -> io::Result<Background> {
        let (stop, stopped) = channel();
        let thread = Builder::new().name(name.into()).spawn(move || run(&Stop(stopped)))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Stop {
    /// Pauses, unless the thread has to end. Whether it has.
    pub(super) fn comes_within(&self, pause: Duration) -> bool {
        self.0.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
