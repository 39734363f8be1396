//! A post of a transfer: how it begins, goes on and ends.
//!
//! It ends well, or by a first cause: an error, a cancellation, its deadline. After a first cause nothing
//! more begins, and what is under way is waited for, since a terminal state means that no byte lands any
//! more. After a while it is ended by force.
//!
//! Locks: `run` before `outcome`. Nobody holds either while a waker runs.

use crate::control::{Control, Frame, Link, Receipt, Watched, ended};
use crate::deadline::Deadline;
use crate::names::{PathKind, State};
use crate::path::{Flight, Limit, Started};
use crate::phase::{End, Phase};
use crate::tally::Tally;
use crate::task::{Part, Plan};
use crate::wakers::Wakers;
use crate::{AgentConfig, AgentError, lock, try_lock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Pieces under way when a transfer fails, times out or is cancelled have this long to complete.
const GRACE: Duration = Duration::from_secs(5);
/// Notifications of transfers that may wait for room at one peer.
const QUEUED: usize = 65536;

/// The options of a post.
#[derive(Clone, Debug, Default)]
pub struct PostOptions {
    pub(crate) deadline: Option<Duration>,
    pub(crate) notification: Option<Vec<u8>>,
}

impl PostOptions {
    /// The blocks alone, within the agent's deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// The transfer fails unless it is done within this time. One of more than a year is a year.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline.min(AgentConfig::LONGEST)), ..self }
    }

    /// The peer gets this notification, of at most
    /// [`AgentConfig::MAX_NOTIFICATION`](crate::AgentConfig::MAX_NOTIFICATION) bytes, when all
    /// blocks are in place. The transfer is done when the peer has it.
    #[must_use]
    pub fn notify(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { notification: Some(bytes.into()), ..self }
    }
}

/// The state of a transfer.
pub(crate) struct Shared {
    control: Weak<Control>,
    tally: Arc<Tally>,
    /// Of a post that is given none.
    deadline: Duration,
    pub(crate) plan: Plan,
    phase: Phase,
    /// The control thread looks after it. Changed under the lock of the list of those.
    watched: AtomicBool,
    /// Futures that were made of it.
    futures: AtomicU64,
    /// Threads in `Transfer::wait`, which look after it as well.
    pub(crate) waiting: AtomicU32,
    /// Held during copies by the CPU; state that others query during a post is in `outcome`.
    run: Mutex<Run>,
    outcome: Mutex<Outcome>,
}

/// A post.
#[derive(Default)]
struct Run {
    flights: Vec<Box<dyn Flight>>,
    notice: Notice,
    posted: Option<Instant>,
    /// Time inside of the call.
    post: Duration,
    deadline: Duration,
    /// Why nothing more begins, while blocks are under way: the first cause.
    ending: Option<AgentError>,
}

/// The outcome of the last post that has ended, and who waits for the end of the one in progress.
#[derive(Default)]
struct Outcome {
    error: Option<AgentError>,
    timing: Option<Timing>,
    wakers: Wakers,
}

/// The notification of a post.
#[derive(Default)]
enum Notice {
    #[default]
    None,
    /// To be sent when all blocks are in place.
    Later(Arc<Link>, Vec<u8>),
    /// To be put into this agent's own inbox when all blocks are in place.
    Own(Vec<u8>),
    /// On its way.
    Sent(Arc<Link>, Arc<Receipt>),
    /// To be sent when all blocks are in place, without confirmation.
    Then(Arc<Link>, Frame<'static>),
}

impl Notice {
    /// Has it not be sent; whether it has not been.
    fn withdraw(&mut self) -> bool {
        match self {
            Self::Sent(_, receipt) if !receipt.withdraw() => false,
            _ => {
                *self = Self::None;
                true
            }
        }
    }
}

/// The time that a post took.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) post: Duration,
    pub(crate) over: Duration,
}

impl Shared {
    pub(crate) fn new(control: &Arc<Control>, deadline: Duration, plan: Plan) -> Self {
        Self {
            control: Arc::downgrade(control),
            tally: control.tally.clone(),
            deadline,
            plan,
            phase: Phase::default(),
            watched: AtomicBool::new(false),
            futures: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            run: Mutex::default(),
            outcome: Mutex::default(),
        }
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        lock(&self.run)
    }

    pub(crate) fn state(&self) -> State {
        self.phase.state()
    }

    pub(crate) fn error(&self) -> Option<AgentError> {
        let outcome = lock(&self.outcome);
        outcome.error.clone().filter(|_| self.state() == State::Failed)
    }

    pub(crate) fn timing(&self) -> Option<Timing> {
        lock(&self.outcome).timing
    }

    pub(crate) fn failure(&self) -> AgentError {
        self.error().unwrap_or(AgentError::NotPosted)
    }

    /// The number of a new future.
    pub(crate) fn future(&self) -> u64 {
        self.futures.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers `waker`, in place of this future's earlier one, unless the transfer is over.
    pub(crate) fn wake_at_end(&self, future: u64, waker: &Waker) {
        // Wakers are code of the program: they are cloned and dropped without the lock.
        let waker = waker.clone();
        let mut outcome = lock(&self.outcome);
        // Under the lock, so that the end finds it.
        let unused = match self.state() {
            State::InProgress => outcome.wakers.insert(future, waker),
            _ => Some(waker),
        };
        drop(outcome);
        drop(unused);
    }

    /// Removes this future's waker.
    pub(crate) fn forget_waker(&self, future: u64) {
        let waker = lock(&self.outcome).wakers.remove(future);
        drop(waker);
    }

    /// `then` is sent to the peer when all blocks are in place, which is not waited for.
    pub(crate) fn post(
        self: &Arc<Self>,
        options: PostOptions,
        then: Option<Frame<'static>>,
    ) -> Result<State, AgentError> {
        if !self.phase.begin() {
            return Err(AgentError::InProgress);
        }
        let posted = Instant::now();
        let mut run = self.run();
        run.deadline = options.deadline.unwrap_or(self.deadline);
        run.posted = Some(posted);
        run.ending = None;
        self.plan.parts.iter().for_each(|part| part.job.set_moved(0));
        if let Err(why) = self.begin(&mut run, (options.notification, then), posted) {
            run.end(why);
        }
        let over = self.advance(&mut run);
        let post = posted.elapsed();
        run.post = post;
        // While the lock is held: nobody else ends it meanwhile.
        let over = over.or_else(|| {
            self.tally.begun();
            self.phase.run();
            let goes_on = self.control.upgrade().is_some_and(|control| control.watch(self));
            (!goes_on).then(|| Err(self.ended()))
        });
        let Some(result) = over else { return Ok(State::InProgress) };
        let state = match &result {
            Err(AgentError::Cancelled) => Ok(State::Cancelled),
            result => result.clone().map(|()| State::Done),
        };
        self.finish(run, result, post);
        state
    }

    /// This agent has ended.
    fn ended(&self) -> AgentError {
        ended(&self.plan.parts[0].job.local.extent.owner)
    }

    fn begin(
        self: &Arc<Self>,
        run: &mut Run,
        (notification, then): (Option<Vec<u8>>, Option<Frame<'static>>),
        posted: Instant,
    ) -> Result<(), AgentError> {
        let Plan { peer, parts, .. } = &self.plan;
        let control = self.control.upgrade().ok_or_else(|| self.ended())?;
        control.check()?;
        // Before the first byte leaves: an agent that ends has the peer confirm the end of what it watches.
        let is_wired = |part: &Part| matches!(part.route.kind(), PathKind::Network | PathKind::Tcp);
        if parts.iter().any(is_wired) && !control.watch(self) {
            return Err(self.ended());
        }
        peer.check()?;
        for Part { job, .. } in parts {
            job.local.check()?;
            job.remote.check()?;
        }
        let (phase, deadline) = (&self.phase, Deadline::since(posted, run.deadline));
        if let Some(bytes) = notification {
            run.notice = match *peer.owner() == control.own.owner {
                true => Notice::Own(bytes),
                false => Notice::Later(peer.clone().link(&deadline)?, bytes),
            };
        }
        if let Some(frame) = then {
            run.notice = Notice::Then(peer.clone().link(&deadline)?, frame);
        }
        for Part { job, route } in parts {
            // The peer keeps its memory in place until this process has agreed that it is deregistered,
            // and an agent that ends waits for what is copied: neither happens while there is a lease.
            let _lease = job.remote.lease(&**peer)?;
            let (control, remote) = (&*control, &*job.remote);
            let limit = Limit { phase, control, deadline, peer: &**peer, remote };
            match route.path.start(peer, job, &limit)? {
                Started::Done => job.set_moved(job.bytes),
                Started::Flight(flight) => run.flights.push(flight),
            }
        }
        Ok(())
    }

    /// Makes progress; returns the result once the post has ended.
    fn advance(&self, run: &mut Run) -> Option<Result<(), AgentError>> {
        if !run.flights.is_empty()
            && let Err(why) = self.plan.peer.check()
        {
            // No answer can come any more, so it is ended by force.
            run.end_until(why, Instant::now());
        }
        if self.phase.is_cancelled() && run.notice.withdraw() {
            run.end(AgentError::Cancelled);
        }
        let flew = !run.flights.is_empty();
        let mut at = 0;
        while let Some(flight) = run.flights.get_mut(at) {
            match flight.poll() {
                Ok(true) => drop(run.flights.swap_remove(at)),
                Ok(false) => at += 1,
                Err(error) => {
                    drop(run.flights.swap_remove(at));
                    run.end(error);
                }
            }
        }
        if !run.flights.is_empty() {
            return None;
        }
        if let Some(why) = run.ending.take() {
            return Some(Err(self.plan.told(why)));
        }
        if flew {
            self.plan.parts.iter().for_each(|part| part.job.set_moved(part.job.bytes));
        }
        self.give_notice(run).map_or_else(|error| Some(Err(error)), |done| done.then_some(Ok(())))
    }

    /// Whether the peer has the notification. All blocks are in place.
    fn give_notice(&self, run: &mut Run) -> Result<bool, AgentError> {
        if let Notice::Later(link, bytes) = &run.notice {
            let receipt = link.notify(bytes, QUEUED)?;
            run.notice = Notice::Sent(link.clone(), receipt);
        }
        match &mut run.notice {
            Notice::Own(bytes) => {
                let control = self.control.upgrade().ok_or_else(|| self.ended())?;
                control.notify_itself(std::mem::take(bytes))?;
                run.notice = Notice::None;
                Ok(true)
            }
            Notice::Sent(link, receipt) => receipt.poll(link),
            Notice::Then(link, frame) => {
                link.send(frame);
                run.notice = Notice::None;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Makes it terminal, and wakes the waiting tasks without a lock.
    fn finish(&self, mut run: MutexGuard<'_, Run>, result: Result<(), AgentError>, took: Duration) {
        // Dropping what is under way ends it.
        run.flights.clear();
        std::mem::take(&mut run.notice).withdraw();
        if result.is_ok()
            && let [part] = &self.plan.parts[..]
        {
            part.route.measured(self.plan.peer.owner(), part.job.bytes, took);
        }
        let Plan { op, path, bytes, .. } = self.plan;
        if self.phase.is_running() {
            self.tally.ended();
        }
        match &result {
            Ok(()) => self.tally.done(op, path, bytes, took),
            Err(why) => self.tally.failed(op, path, why),
        }
        let mut outcome = lock(&self.outcome);
        outcome.timing = Some(Timing { post: run.post, over: took });
        let end = match result {
            Ok(()) => End::Done,
            Err(AgentError::Cancelled) => End::Cancelled,
            Err(error) => {
                outcome.error = Some(error);
                End::Failed
            }
        };
        let wakers = std::mem::take(&mut outcome.wakers);
        self.phase.end(end);
        drop(outcome);
        drop(run);
        wakers.wake();
    }

    pub(crate) fn cancel(&self) {
        // A holder of the lock sees it by itself, in `post` or the next time it looks.
        if self.phase.cancel() {
            self.progress();
        }
    }
}

impl Watched for Shared {
    /// Looks whether blocks have arrived. Never waits; of two threads, one looks.
    fn progress(&self) {
        if !self.phase.is_running() {
            return;
        }
        let Some(mut run) = try_lock(&self.run).filter(|_| self.phase.is_running()) else { return };
        let over = self.advance(&mut run);
        let took = run.posted.map_or(Duration::ZERO, |posted| posted.elapsed());
        if let Some(result) = over {
            return self.finish(run, result, took);
        }
        if took > run.deadline && run.ending.is_none() {
            let (what, after) = (format!("transfer with {}", self.plan.peer.owner()), run.deadline);
            run.end(AgentError::Timeout { what, after });
            if let Some(result) = self.advance(&mut run) {
                self.finish(run, result, took);
            }
        }
    }

    fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    fn is_over(&self) -> bool {
        self.state().is_terminal()
    }

    fn end(&self, why: AgentError) {
        if let Some(mut run) = try_lock(&self.run).filter(|_| self.phase.is_running()) {
            run.end_until(why, Instant::now());
        }
    }

    fn abort(&self, why: AgentError) {
        // Others hold the lock for a look. A thread in `post` finds that nothing is watched any more.
        while self.phase.is_running() {
            let Some(run) = try_lock(&self.run) else {
                std::thread::yield_now();
                continue;
            };
            if self.phase.is_running() {
                let took = run.posted.map_or(Duration::ZERO, |posted| posted.elapsed());
                return self.finish(run, Err(why), took);
            }
        }
    }

    fn watched(&self) -> &AtomicBool {
        &self.watched
    }
}

impl Run {
    /// Begins nothing more; the first cause counts.
    fn end(&mut self, why: AgentError) {
        self.end_until(why, Instant::now() + GRACE);
    }

    fn end_until(&mut self, why: AgentError, until: Instant) {
        self.ending.get_or_insert(why);
        self.flights.iter_mut().for_each(|flight| flight.cancel(until));
    }
}

#[cfg(test)]
mod tests;
