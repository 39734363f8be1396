//! Paths from memory to memory behind one trait. A path sees the job, a peer that it can ask, and the
//! values that it was made with, and no other path.

pub(crate) mod answering;
mod bounce;
mod copying;
mod direct;
pub(crate) mod network;
mod process;
pub(crate) mod tcp;
mod wired;

pub(crate) use bounce::Bounces;
pub(crate) use copying::Copying;
pub(crate) use direct::{mapped, same_process};
pub(crate) use process::process_copy;

use crate::AgentError;
use crate::control::{Asked, Control};
use crate::deadline::Deadline;
use crate::memory::{Lists, LocalMemory};
use crate::names::{Op, Owner, PathKind};
use crate::phase::Phase;
use crate::plan::Piece;
use crate::remote::PeerMemory;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The part of a transfer that is between one local memory and one of the peer.
pub(crate) struct Job {
    pub(crate) op: Op,
    /// Which path it is given to.
    pub(crate) kind: PathKind,
    pub(crate) local: Arc<LocalMemory>,
    pub(crate) remote: Arc<PeerMemory>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) bytes: u64,
    /// Bytes that are known to be in place. Written by the holder of the lock of the post alone.
    pub(crate) moved: AtomicU64,
    /// Where kernels copy: the pieces in memory that they read, from the first post on; several lists
    /// if each is copied by a launch of its own. They end with either memory.
    pub(crate) lists: Arc<Lists>,
}

impl Job {
    /// Bytes that the last post is known to have moved.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// How many bytes are in place now.
    pub(crate) fn set_moved(&self, bytes: u64) {
        self.moved.store(bytes, Ordering::Relaxed);
    }

    /// Further bytes are in place.
    fn advance(&self, bytes: u64) {
        self.set_moved(self.moved() + bytes);
    }

    /// Its path has failed.
    pub(crate) fn failed(&self, cause: &dyn Display) -> AgentError {
        failed(self.kind, &self.remote.extent.owner, cause)
    }
}

fn failed(path: PathKind, peer: &Owner, cause: &dyn Display) -> AgentError {
    AgentError::Path { path, peer: peer.to_string(), cause: cause.to_string() }
}

/// How far a path has come with the pieces of a job.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cursor {
    piece: usize,
    done: u64,
}

impl Cursor {
    /// The next bytes, of one piece and at most `most`.
    #[inline]
    fn next(&self, pieces: &[Piece], most: u64) -> Option<Piece> {
        let piece = pieces.get(self.piece)?;
        let (local, remote) = (piece.local + self.done, piece.remote + self.done);
        Some(Piece { local, remote, len: (piece.len - self.done).min(most) })
    }

    /// Advances by `bytes` within the next piece.
    #[inline]
    fn pass(&mut self, pieces: &[Piece], bytes: u64) {
        self.done += bytes;
        if pieces.get(self.piece).is_some_and(|piece| piece.len == self.done) {
            (self.piece, self.done) = (self.piece + 1, 0);
        }
    }

    /// [`Cursor::next`], and advances past it.
    #[inline]
    fn take(&mut self, pieces: &[Piece], most: u64) -> Option<Piece> {
        let next = self.next(pieces, most)?;
        self.pass(pieces, next.len);
        Some(next)
    }
}

/// The conditions under which a post goes on.
pub(crate) struct Limit<'a> {
    pub(crate) phase: &'a Phase,
    pub(crate) control: &'a Control,
    pub(crate) deadline: Deadline,
    pub(crate) peer: &'a dyn Asked,
    pub(crate) remote: &'a PeerMemory,
}

impl Limit<'_> {
    /// Whether to go on: not if this agent ends, the peer is lost, or has taken its memory back.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        if self.phase.is_cancelled() {
            return Err(AgentError::Cancelled);
        }
        self.control.check()?;
        self.peer.check()?;
        self.remote.check()?;
        match self.deadline.0.passed() {
            true => Err(self.deadline.late(format!("transfer with {}", self.peer.owner()))),
            false => Ok(()),
        }
    }
}

/// A path that can be taken.
pub(crate) trait Path: Send + Sync {
    /// Whether `start` copies by the CPU, and waits for nobody.
    fn is_by_cpu(&self, _: &Job) -> bool {
        false
    }

    /// Whether all connections that `start` needs are there.
    fn is_ready(&self, _: &Job) -> bool {
        true
    }

    /// Moves the pieces of `job`, or begins to. Between pieces it checks `limit`, whose deadline also
    /// bounds connections that are made first. The peer holds its paths, so a path does not hold its
    /// peer.
    ///
    /// After an error nothing of this job is under way.
    fn start(
        &self,
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError>;
}

/// A path with how it was made, or every reason against it.
pub(crate) type Found = Result<(Box<dyn Path>, String), Vec<String>>;

/// The progress of a path.
pub(crate) enum Started {
    /// All bytes are in place.
    Done,
    /// It is under way.
    Flight(Box<dyn Flight>),
}

impl Started {
    /// Polls `flight` once, which begins what it can.
    fn by(mut flight: impl Flight + 'static) -> Result<Self, AgentError> {
        Ok(match flight.poll()? {
            true => Self::Done,
            false => Self::Flight(Box::new(flight)),
        })
    }
}

/// Pieces under way. Bytes are added to the job's count as they are seen to be in place. Dropping it waits, for a
/// bounded time, until no byte of the local memory can be touched any more.
pub(crate) trait Flight: Send {
    /// Whether all bytes are in place or, after [`Flight::cancel`], whether nothing is under way: then no
    /// byte is read or written any more at either end. Never waits. After an error nothing is under way
    /// either.
    fn poll(&mut self) -> Result<bool, AgentError>;
    /// Begins nothing more. Operations under way may complete until `until`, and are ended by force after
    /// it. Of several calls the earliest time counts.
    fn cancel(&mut self, until: Instant);
}
