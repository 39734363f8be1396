//! Threads that move parts by blocking calls: all of them where there is no ring, those of files in the
//! system's cache, and those of memory that only a copy engine reaches.

use super::batch::{Lane, Part};
use super::calls::{PART, perform};
use super::error::FileIoError;
use super::line::Line;
use super::request::{FileOp, FileRequest};
use crate::{BouncePool, BounceShare, Kind, MemError, copy};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads at most. They wait for a device most of the time, so it is not the number of processors.
pub(super) const MOST_THREADS: usize = 16;

/// The threads. They start when work waits and nobody is idle, and end with this value.
#[derive(Debug)]
pub(super) struct Workers(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    line: Line,
    threads: Mutex<Vec<JoinHandle<()>>>,
    bounce: BouncePool,
}

impl Workers {
    pub(super) fn new() -> Self {
        let bounce = BouncePool::new(PART as usize, 0);
        Self(Arc::new(Pool { line: Line::new(Lane::Workers), threads: Mutex::default(), bounce }))
    }

    pub(super) fn line(&self) -> &Line {
        &self.0.line
    }

    /// Starts a thread, if one is needed and may be.
    ///
    /// # Errors
    /// The system's, if there is no thread at all.
    pub(super) fn start(&self) -> Result<(), FileIoError> {
        self.0.start()
    }
}

impl Pool {
    fn start(self: &Arc<Self>) -> Result<(), FileIoError> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() >= MOST_THREADS || !self.line.is_behind() {
            return Ok(());
        }
        let (pool, name) = (self.clone(), "warpverbs-file".to_owned());
        match Builder::new().name(name).spawn(move || pool.run()) {
            Ok(thread) => threads.push(thread),
            // The others go on.
            Err(_) if !threads.is_empty() => {}
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
                return Err(FileIoError::Start { what: "a thread", errno });
            }
        }
        Ok(())
    }

    fn run(self: Arc<Self>) {
        let share = self.bounce.share();
        while let Some(part) = self.line.wait() {
            // Another for what is left. There is this one, so it cannot fail.
            let _ = self.start();
            let result = moved(&part, &share);
            part.end(result);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.line.close(FileIoError::Stopped);
        loop {
            let mut threads = self.0.threads.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(thread) = threads.pop() else { return };
            drop(threads);
            // The memory of a part may own the queue: then it is this thread that ends it.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Moves all of a part.
fn moved(part: &Part, share: &BounceShare) -> Result<(), FileIoError> {
    let Some(request) = part.request() else { return Ok(()) };
    let (at, offset, len) = part.place();
    let go_on = || !part.is_stopped();
    if request.memory.kind() != Kind::Host {
        return bounced(request, (at, offset, len), share, go_on);
    }
    perform(request.op, request.file.as_fd(), offset, (&request.memory, at), len, go_on)
}

/// The same by way of host memory that the copy engine knows.
fn bounced(
    request: &FileRequest,
    (at, offset, len): (u64, u64, u64),
    share: &BounceShare,
    go_on: impl Fn() -> bool,
) -> Result<(), FileIoError> {
    let FileRequest { op, memory, file, .. } = request;
    let (kind, size) = (memory.kind(), len as usize);
    let none = MemError::NoCopier { from: kind, to: Kind::Host };
    let between = share.take(&*memory.engine()?, kind)?.ok_or(none)?;
    match op {
        FileOp::Read => {
            perform(*op, file.as_fd(), offset, (&between, 0), len, go_on)?;
            Ok(copy(memory, at, &between, 0, size)?.wait()?)
        }
        FileOp::Write => {
            copy(&between, 0, memory, at, size)?.wait()?;
            perform(*op, file.as_fd(), offset, (&between, 0), len, go_on)
        }
    }
}
