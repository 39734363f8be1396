//! Transfers through a resource that all transfers to a peer share: queue pairs, or a TCP connection.
//!
//! **The end of a transfer.** After a failure, a timeout or a cancellation nothing more of a transfer is
//! posted, and its operations under way may complete, so that other transfers go on. If they do not
//! complete in time, or if the shared resource fails, this end breaks it and asks the peer, on the
//! control connection, to end its side; only the answer makes the transfer terminal. A peer that does not
//! answer is lost.
//!
//! **Cause.** When a peer is killed, its sockets and queue pairs usually break before the control connection reports the
//! loss. The control connection is asked before the transfer ends, so the error names the lost peer if that was the cause.

use super::Flight;
use crate::AgentError;
use crate::control::{Asked, Link, Service, lost};
use crate::deadline::Deadline;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// After an error of one request, the others have this long to complete.
const GRACE: Duration = Duration::from_secs(5);

/// Bytes that a transfer has under way, beside those of its last request: few enough that even a slow
/// network completes them in `GRACE`.
pub(super) const AHEAD: u64 = 64 << 20;

/// The bytes that a transfer has under way.
#[derive(Default)]
pub(super) struct Window(u64);

impl Window {
    /// Whether more may be posted.
    pub(super) fn is_open(&self) -> bool {
        self.0 < AHEAD
    }

    pub(super) fn begun(&mut self, bytes: u64) {
        self.0 += bytes;
    }

    pub(super) fn ended(&mut self, bytes: u64) {
        self.0 -= bytes;
    }
}

/// An error, and its scope.
pub(super) struct Fault {
    pub(super) error: AgentError,
    /// The shared resource is broken for all transfers.
    pub(super) ends_all: bool,
}

/// One transfer's use of the shared resource.
pub(super) trait Wire: Send {
    /// Reaps completions, and posts what there is room for unless `stopping`. Whether nothing is under
    /// way and nothing is left to post.
    fn advance(&mut self, stopping: bool) -> Result<bool, Fault>;
    /// Breaks the shared resource, and asks the peer to end its side.
    fn break_off(&mut self);
    /// After [`Wire::break_off`]: none as long as the peer's end may be there; an error if the peer is lost.
    fn ended(&self) -> Option<Result<(), AgentError>>;
}

/// A transfer under way.
pub(super) struct Wired<W: Wire> {
    wire: W,
    /// Set once nothing more is posted: operations under way may complete until this time.
    until: Option<Instant>,
    /// The first thing that went wrong.
    fault: Option<Fault>,
    /// The shared resource is broken, and the peer was asked to end its side.
    ending: bool,
    /// Nothing is under way.
    over: bool,
}

impl<W: Wire> Wired<W> {
    pub(super) fn new(wire: W) -> Self {
        Self { wire, until: None, fault: None, ending: false, over: false }
    }

    fn break_off(&mut self) {
        self.ending = true;
        self.wire.break_off();
    }

    /// Makes progress while the resource works.
    fn advance(&mut self) {
        loop {
            match self.wire.advance(self.until.is_some()) {
                Ok(over) => {
                    self.over = over;
                    break;
                }
                Err(fault) => {
                    let ends_all = fault.ends_all;
                    self.fault.get_or_insert(fault);
                    if ends_all {
                        return self.break_off();
                    }
                    self.until.get_or_insert_with(|| Instant::now() + GRACE);
                }
            }
        }
        if !self.over && self.until.is_some_and(|until| Instant::now() >= until) {
            self.break_off();
        }
    }
}

impl<W: Wire> Flight for Wired<W> {
    fn poll(&mut self) -> Result<bool, AgentError> {
        if !self.ending {
            self.advance();
        }
        let ended = self.ending.then(|| self.wire.ended()).flatten();
        self.over |= ended.is_some();
        if !self.over {
            return Ok(false);
        }
        match (self.fault.take(), ended) {
            (Some(Fault { ends_all: true, .. }), Some(Err(lost))) => Err(lost),
            (fault, _) => fault.map_or(Ok(true), |fault| Err(fault.error)),
        }
    }

    fn cancel(&mut self, until: Instant) {
        self.until = Some(self.until.map_or(until, |first| first.min(until)));
    }
}

impl<W: Wire> Drop for Wired<W> {
    fn drop(&mut self) {
        if !self.over && !self.ending {
            // So that nothing accesses the local memory any more.
            self.break_off();
        }
    }
}

/// The forced end of a shared resource: the peer is asked once for all transfers.
pub(super) struct ForcedEnd {
    link: Arc<Link>,
    /// A peer that does not confirm the end in this time is lost.
    patience: Duration,
    asked: OnceLock<(u64, Instant)>,
    confirmed: AtomicBool,
}

impl ForcedEnd {
    /// The end of a resource that was requested on `link`.
    pub(super) fn new(link: Arc<Link>, patience: Duration) -> Self {
        Self { link, patience, asked: OnceLock::new(), confirmed: AtomicBool::new(false) }
    }

    pub(super) fn ask(&self, service: Service, name: &[u8]) {
        self.asked.get_or_init(|| (self.link.ask(service, name), Instant::now()));
    }

    /// The peer has confirmed it, or is lost; none as long as neither is known.
    pub(super) fn result(&self, peer: &dyn Asked, what: &str) -> Option<Result<(), AgentError>> {
        let Some((call, since)) = self.asked.get() else { return Some(Ok(())) };
        if self.confirmed.load(Ordering::Acquire) || self.link.answered(*call).is_some() {
            self.confirmed.store(true, Ordering::Release);
            return Some(Ok(()));
        }
        if self.link.is_lost() {
            return Some(Err(self.link.why()));
        }
        if since.elapsed() > self.patience {
            let why = format!("it does not confirm the end of {what}");
            peer.lose(lost(peer.owner(), why));
        }
        None
    }
}

/// The error of a shared resource that could not be made: the loss of the peer, if the control connection reports it
/// within [`GRACE`], otherwise `error`. The peer is asked to end its side too, since a part of it may exist.
pub(super) fn cause(
    error: AgentError,
    (link, peer): (&Link, &dyn Asked),
    (service, name): (Service, &[u8]),
    deadline: &Deadline,
) -> AgentError {
    let left = deadline.0.remaining().unwrap_or_default();
    match link.call(peer.owner(), service, name, &Deadline::after(left.min(GRACE))) {
        Err(lost @ AgentError::PeerLost { .. }) => lost,
        _ => error,
    }
}
