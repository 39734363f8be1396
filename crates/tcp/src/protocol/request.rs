//! Requests: what a program asks of its link, until it takes the result.

use super::error::Refusal;
use super::header::Kind;
use rustc_hash::FxHashMap;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Sends a message.
    Send,
    /// Receives a message.
    Receive,
    /// Writes to memory of the peer.
    Write,
    /// Reads memory of the peer.
    Read,
    /// Sends a notification.
    Notify,
}

impl Op {
    /// How many there are.
    pub(super) const COUNT: usize = 5;
}

/// Names a request of a link, until its result is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its kind.
    pub op: Op,
    /// Requests of each kind count from 0. Receive `n` takes the peer's message `n`.
    pub number: u64,
}

impl Request {
    /// The request of this end whose memory frames of this kind and number carry.
    pub fn carried(kind: Kind, number: u64) -> Option<Self> {
        let op = match kind {
            Kind::Message => Op::Send,
            Kind::Write => Op::Write,
            Kind::Notification => Op::Notify,
            _ => return None,
        };
        Some(Self { op, number })
    }

    /// The receive of the message of this number.
    pub fn receive(number: u64) -> Self {
        Self { op: Op::Receive, number }
    }
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was never posted, or its result was taken.
    Unknown,
    /// The owner of the memory refused the access, or could not carry it out.
    Refused(Refusal),
    /// A message is longer than its receive. Its bytes were discarded.
    TooLong {
        /// Bytes of the message.
        len: u64,
        /// Bytes of the receive.
        capacity: u64,
    },
    /// A received message could not be brought into its memory.
    Misplaced,
}

/// A request that is not complete, and its memory.
#[derive(Debug)]
struct Open<M> {
    memory: M,
    len: u64,
    /// Bytes that no socket has taken, until the last one was.
    unsent: Option<u64>,
}

#[derive(Debug)]
enum State<M> {
    Open(Open<M>),
    Complete(Result<u64, Failure>),
}

/// All requests of one end.
#[derive(Debug)]
pub(super) struct Requests<M>(FxHashMap<Request, State<M>>);

impl<M> Default for Requests<M> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<M> Requests<M> {
    pub(super) fn open(&mut self, request: Request, memory: M, len: u64) {
        self.0.insert(request, State::Open(Open { memory, len, unsent: Some(len) }));
    }

    fn get(&self, request: Request) -> Option<&Open<M>> {
        match self.0.get(&request)? {
            State::Open(open) => Some(open),
            State::Complete(_) => None,
        }
    }

    /// The memory of a request that is not complete.
    pub(super) fn memory(&self, request: Request) -> Option<&M> {
        self.get(request).map(|open| &open.memory)
    }

    /// Bytes of a request that is not complete.
    pub(super) fn len(&self, request: Request) -> Option<u64> {
        self.get(request).map(|open| open.len)
    }

    /// Whether sockets have taken all of a request that is not complete.
    pub(super) fn is_sent(&self, request: Request) -> bool {
        self.get(request).is_some_and(|open| open.unsent.is_none())
    }

    /// Sockets have taken `len` more bytes. All bytes of the request, if these were the last.
    pub(super) fn sent(&mut self, request: Request, len: u64) -> Option<u64> {
        let Some(State::Open(open)) = self.0.get_mut(&request) else { return None };
        let rest = open.unsent?.saturating_sub(len);
        open.unsent = (rest != 0).then_some(rest);
        (rest == 0).then_some(open.len)
    }

    /// Completes a request and releases its memory. Without `result`, the result is its length.
    pub(super) fn complete(&mut self, request: Request, result: Option<Result<u64, Failure>>) {
        if let Some(state) = self.0.get_mut(&request)
            && let State::Open(open) = state
        {
            *state = State::Complete(result.unwrap_or(Ok(open.len)));
        }
    }

    /// The result of a request, once.
    pub(super) fn take(&mut self, request: Request) -> Option<Result<u64, Failure>> {
        match self.0.get(&request) {
            None => Some(Err(Failure::Unknown)),
            Some(State::Open(_)) => None,
            Some(State::Complete(result)) => {
                let result = *result;
                self.0.remove(&request);
                Some(result)
            }
        }
    }

    /// Takes a request that will never be complete out of the ledger.
    pub(super) fn forget(&mut self, request: Request) {
        self.0.remove(&request);
    }
}
