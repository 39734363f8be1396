//! A transfer over TCP.

use super::{Connected, failed};
use crate::path::Flight;
use crate::peer::{Lease, Peer};
use crate::prepared::Part;
use crate::{AgentError, Op};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_devmem::transport::protocol::{PostError, Refusal};
use warpverbs_devmem::transport::{Operation, RemoteMemory, TransportError};

/// Bytes of one read or write at most: a piece may be longer.
const SLICE: u64 = 8 << 20;
/// Bytes that a transfer has under way, beside those of the last slice: what may have to end by itself.
const AHEAD: u64 = 64 << 20;
/// After an error of one slice, those beside it have so long to end by themselves.
const GRACE: Duration = Duration::from_secs(5);

/// A transfer under way: reads or writes of at most [`SLICE`] bytes.
pub(super) struct Work {
    op: Op,
    peer: Arc<Peer>,
    part: Arc<Part>,
    made: Arc<Connected>,
    remote: RemoteMemory,
    /// Slices that are posted, with their lengths, and how many bytes these are.
    under_way: VecDeque<(Operation, u64)>,
    ahead: u64,
    /// The first piece that has not been posted, and how much of it has.
    at: (usize, u64),
    /// Nothing more is posted, and what is under way may end by itself until then.
    until: Option<Instant>,
    /// The first thing that went wrong.
    error: Option<AgentError>,
    /// The connection is broken, and the target asked to end it.
    ending: bool,
    /// Nothing is under way.
    over: bool,
    _lease: Lease,
}

impl Work {
    pub(super) fn new(
        op: Op,
        (peer, lease): (Arc<Peer>, Lease),
        part: Arc<Part>,
        made: Arc<Connected>,
        remote: RemoteMemory,
    ) -> Self {
        Self {
            op,
            peer,
            part,
            made,
            remote,
            under_way: VecDeque::new(),
            ahead: 0,
            at: (0, 0),
            until: None,
            error: None,
            ending: false,
            over: false,
            _lease: lease,
        }
    }

    /// Posts as many slices as the connection takes.
    fn post(&mut self) -> Result<(), TransportError> {
        let pieces = &self.part.pieces;
        if self.at.0 == pieces.len() || self.ahead >= AHEAD {
            return Ok(());
        }
        let mut posting = self.made.connection.posting();
        while let Some(piece) = pieces.get(self.at.0).filter(|_| self.ahead < AHEAD) {
            let len = (piece.len - self.at.1).min(SLICE);
            let local = self.part.local.region();
            let local = local.slice(piece.local + self.at.1, len as usize)?;
            let remote = self.remote.at(piece.remote + self.at.1);
            let posted = match self.op {
                Op::Read => posting.read(local, remote),
                Op::Write => posting.write(local, remote),
            };
            match posted {
                Ok(operation) => self.under_way.push_back((operation, len)),
                // Other transfers may have taken all.
                Err(TransportError::Post(PostError::TooMany { .. })) => return Ok(()),
                Err(error) => return Err(error),
            }
            self.ahead += len;
            self.at.1 += len;
            if self.at.1 == piece.len {
                self.at = (self.at.0 + 1, 0);
            }
        }
        Ok(())
    }

    /// Whether nothing is under way any more and nothing is to be posted. An error says that the
    /// connection is over.
    fn advance(&mut self) -> Result<bool, TransportError> {
        while let Some(&(first, len)) = self.under_way.front() {
            match self.made.connection.test(first) {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) if error.ends_connection() => return Err(error),
                Err(error) => self.fail(&error),
            }
            self.under_way.pop_front();
            self.ahead -= len;
        }
        if self.until.is_none() {
            match self.post() {
                Err(error) if error.ends_connection() => return Err(error),
                Err(error) => self.fail(&error),
                Ok(()) => {}
            }
        }
        let posted = self.until.is_some() || self.at.0 == self.part.pieces.len();
        Ok(self.under_way.is_empty() && posted)
    }

    fn fail(&mut self, error: &TransportError) {
        let error = match error {
            TransportError::Refused(Refusal::UnknownKey) => self.part.remote.extent.deregistered(),
            error => failed(&self.peer, error),
        };
        self.error.get_or_insert(error);
        self.until.get_or_insert_with(|| Instant::now() + GRACE);
    }

    /// Ends the connection, and with it the other transfers on it.
    fn break_off(&mut self) {
        self.ending = true;
        self.peer.sockets.discard(&self.made);
        self.made.end();
    }
}

impl Flight for Work {
    fn poll(&mut self) -> Result<bool, AgentError> {
        if !self.ending {
            match self.advance() {
                Ok(over) => self.over = over,
                Err(error) => {
                    self.fail(&error);
                    self.break_off();
                }
            }
            let late = |until: Instant| Instant::now() >= until;
            if !self.over && !self.ending && self.until.is_some_and(late) {
                self.break_off();
            }
        }
        if self.ending {
            self.over = self.made.has_ended(&self.peer);
        }
        match self.over {
            true => self.error.take().map_or(Ok(true), Err),
            false => Ok(false),
        }
    }

    fn cancel(&mut self, until: Instant) {
        self.until.get_or_insert(until);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.over {
            // So that nothing is read from a socket into the local memory any more.
            self.break_off();
        }
    }
}
