//! Transfers: posted, watched, posted again.

use crate::AgentError;
use crate::control::{Control, Frame, Watched};
use crate::names::{State, Telemetry};
use crate::route::Estimate;
use crate::run::{PostOptions, Shared};
use crate::task::Plan;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Between two looks of a wait that has lasted for a while.
const NAP: Duration = Duration::from_micros(20);

/// Blocks to be moved, any number of times. Any thread may post, watch or cancel it.
///
/// Dropping it cancels what is in progress. Memory stays in place until nothing can touch it.
pub struct Transfer {
    shared: Arc<Shared>,
}

impl Transfer {
    pub(crate) fn new(control: &Arc<Control>, deadline: Duration, plan: Plan) -> Self {
        Self { shared: Arc::new(Shared::new(control, deadline, plan)) }
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Begins to move the blocks. The transfer may already be done on return.
    ///
    /// # Errors
    /// The transfer is in progress, or it failed at once, with the cause. A call that is refused with
    /// [`AgentError::InProgress`] changes nothing.
    pub fn post(&self, options: PostOptions) -> Result<State, AgentError> {
        self.shared.post(options, None)
    }

    /// Whether a post without a notification is a copy of a few KiB by the CPU, which waits for nobody: less than a thread's
    /// change would take.
    pub fn is_brief(&self) -> bool {
        self.shared.plan.is_brief
    }

    /// Whether a post may hold its thread up for longer than some milliseconds: a connection has to be made first, or the
    /// CPU has much to copy. A program that must not wait posts from another thread then.
    pub fn holds_up(&self, with_notification: bool) -> bool {
        let plan = &self.shared.plan;
        plan.holds_up() || with_notification && !plan.peer.is_connected()
    }

    /// Begins to move the blocks within the agent's deadline; the peer gets `frame` when they are in place.
    pub(crate) fn post_then(&self, frame: Frame<'static>) -> Result<State, AgentError> {
        self.shared.post(PostOptions::new(), Some(frame))
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.shared.plan.bytes
    }

    /// Bytes of the last post that are known to be in place: those whose completion its path has reported, and all of
    /// them once they are. It does not fall until the next post begins, and stays after a failure. Which blocks they
    /// are is not known. A kernel that copies reports its end alone; the steps of the others are at most 8 MiB.
    pub fn moved(&self) -> u64 {
        self.shared.progress();
        self.shared.plan.moved()
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.shared.progress();
        self.shared.state()
    }

    /// Why it failed: the first cause, until it is posted again.
    pub fn error(&self) -> Option<AgentError> {
        self.shared.error()
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// The cause of its failure; that it was cancelled or never posted; or that it is still in
    /// progress after `timeout`, which changes nothing.
    pub fn wait(&self, timeout: Duration) -> Result<State, AgentError> {
        if let Some(over) = self.outcome() {
            return over;
        }
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let over = self.wait_for_outcome(timeout);
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        over
    }

    fn wait_for_outcome(&self, timeout: Duration) -> Result<State, AgentError> {
        let start = Instant::now();
        let mut spins = 0;
        loop {
            if let Some(over) = self.outcome() {
                return over;
            }
            if start.elapsed() > timeout {
                let plan = &self.shared.plan;
                let what = format!("transfer with {}, {}", plan.peer.owner(), plan.progress());
                return Err(AgentError::Timeout { what, after: timeout });
            }
            spins += 1;
            match spins {
                0..64 => std::hint::spin_loop(),
                64..4096 => warpverbs_mem::pause(),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// The result of a wait, unless it is in progress.
    fn outcome(&self) -> Option<Result<State, AgentError>> {
        match self.state() {
            State::NotPosted => Some(Err(AgentError::NotPosted)),
            State::Done => Some(Ok(State::Done)),
            State::Cancelled => Some(Err(AgentError::Cancelled)),
            State::Failed => Some(Err(self.shared.failure())),
            State::InProgress => None,
        }
    }

    /// A future of its end, for any runtime: the control thread of the agent wakes it. Its result is that
    /// of [`Transfer::wait`]; it is ready at once if the transfer is not in progress. A dropped future is
    /// not woken.
    pub fn completion(&self) -> Completion<'_> {
        Completion { transfer: self, number: self.shared.future(), waits: false }
    }

    /// Stops it: blocks that have not begun are not moved. When its state is terminal, no byte of it
    /// is read or lands any more, at either end; which blocks were moved is not known, and the peer is
    /// not notified. Of a transfer that is not in progress nothing changes.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// The cost of the last post.
    ///
    /// # Errors
    /// It is in progress or was not posted.
    pub fn telemetry(&self) -> Result<Telemetry, AgentError> {
        match self.state() {
            State::NotPosted => return Err(AgentError::NotPosted),
            State::InProgress => return Err(AgentError::InProgress),
            _ => {}
        }
        let timing = self.shared.timing().ok_or(AgentError::InProgress)?;
        let plan = &self.shared.plan;
        let mut paths: Vec<_> = plan.parts.iter().map(|part| part.route.kind()).collect();
        paths.dedup();
        Ok(Telemetry {
            post: timing.post,
            transfer: timing.over,
            bytes: plan.bytes,
            descriptors: plan.pieces(),
            paths,
        })
    }

    /// How long it may take, from the measured rates of its paths.
    pub fn estimate(&self) -> Estimate {
        let parts = self.shared.plan.parts.iter();
        let each = parts.map(|part| part.route.estimate(part.job.bytes, part.job.pieces.len()));
        let none = Estimate { duration: Duration::ZERO, margin: Duration::ZERO, measured: true };
        each.fold(none, Estimate::and)
    }
}

/// The end of a transfer, to be awaited.
#[derive(Debug)]
pub struct Completion<'a> {
    transfer: &'a Transfer,
    number: u64,
    /// The transfer has its waker.
    waits: bool,
}

impl Future for Completion<'_> {
    type Output = Result<State, AgentError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let transfer = self.transfer;
        if let Some(over) = transfer.outcome() {
            return Poll::Ready(over);
        }
        self.waits = true;
        transfer.shared.wake_at_end(self.number, context.waker());
        // It may have ended before the waker was there to be found.
        match transfer.outcome() {
            Some(over) => Poll::Ready(over),
            None => Poll::Pending,
        }
    }
}

impl Drop for Completion<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.transfer.shared.forget_waker(self.number);
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.shared.cancel();
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { op, bytes, peer, .. } = &self.shared.plan;
        let peer = peer.owner();
        write!(f, "Transfer({op:?}, {bytes} bytes, {peer}, {:?})", self.shared.state())
    }
}
