//! Transfers, as programs post and look at them.

use crate::backend::Plugin;
use crate::{Error, FileTransfer, Status};
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use warpverbs_agent::{AgentError, PathKind, PostOptions, State};

/// Bytes that are sent to the peer when all blocks are in place.
pub type Notification = Option<Vec<u8>>;

/// Blocks to be moved, any number of times. Dropping it cancels what is in progress.
pub struct Transfer {
    work: Work,
    /// Of posts that are given none.
    notification: Notification,
    deadline: Duration,
    descriptors: usize,
    telemetry: bool,
    last: Mutex<Last>,
}

/// The mover of the bytes.
#[derive(Debug)]
pub(crate) enum Work {
    Memory(warpverbs_agent::Transfer),
    Files(FileTransfer),
}

/// The last post, by the clock; of memory only where the agent counts times.
#[derive(Clone, Copy)]
struct Last {
    posted: SystemTime,
    began: Instant,
    post: Duration,
    /// When its end was seen; transfers between memories know it themselves.
    over: Option<Duration>,
}

/// The cost of a transfer's last post. Times are whole microseconds, rounded up, at least 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// When it was posted, since 1970.
    pub start_us: u64,
    /// Time inside of the call that posted.
    pub post_us: u64,
    /// Time from the post until it was over; not less than `post_us`.
    pub transfer_us: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Blocks.
    pub descriptors: usize,
    /// The paths taken, in order of their first block.
    pub paths: Vec<PathKind>,
}

/// How long a transfer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Microseconds.
    pub duration_us: u64,
    /// Microseconds by which it may be off.
    pub margin_us: u64,
    /// Whether a rate of these paths was measured; otherwise it is a guess.
    pub measured: bool,
}

/// The settings that all transfers of an agent have in common.
pub(crate) struct Terms {
    pub(crate) deadline: Duration,
    pub(crate) telemetry: bool,
}

impl Transfer {
    pub(crate) fn new(
        work: Work,
        descriptors: usize,
        notification: Notification,
        terms: Terms,
    ) -> Self {
        let Terms { deadline, telemetry } = terms;
        let (posted, began) = (UNIX_EPOCH, Instant::now());
        let last = Mutex::new(Last { posted, began, post: Duration::ZERO, over: None });
        Self { work, notification, deadline, descriptors, telemetry, last }
    }

    /// Begins to move the blocks; they may be in place on return. `notification` goes before the one
    /// that the transfer was made with.
    ///
    /// # Errors
    /// The transfer is in progress ([`Status::RepostActive`]), or it failed at once.
    pub fn post(&self, notification: Notification) -> Result<Status, Error> {
        // For those who ask: looking at clocks takes a part of the time of a few bytes.
        let timed = self.telemetry || matches!(self.work, Work::Files(_));
        let times = timed.then(|| (SystemTime::now(), Instant::now()));
        let notification = notification.or_else(|| self.notification.clone());
        let status = match &self.work {
            Work::Memory(inner) => {
                let mut options = PostOptions::new().deadline(self.deadline);
                if let Some(bytes) = notification {
                    options = options.notify(bytes);
                }
                self.status_of(inner, inner.post(options)?)?
            }
            Work::Files(_) if notification.is_some() => {
                let why = "a notification of a transfer with files: nobody is there to be notified";
                return Err(Error::new(Status::NotSupported, why));
            }
            Work::Files(inner) => {
                inner.post()?;
                Status::InProgress
            }
        };
        if let Some((posted, began)) = times {
            *crate::lock(&self.last) = Last { posted, began, post: began.elapsed(), over: None };
        }
        Ok(status)
    }

    /// Whether a post, with this notification or the one that the transfer was made with, is a copy of a few KiB, which
    /// waits for nobody.
    pub fn is_brief(&self, notification: &Notification) -> bool {
        let notifies = notification.is_some() || self.notification.is_some();
        matches!(&self.work, Work::Memory(inner) if inner.is_brief() && !notifies)
    }

    /// Whether such a post may hold its thread up for longer than some milliseconds
    /// ([`warpverbs_agent::Transfer::holds_up`]).
    pub fn holds_up(&self, notification: &Notification) -> bool {
        let notifies = notification.is_some() || self.notification.is_some();
        matches!(&self.work, Work::Memory(inner) if inner.holds_up(notifies))
    }

    /// Where it stands.
    ///
    /// # Errors
    /// It was not posted, it failed, with the first cause, or it was cancelled.
    pub fn status(&self) -> Result<Status, Error> {
        match &self.work {
            Work::Memory(inner) => self.status_of(inner, inner.state()),
            Work::Files(inner) => match inner.poll() {
                None => {
                    self.keep_deadline(inner);
                    Ok(Status::InProgress)
                }
                Some(result) => {
                    let mut last = crate::lock(&self.last);
                    last.over = last.over.or_else(|| Some(last.began.elapsed()));
                    Ok(result.map(|()| Status::Success)?)
                }
            },
        }
    }

    /// Files know no deadlines.
    fn keep_deadline(&self, files: &FileTransfer) {
        if crate::lock(&self.last).began.elapsed() > self.deadline {
            files.cancel();
        }
    }

    fn status_of(&self, inner: &warpverbs_agent::Transfer, state: State) -> Result<Status, Error> {
        match state {
            State::Done => Ok(Status::Success),
            State::InProgress => Ok(Status::InProgress),
            State::NotPosted => Err(AgentError::NotPosted.into()),
            State::Cancelled => Err(AgentError::Cancelled.into()),
            // Without one it was posted again by another thread between the two looks.
            State::Failed => {
                inner.error().map_or(Ok(Status::InProgress), |error| Err(error.into()))
            }
        }
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// As for [`Transfer::status`]; and that it is still in progress after `timeout`, which changes nothing.
    pub fn wait(&self, timeout: Duration) -> Result<Status, Error> {
        match &self.work {
            Work::Memory(inner) => {
                inner.wait(timeout)?;
                Ok(Status::Success)
            }
            Work::Files(inner) => {
                let _ = inner.wait(timeout);
                match self.status()? {
                    Status::InProgress => {
                        let why = format!("transfer with files: not done after {timeout:?}");
                        Err(Error::new(Status::Backend, why))
                    }
                    over => Ok(over),
                }
            }
        }
    }

    /// Stops it: blocks that have not begun are not moved.
    pub fn cancel(&self) {
        match &self.work {
            Work::Memory(inner) => inner.cancel(),
            Work::Files(inner) => inner.cancel(),
        }
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        match &self.work {
            Work::Memory(inner) => inner.bytes(),
            Work::Files(inner) => inner.bytes(),
        }
    }

    /// The cost of the last post.
    ///
    /// # Errors
    /// The agent counts none, or the transfer is in progress or was not posted.
    pub fn telemetry(&self) -> Result<Telemetry, Error> {
        if !self.telemetry {
            let why =
                "set capture_telemetry in the agent's configuration, or NIXL_TELEMETRY_ENABLE=y";
            return Err(Error::new(Status::NoTelemetry, why));
        }
        let (post, transfer, paths) = match &self.work {
            Work::Memory(inner) => {
                let cost = inner.telemetry()?;
                (cost.post, cost.transfer, cost.paths)
            }
            Work::Files(_) => {
                self.status()?;
                let last = *crate::lock(&self.last);
                let in_progress = || Error::from(AgentError::InProgress);
                (last.post, last.over.ok_or_else(in_progress)?, Vec::new())
            }
        };
        let posted = crate::lock(&self.last).posted;
        let post_us = micros(post);
        Ok(Telemetry {
            start_us: micros(posted.duration_since(UNIX_EPOCH).unwrap_or_default()),
            post_us,
            transfer_us: micros(transfer).max(post_us),
            bytes: self.bytes(),
            descriptors: self.descriptors,
            paths,
        })
    }

    /// How long it may take.
    ///
    /// # Errors
    /// Nobody can say it of files.
    pub fn estimate(&self) -> Result<Estimate, Error> {
        let Work::Memory(inner) = &self.work else {
            return Err(Error::new(Status::NotSupported, "the time of a transfer with files"));
        };
        let estimate = inner.estimate();
        let (duration_us, margin_us) = (micros(estimate.duration), micros(estimate.margin));
        Ok(Estimate { duration_us, margin_us, measured: estimate.measured })
    }

    /// The mover of the bytes.
    pub fn plugin(&self) -> Plugin {
        match &self.work {
            Work::Memory(_) => Plugin::Ucx,
            Work::Files(_) => Plugin::Posix,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.work.fmt(f)
    }
}
