//! Transfers, as programs post and look at them.

use crate::backend::Plugin;
use crate::{Error, Status};
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use warpverbs_agent::{PathKind, PostOptions, State};

/// Bytes that are sent to the peer when all blocks are in place.
pub type Notification = Option<Vec<u8>>;

/// Blocks to be moved, any number of times. Dropping it cancels what is in progress.
pub struct Transfer {
    inner: warpverbs_agent::Transfer,
    /// Of posts that are given none.
    notification: Notification,
    deadline: Duration,
    descriptors: usize,
    telemetry: bool,
    /// When it was last posted.
    posted: Mutex<Option<SystemTime>>,
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

/// What all transfers of an agent have in common.
pub(crate) struct Terms {
    pub(crate) deadline: Duration,
    pub(crate) telemetry: bool,
}

impl Transfer {
    pub(crate) fn new(
        inner: warpverbs_agent::Transfer,
        descriptors: usize,
        notification: Notification,
        terms: Terms,
    ) -> Self {
        let Terms { deadline, telemetry } = terms;
        Self { inner, notification, deadline, descriptors, telemetry, posted: Mutex::default() }
    }

    /// Begins to move the blocks; they may be in place on return. `notification` goes before the one
    /// that the transfer was made with.
    ///
    /// # Errors
    /// The transfer is in progress ([`Status::RepostActive`]), or it failed at once.
    pub fn post(&self, notification: Notification) -> Result<Status, Error> {
        let mut options = PostOptions::new().deadline(self.deadline);
        if let Some(bytes) = notification.or_else(|| self.notification.clone()) {
            options = options.notify(bytes);
        }
        let posted = SystemTime::now();
        let state = self.inner.post(options)?;
        *crate::lock(&self.posted) = Some(posted);
        self.status_of(state)
    }

    /// Where it stands.
    ///
    /// # Errors
    /// It was not posted, it failed, with the first cause, or it was cancelled.
    pub fn status(&self) -> Result<Status, Error> {
        self.status_of(self.inner.state())
    }

    fn status_of(&self, state: State) -> Result<Status, Error> {
        match state {
            State::Done => Ok(Status::Success),
            State::InProgress => Ok(Status::InProgress),
            State::NotPosted => Err(warpverbs_agent::AgentError::NotPosted.into()),
            State::Cancelled => Err(warpverbs_agent::AgentError::Cancelled.into()),
            State::Failed => Err(match self.inner.error() {
                Some(error) => error.into(),
                // Posted again by another thread between the two looks.
                None => return Ok(Status::InProgress),
            }),
        }
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// As for [`Transfer::status`]; and that it is still in progress after `timeout`, which changes nothing.
    pub fn wait(&self, timeout: Duration) -> Result<Status, Error> {
        self.inner.wait(timeout)?;
        Ok(Status::Success)
    }

    /// A future of its end, whose result is that of [`Transfer::wait`].
    pub fn completion(&self) -> warpverbs_agent::Completion<'_> {
        self.inner.completion()
    }

    /// Stops it: blocks that have not begun are not moved.
    pub fn cancel(&self) {
        self.inner.cancel();
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
        let cost = self.inner.telemetry()?;
        let post_us = micros(cost.post);
        let start = crate::lock(&self.posted).unwrap_or(UNIX_EPOCH);
        Ok(Telemetry {
            start_us: micros(start.duration_since(UNIX_EPOCH).unwrap_or_default()),
            post_us,
            transfer_us: micros(cost.transfer).max(post_us),
            bytes: cost.bytes,
            descriptors: self.descriptors,
            paths: cost.paths,
        })
    }

    /// How long it may take.
    pub fn estimate(&self) -> Estimate {
        let estimate = self.inner.estimate();
        let (duration_us, margin_us) = (micros(estimate.duration), micros(estimate.margin));
        Estimate { duration_us, margin_us, measured: estimate.measured }
    }

    /// What moves the bytes.
    pub fn plugin(&self) -> Plugin {
        Plugin::Ucx
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
