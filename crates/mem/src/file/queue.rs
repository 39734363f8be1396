//! The queue: what programs submit lists to.

use super::batch::{Batch, FileBatch, Lane};
use super::calls::{Limit, is_direct};
use super::error::{FileFailure, FileIoError};
use super::request::{FileOp, FileRequest, check};
use super::ring::{Ring, SLOTS};
use super::workers::{MOST_THREADS, Workers};
use crate::Kind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Operations that the kernel has at a time, of one queue, at most. Others wait.
pub const MOST_IN_FLIGHT: usize = SLOTS;

/// The performer of a queue's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileEngine {
    /// io_uring for files that were opened with `O_DIRECT`, where the system allows it, and threads for
    /// others. Most operations on the system's cache of a file are copies, which one ring does one after the
    /// other, and threads on several processors; those on a device wait, and a ring has more of them waiting.
    #[default]
    Auto,
    /// io_uring for all files, or nothing. Memory that only a copy engine reaches goes by threads all the same.
    Ring,
    /// Threads.
    Threads,
}

/// Moves lists of ranges between memory and files without making its callers wait. Threads start when they
/// are first needed and end with this value, which cancels what has not begun and waits for the rest. A process
/// that was forked has none of them, so it needs a queue of its own.
#[derive(Debug)]
pub struct FileQueue {
    engine: FileEngine,
    started: OnceLock<Started>,
}

#[derive(Debug)]
struct Started {
    ring: Option<Ring>,
    workers: Workers,
    /// Why there is no ring.
    why: String,
}

impl FileQueue {
    /// A queue of which nothing has been started.
    pub fn new(engine: FileEngine) -> Self {
        Self { engine, started: OnceLock::new() }
    }

    fn started(&self) -> &Started {
        self.started.get_or_init(|| {
            let ring = match self.engine {
                FileEngine::Threads => Err("threads were asked for".to_owned()),
                _ => Ring::open(),
            };
            let (ring, why) =
                ring.map_or_else(|why| (None, why), |ring| (Some(ring), String::new()));
            Started { ring, workers: Workers::new(), why }
        })
    }

    /// Names the performer of the operations, and why it is this one. It asks the system, and starts no thread.
    pub fn explain(&self) -> String {
        let Started { ring, why, .. } = self.started();
        match (ring, self.engine) {
            (Some(_), FileEngine::Ring) => format!("io_uring, {SLOTS} operations at a time"),
            (Some(_), _) => format!(
                "io_uring for files opened with O_DIRECT, {SLOTS} operations at a time, and up to \
                 {MOST_THREADS} threads for others"
            ),
            (None, FileEngine::Ring) => format!("nobody: io_uring cannot be had: {why}"),
            (None, _) => format!("up to {MOST_THREADS} threads, not io_uring: {why}"),
        }
    }

    /// Starts to move all that `requests` say, in no order. Returns at once. No request: over at once.
    ///
    /// # Errors
    /// A request has a range outside of its memory, or more bytes than a file may have. Then nothing is
    /// moved.
    pub fn submit(&self, requests: Arc<[FileRequest]>) -> Result<FileBatch, FileFailure> {
        let limit = Limit::now();
        for (index, request) in requests.iter().enumerate() {
            let FileRequest { op, memory, at, file, offset, len } = request;
            let mut checked = check(*op, memory, *at, *offset, *len).map(drop);
            if *op == FileOp::Write {
                checked = checked.and_then(|()| limit.check(file.as_fd(), *offset, *len));
            }
            checked.map_err(|error| FileFailure { request: Some(index), error })?;
        }
        let Started { ring, workers, why } = self.started();
        if ring.is_none() && self.engine == FileEngine::Ring {
            let error = FileIoError::NoRing { why: why.clone() };
            return Err(FileFailure { request: None, error });
        }
        let lanes = self.lanes(&requests, ring.is_some());
        let batch = Arc::new(Batch::new(requests, lanes));
        let mut wake = None;
        if let Some(ring) = ring {
            wake = Some(ring.waker());
            if batch.wants(Lane::Ring) {
                ring.push(&batch);
            }
        }
        if batch.wants(Lane::Workers) {
            workers.line().push(&batch);
            if let Err(error) = workers.start() {
                batch.fail(error);
            }
        }
        Ok(FileBatch::new(batch, wake))
    }

    /// The way of each request.
    fn lanes(&self, requests: &[FileRequest], has_ring: bool) -> Box<[Lane]> {
        // The system is asked once for neighbours of the same file.
        let mut last: Option<(&Arc<OwnedFd>, bool)> = None;
        let mut lanes = Vec::with_capacity(requests.len());
        for FileRequest { memory, file, .. } in requests {
            let is_known = last.is_some_and(|(before, _)| Arc::ptr_eq(before, file));
            if self.engine == FileEngine::Auto && !is_known {
                last = Some((file, is_direct(file.as_fd())));
            }
            let suits = last.is_none_or(|(_, is_direct)| is_direct);
            let is_by_ring = has_ring && suits && memory.kind() == Kind::Host;
            lanes.push(if is_by_ring { Lane::Ring } else { Lane::Workers });
        }
        lanes.into()
    }
}
