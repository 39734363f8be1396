//! Lists of requests on their way, and the handles of those who wait for them.

use super::calls::{PART, Span};
use super::error::{FileFailure, FileIoError};
use super::request::FileRequest;
use super::wake::Wake;
use crate::Kind;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The ways of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Ring,
    Workers,
}

/// A list of requests on its way.
#[derive(Debug)]
pub(super) struct Batch {
    /// The way of each request.
    lanes: Box<[Lane]>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    /// Let go, with memory and files, as soon as nothing is left to be moved.
    requests: Option<Arc<[FileRequest]>>,
    /// The next of each lane.
    next: [Cursor; 2],
    /// Parts that a lane has taken and not ended.
    in_flight: usize,
    /// The first cause.
    failure: Option<FileFailure>,
    is_stopped: bool,
    is_over: bool,
}

/// A place in a list of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    request: usize,
    moved: u64,
}

impl Cursor {
    /// Goes on to the next request of the lane `own` that has bytes left.
    fn settle(&mut self, requests: &[FileRequest], lanes: &[Lane], own: Lane) {
        while let (Some(request), Some(lane)) =
            (requests.get(self.request), lanes.get(self.request))
            && (*lane != own || self.moved >= request.len)
        {
            *self = Self { request: self.request + 1, moved: 0 };
        }
    }
}

/// Part of a request, which a lane has taken. If it is dropped before it has ended, it has failed.
pub(super) struct Part {
    batch: Arc<Batch>,
    /// None once it has ended.
    requests: Option<Arc<[FileRequest]>>,
    index: usize,
    /// First byte of the request that is in this part.
    from: u64,
    len: u64,
}

impl Batch {
    /// `requests` have been checked, and each has its lane. The ring has host memory alone.
    pub(super) fn new(requests: Arc<[FileRequest]>, lanes: Box<[Lane]>) -> Self {
        let state = State {
            requests: Some(requests),
            next: [Cursor::default(); 2],
            in_flight: 0,
            failure: None,
            is_stopped: false,
            is_over: false,
        };
        let batch = Self { lanes, state: Mutex::new(state), ended: Condvar::new() };
        let mut state = batch.state();
        for lane in [Lane::Ring, Lane::Workers] {
            batch.settle(&mut state, lane);
        }
        batch.end(state);
        batch
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, state: &mut State, lane: Lane) {
        let State { requests: Some(requests), next, .. } = state else { return };
        next[lane as usize].settle(requests, &self.lanes, lane);
    }

    /// Whether `lane` has something to take.
    pub(super) fn wants(&self, lane: Lane) -> bool {
        self.state().has_left(lane)
    }

    /// The next part for `lane`, and whether there are more.
    pub(super) fn take(self: &Arc<Self>, lane: Lane) -> Option<(Part, bool)> {
        let mut state = self.state();
        if !state.has_left(lane) || state.failure.is_some() || state.is_stopped {
            return None;
        }
        let requests = state.requests.clone()?;
        let Cursor { request: index, moved: from } = state.next[lane as usize];
        let request = &requests[index];
        let len = (request.len - from).min(PART);
        state.next[lane as usize].moved += len;
        self.settle(&mut state, lane);
        state.in_flight += 1;
        let has_more = state.has_left(lane);
        Some((Part { batch: self.clone(), requests: Some(requests), index, from, len }, has_more))
    }

    /// No further part is taken.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        if state.has_any_left() {
            state.failure.get_or_insert(FileFailure { request: None, error: FileIoError::Stopped });
        }
        self.end(state);
    }

    pub(super) fn is_stopped(&self) -> bool {
        let state = self.state();
        state.is_stopped || state.failure.is_some()
    }

    /// Nothing more of it will be moved: the lane is broken.
    pub(super) fn fail(&self, error: FileIoError) {
        let mut state = self.state();
        if state.requests.is_some() {
            state.failure.get_or_insert(FileFailure { request: None, error });
        }
        self.end(state);
    }

    /// Ends it, if nothing is left: lets go of memory and files, and then says so.
    fn end(&self, mut state: MutexGuard<'_, State>) {
        let is_cut = state.failure.is_some() || state.is_stopped;
        if state.in_flight > 0 || (state.has_any_left() && !is_cut) {
            return;
        }
        let Some(requests) = state.requests.take() else { return };
        drop(state);
        // Not under the lock: memory is freed. It says that it is over even if that panics.
        let _announced = Announce(self);
        drop(requests);
    }
}

/// Says that a batch is over when it is dropped.
struct Announce<'a>(&'a Batch);

impl Drop for Announce<'_> {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.ended.notify_all();
    }
}

impl State {
    fn has_any_left(&self) -> bool {
        [Lane::Ring, Lane::Workers].into_iter().any(|lane| self.has_left(lane))
    }

    fn has_left(&self, lane: Lane) -> bool {
        let count = self.requests.as_ref().map_or(0, |requests| requests.len());
        self.next[lane as usize].request < count
    }
}

impl Part {
    /// The request that it is a part of, as long as it has not ended.
    pub(super) fn request(&self) -> Option<&FileRequest> {
        self.requests.as_ref()?.get(self.index)
    }

    /// The file, and the host memory that is to be handed to the kernel: none, if it is not the CPU's.
    pub(super) fn span(&self) -> Option<(BorrowedFd<'_>, Span)> {
        let request = self.request().filter(|request| request.memory.kind() == Kind::Host)?;
        let addr = request.memory.range(request.at + self.from, self.len as usize).ok()?;
        let offset = request.offset + self.from;
        let span = Span { op: request.op, addr, offset, len: self.len, moved: 0 };
        Some((request.file.as_fd(), span))
    }

    /// Where it begins in memory and in the file, and its length.
    pub(super) fn place(&self) -> (u64, u64, u64) {
        let (at, offset) = self.request().map_or((0, 0), |request| (request.at, request.offset));
        (at + self.from, offset + self.from, self.len)
    }

    /// Whether it is not wanted any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.batch.is_stopped()
    }

    /// All its bytes were moved, or something went wrong; nothing touches them any more. Memory may be freed
    /// by this: a panic of its owner is not to end a thread that others wait for.
    pub(super) fn end(mut self, result: Result<(), FileIoError>) {
        let _ = catch_unwind(AssertUnwindSafe(move || self.over(result)));
    }

    fn over(&mut self, result: Result<(), FileIoError>) {
        let Some(requests) = self.requests.take() else { return };
        let failure = result.err().map(|error| {
            let FileRequest { offset, len, .. } = requests[self.index];
            let request = Some(self.index).filter(|_| error != FileIoError::Stopped);
            FileFailure { request, error: error.of_all(offset, len) }
        });
        // Memory and files are let go before the batch says that it is over.
        let _ended = Ended { batch: &self.batch, failure };
        drop(requests);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.over(Err(FileIoError::Stopped));
    }
}

/// Takes a part off its batch when it is dropped.
struct Ended<'a> {
    batch: &'a Batch,
    failure: Option<FileFailure>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.batch.state();
        state.in_flight -= 1;
        if state.failure.is_none() {
            state.failure = self.failure.take();
        }
        self.batch.end(state);
    }
}

/// A list of requests on its way. Dropping it cancels what has not begun and waits for the rest, so that
/// nothing touches the memory afterwards. How long that takes is the kernel's: an operation on a file that
/// has begun is not broken off, and one on a file system that hangs hangs.
pub struct FileBatch {
    batch: Arc<Batch>,
    /// Tells the ring that a batch was cancelled.
    wake: Option<Arc<Wake>>,
}

impl FileBatch {
    pub(super) fn new(batch: Arc<Batch>, wake: Option<Arc<Wake>>) -> Self {
        Self { batch, wake }
    }

    /// The result, once all is over: nothing touches memory or files any more. Never blocks.
    pub fn poll(&self) -> Option<Result<(), FileFailure>> {
        let state = self.batch.state();
        state.is_over.then(|| state.failure.clone().map_or(Ok(()), Err))
    }

    /// Begins nothing more. It is over when [`poll`](Self::poll) says so, as what has begun goes on; then
    /// [`FileIoError::Stopped`] is its result, unless all was moved or something had gone wrong before.
    pub fn cancel(&self) {
        self.batch.stop();
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }

    /// Waits for the result, at most that long.
    pub fn wait(&self, most: Duration) -> Option<Result<(), FileFailure>> {
        let (asked, mut state) = (Instant::now(), self.batch.state());
        while !state.is_over {
            let left = most.checked_sub(asked.elapsed()).filter(|left| !left.is_zero())?;
            let woken = self.batch.ended.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.failure.clone().map_or(Ok(()), Err))
    }
}

impl fmt::Debug for FileBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBatch").field("result", &self.poll()).finish_non_exhaustive()
    }
}

impl Drop for FileBatch {
    fn drop(&mut self) {
        if self.poll().is_none() {
            self.cancel();
        }
        let mut state = self.batch.state();
        while !state.is_over {
            state = self.batch.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
