//! Transfers: posted, watched, posted again.

use crate::AgentError;
use crate::control::frame::Frame;
use crate::control::link::{Link, Receipt, ended};
use crate::inner::Inner;
use crate::lock;
use crate::options::PostOptions;
use crate::path::{Estimate, Flight, PathKind, Started};
use crate::prepared::Plan;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Which way a transfer moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the peer's memory to this agent's.
    Read,
    /// From this agent's memory to the peer's.
    Write,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not posted yet.
    NotPosted,
    /// Posted; blocks are under way.
    InProgress,
    /// All blocks are in place, and the peer has the notification, if there is one. Terminal.
    Done,
    /// It failed; [`Transfer::error`] has the first cause. Blocks may have been moved in part.
    /// Terminal.
    Failed,
    /// It was cancelled. Blocks may have been moved in part. Terminal.
    Cancelled,
}

impl State {
    /// Whether the transfer is over, until it is posted again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// What a transfer took, of its last post.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Telemetry {
    /// Time inside of the call that posted.
    pub post: Duration,
    /// Time from the post until it was over.
    pub transfer: Duration,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Descriptors after neighbours were merged.
    pub descriptors: usize,
    /// The paths taken, in order of their first block.
    pub paths: Vec<PathKind>,
}

/// Between two looks of a wait that has lasted for a while.
const NAP: Duration = Duration::from_micros(20);
/// Notifications of transfers that may wait for room at one peer.
const QUEUED: usize = 65536;

const NOT_POSTED: u8 = 0;
/// A thread is in `post`.
const POSTING: u8 = 1;
const RUNNING: u8 = 2;
const DONE: u8 = 3;
const FAILED: u8 = 4;
const CANCELLED: u8 = 5;

/// Blocks to be moved, any number of times. Any thread may post, watch or cancel it.
///
/// Dropping it cancels what is in progress. Memory stays in place until nothing can touch it.
pub struct Transfer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    agent: Weak<Inner>,
    op: Op,
    plan: Plan,
    phase: AtomicU8,
    cancel: AtomicBool,
    /// The control thread looks after it. Changed under the lock of the list of those.
    pub(crate) watched: AtomicBool,
    /// Threads in [`Transfer::wait`], which look after it as well.
    waiting: AtomicU32,
    run: Mutex<Run>,
}

/// A post.
#[derive(Default)]
struct Run {
    flights: Vec<Box<dyn Flight>>,
    notice: Notice,
    error: Option<AgentError>,
    timing: Option<Timing>,
    wakers: Vec<Waker>,
}

/// The notification of a post.
#[derive(Default)]
enum Notice {
    #[default]
    None,
    /// To be sent when all blocks are in place.
    Later(Arc<Link>, Vec<u8>),
    /// On its way.
    Sent(Arc<Link>, Arc<Receipt>),
    /// To be sent when all blocks are in place; nothing is confirmed.
    Then(Arc<Link>, Frame<'static>),
}

#[derive(Clone, Copy)]
struct Timing {
    posted: Instant,
    deadline: Duration,
    post: Duration,
    over: Option<Duration>,
}

impl Transfer {
    pub(crate) fn new(agent: &Arc<Inner>, op: Op, plan: Plan) -> Self {
        let shared = Shared {
            agent: Arc::downgrade(agent),
            op,
            plan,
            phase: AtomicU8::new(NOT_POSTED),
            cancel: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            run: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Begins to move the blocks, and may be done on return.
    ///
    /// # Errors
    /// It is in progress, or the reason why it failed at once. A call that is refused with
    /// [`AgentError::InProgress`] changes nothing.
    pub fn post(&self, options: PostOptions) -> Result<State, AgentError> {
        self.shared.post(options)
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.shared.progress();
        self.shared.state()
    }

    /// Why it failed: the first cause, until it is posted again.
    pub fn error(&self) -> Option<AgentError> {
        self.shared.run().error.clone()
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
                let what = format!("transfer with {}", self.shared.plan.peer.owner);
                return Err(AgentError::Timeout { what, after: timeout });
            }
            spins += 1;
            match spins {
                0..64 => std::hint::spin_loop(),
                64..4096 => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// What a wait gives, unless it is in progress.
    fn outcome(&self) -> Option<Result<State, AgentError>> {
        match self.state() {
            State::NotPosted => Some(Err(AgentError::NotPosted)),
            State::Done => Some(Ok(State::Done)),
            State::Cancelled => Some(Err(AgentError::Cancelled)),
            State::Failed => Some(Err(self.shared.failure())),
            State::InProgress => None,
        }
    }

    /// Its end as a future, for any runtime: the control thread of the agent wakes it. What it gives
    /// is that of [`Transfer::wait`]; it is over at once if the transfer is not in progress.
    pub fn completion(&self) -> Completion<'_> {
        Completion(self)
    }

    /// Stops it: blocks that have not begun are not moved. When its state is terminal, no byte of
    /// the local memory is touched any more; which blocks were moved is not known, and the peer is
    /// not notified. Of a transfer that is not in progress nothing changes.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// What the last post took.
    ///
    /// # Errors
    /// It is in progress or was not posted.
    pub fn telemetry(&self) -> Result<Telemetry, AgentError> {
        let state = self.state();
        let timing = self.shared.run().timing.ok_or(AgentError::NotPosted)?;
        let over = timing.over.filter(|_| state.is_terminal()).ok_or(AgentError::InProgress)?;
        let plan = &self.shared.plan;
        let mut paths: Vec<_> = plan.parts.iter().map(|part| part.route.kind).collect();
        paths.dedup();
        Ok(Telemetry {
            post: timing.post,
            transfer: over,
            bytes: plan.bytes,
            descriptors: plan.pieces(),
            paths,
        })
    }

    /// How long it may take, by what its paths have taken before.
    pub fn estimate(&self) -> Estimate {
        let parts = self.shared.plan.parts.iter();
        let each = parts.map(|part| part.route.estimate(part.bytes, part.pieces.len()));
        let none = Estimate { duration: Duration::ZERO, margin: Duration::ZERO, measured: true };
        each.fold(none, Estimate::and)
    }
}

/// The end of a transfer, to be awaited.
#[derive(Debug)]
pub struct Completion<'a>(&'a Transfer);

impl Future for Completion<'_> {
    type Output = Result<State, AgentError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let transfer = self.0;
        if let Some(over) = transfer.outcome() {
            return Poll::Ready(over);
        }
        transfer.shared.run().wakers.push(context.waker().clone());
        // It may have ended before the waker was there to be found.
        match transfer.outcome() {
            Some(over) => Poll::Ready(over),
            None => Poll::Pending,
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { op, plan, .. } = &*self.shared;
        let (bytes, peer) = (plan.bytes, &plan.peer.owner);
        write!(f, "Transfer({op:?}, {bytes} bytes, {peer}, {:?})", self.shared.state())
    }
}

impl Shared {
    fn run(&self) -> MutexGuard<'_, Run> {
        lock(&self.run)
    }

    fn state(&self) -> State {
        // Acquire, pairs with the release in `finish`: the bytes are there for whoever sees Done.
        match self.phase.load(Ordering::Acquire) {
            NOT_POSTED => State::NotPosted,
            DONE => State::Done,
            FAILED => State::Failed,
            CANCELLED => State::Cancelled,
            _ => State::InProgress,
        }
    }

    fn failure(&self) -> AgentError {
        self.run().error.clone().unwrap_or(AgentError::NotPosted)
    }

    fn post(self: &Arc<Self>, options: PostOptions) -> Result<State, AgentError> {
        let phase = self.phase.load(Ordering::Acquire);
        if matches!(phase, POSTING | RUNNING) {
            return Err(AgentError::InProgress);
        }
        let taken =
            self.phase.compare_exchange(phase, POSTING, Ordering::AcqRel, Ordering::Relaxed);
        taken.map_err(|_| AgentError::InProgress)?;
        let posted = Instant::now();
        self.cancel.store(false, Ordering::Relaxed);
        let mut run = self.run();
        run.error = None;
        run.wakers.clear();
        let started = self.start(&mut run, options, posted);
        let post = posted.elapsed();
        if let Some(timing) = &mut run.timing {
            timing.post = post;
        }
        match started {
            Ok(true) => self.finish(&mut run, Ok(()), post),
            Ok(false) => {
                self.phase.store(RUNNING, Ordering::Release);
                drop(run);
                if let Some(agent) = self.agent.upgrade() {
                    agent.control.watch(self);
                }
                return Ok(State::InProgress);
            }
            Err(error) => self.finish(&mut run, Err(error), post),
        }
        match self.state() {
            State::Failed => Err(run.error.clone().unwrap_or(AgentError::NotPosted)),
            state => Ok(state),
        }
    }

    fn start(
        &self,
        run: &mut Run,
        options: PostOptions,
        posted: Instant,
    ) -> Result<bool, AgentError> {
        let agent = self.agent.upgrade().ok_or_else(|| self.agent_ended())?;
        let deadline = options.deadline.unwrap_or(agent.config.deadline);
        run.timing = Some(Timing { posted, deadline, post: Duration::ZERO, over: None });
        self.plan.peer.check()?;
        for part in &self.plan.parts {
            part.local.check()?;
            part.remote.check()?;
        }
        if let Some(bytes) = options.notification {
            run.notice = Notice::Later(agent.connect(&self.plan.peer, deadline)?, bytes);
        }
        if let Some(frame) = options.then {
            run.notice = Notice::Then(agent.connect(&self.plan.peer, deadline)?, frame);
        }
        for part in &self.plan.parts {
            match part.route.path.start(self.op, &self.plan.peer, part, &self.cancel)? {
                Started::Done => {}
                Started::Flight(flight) => run.flights.push(flight),
            }
        }
        self.poll(run)
    }

    fn agent_ended(&self) -> AgentError {
        ended(&self.plan.parts[0].local.extent.owner)
    }

    /// Looks whether blocks have arrived. Never waits; of two threads, one looks.
    pub(crate) fn progress(&self) {
        if self.phase.load(Ordering::Acquire) != RUNNING {
            return;
        }
        let Ok(mut run) = self.run.try_lock() else { return };
        if self.phase.load(Ordering::Acquire) != RUNNING {
            return;
        }
        let polled = self.poll(&mut run);
        let Some(Timing { posted, deadline, .. }) = run.timing else { return };
        let took = posted.elapsed();
        match polled {
            Err(error) => self.finish(&mut run, Err(error), took),
            Ok(true) => self.finish(&mut run, Ok(()), took),
            Ok(false) if took > deadline => {
                let error = self.late(deadline);
                self.finish(&mut run, Err(error), took);
            }
            Ok(false) => {}
        }
    }

    fn late(&self, after: Duration) -> AgentError {
        let what = format!("transfer with {}", self.plan.peer.owner);
        AgentError::Timeout { what, after }
    }

    /// Whether all blocks are in place and the peer has the notification.
    fn poll(&self, run: &mut Run) -> Result<bool, AgentError> {
        if !run.flights.is_empty() {
            self.plan.peer.check()?;
        }
        if self.cancel.load(Ordering::Relaxed) {
            run.flights.iter_mut().for_each(|flight| flight.cancel());
        }
        let mut at = 0;
        while let Some(flight) = run.flights.get_mut(at) {
            match flight.poll()? {
                true => drop(run.flights.swap_remove(at)),
                false => at += 1,
            }
        }
        if !run.flights.is_empty() {
            return Ok(false);
        }
        if self.cancel.load(Ordering::Relaxed) && !matches!(run.notice, Notice::Sent(..)) {
            return Err(AgentError::Cancelled);
        }
        if let Notice::Later(link, bytes) = &run.notice {
            let receipt = link.notify(bytes, QUEUED)?;
            run.notice = Notice::Sent(link.clone(), receipt);
        }
        match &run.notice {
            Notice::Sent(link, receipt) => receipt.poll(link),
            Notice::Then(link, frame) => {
                link.send(frame);
                run.notice = Notice::None;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Makes it terminal.
    fn finish(&self, run: &mut Run, result: Result<(), AgentError>, took: Duration) {
        // Dropping what is under way ends it.
        run.flights.clear();
        if let Notice::Sent(_, receipt) = std::mem::take(&mut run.notice) {
            receipt.withdraw();
        }
        if let Some(timing) = &mut run.timing {
            timing.over = Some(took);
        }
        let phase = match result {
            Ok(()) => {
                if let [part] = &self.plan.parts[..] {
                    part.route.measured(&self.plan.peer.owner, part.bytes, took);
                }
                DONE
            }
            Err(AgentError::Cancelled) => CANCELLED,
            Err(error) => {
                run.error = Some(error);
                FAILED
            }
        };
        self.phase.store(phase, Ordering::Release);
        run.wakers.drain(..).for_each(Waker::wake);
    }

    /// Whether a thread that waits for it moves it on, too.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_terminal()
    }

    /// Fails it: its agent ends.
    pub(crate) fn abort(&self, why: AgentError) {
        let mut run = self.run();
        if self.phase.load(Ordering::Acquire) == RUNNING {
            let took = run.timing.map_or(Duration::ZERO, |timing| timing.posted.elapsed());
            self.finish(&mut run, Err(why), took);
        }
    }

    fn cancel(&self) {
        if !matches!(self.phase.load(Ordering::Acquire), POSTING | RUNNING) {
            return;
        }
        self.cancel.store(true, Ordering::Relaxed);
        // Whoever holds the lock looks at the flag by itself, in `post` or the next time it polls.
        if let Ok(mut run) = self.run.try_lock()
            && let Notice::Sent(_, receipt) = &run.notice
            && receipt.withdraw()
        {
            run.notice = Notice::None;
        }
        self.progress();
    }
}
