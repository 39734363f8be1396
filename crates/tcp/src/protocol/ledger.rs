//! One end of a link: requests are posted, and complete.

use super::agreed::{Agreed, MOST_EAGER, MOST_NOTIFICATION, OVERHEAD};
use super::error::{Goodbye, PeerError, PostError, Refusal, status_of};
use super::header::{Header, Kind};
use super::incoming::{Incoming, Inlet, Target};
use super::outgoing::{Outlet, Source};
use super::request::{Failure, Op, Request, Requests};
use super::sequence::Sequence;
use super::window::Window;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// The purpose of an access to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Reads its bytes for the peer.
    Read,
    /// Writes bytes of the peer.
    Write,
}

/// An event beside the completion of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message is in its buffer and its receive is posted. Copy it, then call
    /// [`Protocol::delivered`].
    Deliver {
        /// Number of the receive and of the buffer.
        id: u64,
        /// Bytes.
        len: u64,
    },
    /// A notification is in its buffer. Take it out, then call [`Protocol::consumed`].
    Notification {
        /// Number of the buffer.
        id: u64,
        /// Bytes.
        len: u64,
    },
    /// The peer ended the link.
    Goodbye(Goodbye),
}

/// One end of a link, without sockets or clock. `M` stands for the memory of a request.
///
/// * Received bytes: [`Protocol::feed`] takes headers; [`Protocol::due`] says where payload
///   belongs; [`Protocol::taken`] and [`Protocol::placed`] report what became of it.
/// * Bytes to send: [`Protocol::next_frame`], which [`Protocol::sent`] completes.
/// * [`Protocol::take`] gives the result of a request; [`Protocol::poll_event`] says what else
///   happened.
///
/// After an error of [`Protocol::feed`] or [`Protocol::ended`], the only call that makes sense
/// is [`Protocol::abort`].
#[derive(Debug)]
pub struct Protocol<M> {
    pub(super) agreed: Agreed,
    pub(super) events: VecDeque<Event>,
    pub(super) requests: Requests<M>,
    /// The next number of each kind of request.
    pub(super) numbers: [u64; Op::COUNT],
    /// Writes and reads of this end that are finished.
    writes: Sequence,
    reads: Sequence,
    // Receiving.
    pub(super) inlets: Vec<Inlet>,
    pub(super) incoming: FxHashMap<(Kind, u64), Incoming>,
    /// Entries of `incoming` of which bytes are missing.
    pub(super) incomplete: usize,
    pub(super) messages_in: Sequence,
    pub(super) writes_in: Sequence,
    pub(super) reads_in: Sequence,
    pub(super) next_notification_in: u64,
    /// Notifications that wait for an earlier one or for writes, with the number of writes.
    held: BTreeMap<u64, u64>,
    /// The window of the peer at this end.
    pub(super) window: Window,
    // Sending.
    pub(super) out: Outlet,
    /// Reads of the peer that are answered, and bytes of the answer that no socket has taken.
    pub(super) replies: FxHashMap<u64, u64>,
}

impl<M> Protocol<M> {
    /// A link after its handshake.
    pub fn new(agreed: Agreed) -> Self {
        Self {
            agreed,
            events: VecDeque::new(),
            requests: Requests::default(),
            numbers: [0; Op::COUNT],
            writes: Sequence::default(),
            reads: Sequence::default(),
            inlets: (0..agreed.sockets).map(|_| Inlet::default()).collect(),
            incoming: FxHashMap::default(),
            incomplete: 0,
            messages_in: Sequence::default(),
            writes_in: Sequence::default(),
            reads_in: Sequence::default(),
            next_notification_in: 0,
            held: BTreeMap::new(),
            window: Window::new(agreed.window),
            out: Outlet::new(&agreed),
            replies: FxHashMap::default(),
        }
    }

    /// The outcome of the handshake.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Posts a request on `len` bytes of `memory`. `remote` is the key and the first address of the
    /// peer's memory, for writes and reads. The peer gets a notification after all writes posted
    /// before it are in its memory.
    ///
    /// # Errors
    /// The link is closed (receives can still be posted); too many writes or reads are under way;
    /// the remote range wraps; a notification is too long.
    pub fn post(
        &mut self,
        op: Op,
        memory: M,
        len: u64,
        remote: (u32, u64),
    ) -> Result<Request, PostError> {
        let (number, (key, addr)) = (self.numbers[op as usize], remote);
        if op != Op::Receive {
            self.out.check_open()?;
        }
        match op {
            Op::Write => check_remote(&self.writes, number, len, addr, self.agreed.open)?,
            Op::Read => check_remote(&self.reads, number, len, addr, self.agreed.open)?,
            Op::Notify if len > MOST_NOTIFICATION => {
                return Err(PostError::NotificationTooLong { len, most: MOST_NOTIFICATION });
            }
            Op::Notify | Op::Send | Op::Receive => {}
        }
        self.numbers[op as usize] += 1;
        let request = Request { op, number };
        self.requests.open(request, memory, len);
        let header = |kind| Header { id: number, total: len, key, addr, ..Header::new(kind) };
        match op {
            Op::Receive => {
                // A sender may wait for a receive before it sends more than fits the window.
                self.out.news.posted(len > MOST_EAGER);
                let message = self.incoming.get(&(Kind::Message, number));
                if message.is_some_and(Incoming::is_complete) {
                    self.message_completed(number);
                }
            }
            Op::Send => self.out.wait(header(Kind::Message)),
            Op::Notify => {
                let after = self.numbers[Op::Write as usize];
                self.out.wait(Header { addr: after, ..header(Kind::Notification) });
            }
            Op::Write => self.out.queue(header(Kind::Write), Source::Request(request)),
            Op::Read => {
                let reply = Header { total: len, ..Header::new(Kind::ReadReply) };
                let reply = Incoming::new(&reply, Target::Request(request), None);
                self.incoming.insert((Kind::ReadReply, number), reply);
                self.incomplete += 1;
                self.out.control.push_back(header(Kind::ReadRequest));
            }
        }
        Ok(request)
    }

    /// The memory of a request that is not complete.
    pub fn memory(&self, request: Request) -> Option<&M> {
        self.requests.memory(request)
    }

    /// The result of a request if it is complete: its bytes, or why it failed. It is given once.
    pub fn take(&mut self, request: Request) -> Option<Result<u64, Failure>> {
        self.requests.take(request)
    }

    /// Takes a request out of the ledger that will never be complete.
    pub fn forget(&mut self, request: Request) {
        self.requests.forget(request);
    }

    /// Says that the message in buffer `id` was copied into its receive and the buffer is free;
    /// `misplaced` if that failed.
    pub fn delivered(&mut self, id: u64, misplaced: bool) {
        if let Some(message) = self.incoming.get(&(Kind::Message, id)) {
            let len = message.total;
            self.received(id, if misplaced { Err(Failure::Misplaced) } else { Ok(len) });
        }
    }

    /// Says that a notification of `len` bytes was taken out of its buffer.
    pub fn consumed(&mut self, len: u64) {
        self.out.news.give_back(&mut self.window, len + OVERHEAD);
    }

    /// All bytes of a transfer from the peer are placed.
    pub(super) fn completed(&mut self, kind: Kind, id: u64) {
        match kind {
            Kind::Message => self.message_completed(id),
            Kind::Write => {
                if let Some(write) = self.incoming.remove(&(kind, id)) {
                    self.writes_in.finish(id);
                    let status = write.refusal.map_or(0, |refusal| refusal as u32);
                    let done = Header { id, status, ..Header::new(Kind::WriteDone) };
                    self.out.control.push_back(done);
                    self.release_notifications();
                }
            }
            Kind::ReadReply => {
                if let Some(read) = self.incoming.remove(&(kind, id)) {
                    self.answered(Op::Read, id, read.refusal);
                }
            }
            Kind::Notification => {
                if let Some(notification) = self.incoming.get(&(kind, id)) {
                    self.held.insert(id, notification.after());
                    self.release_notifications();
                }
            }
            _ => {}
        }
    }

    fn message_completed(&mut self, id: u64) {
        let Some(message) = self.incoming.get(&(Kind::Message, id)) else { return };
        let (len, target, refusal) = (message.total, message.target, message.refusal);
        let result = match (target, self.requests.len(Request::receive(id))) {
            (Target::Buffer, None) => return,
            (Target::Buffer, Some(capacity)) if len <= capacity && refusal.is_none() => {
                return self.events.push_back(Event::Deliver { id, len });
            }
            _ if refusal.is_some() => Err(Failure::Misplaced),
            (Target::Request(_), _) => Ok(len),
            (_, capacity) => Err(Failure::TooLong { len, capacity: capacity.unwrap_or(0) }),
        };
        self.received(id, result);
    }

    /// The receive of a message is complete.
    fn received(&mut self, id: u64, result: Result<u64, Failure>) {
        if let Some(message) = self.incoming.remove(&(Kind::Message, id)) {
            self.out.news.give_back(&mut self.window, message.charged);
        }
        self.messages_in.finish(id);
        self.requests.complete(Request::receive(id), Some(result));
    }

    /// Hands over, in order, the notifications whose writes are complete.
    fn release_notifications(&mut self) {
        while let Some(&after) = self.held.get(&self.next_notification_in)
            && after <= self.writes_in.low()
        {
            let id = self.next_notification_in;
            self.next_notification_in += 1;
            self.held.remove(&id);
            let len = self.incoming.remove(&(Kind::Notification, id)).map_or(0, |n| n.total);
            self.events.push_back(Event::Notification { id, len });
        }
    }

    /// A write or a read is complete.
    fn answered(&mut self, op: Op, number: u64, refusal: Option<Refusal>) {
        let finished = if op == Op::Write { &mut self.writes } else { &mut self.reads };
        finished.finish(number);
        let failed = refusal.map(|refusal| Err(Failure::Refused(refusal)));
        self.requests.complete(Request { op, number }, failed);
    }

    /// The peer's result of a write.
    pub(super) fn write_done(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { kind, id, status, .. } = *header;
        let refusal = if status == 0 { None } else { Some(status_of(header)?) };
        if !self.requests.is_sent(Request { op: Op::Write, number: id }) {
            return Err(PeerError::NotAsked { kind, id });
        }
        self.answered(Op::Write, id, refusal);
        Ok(())
    }

    /// The peer refuses a read.
    pub(super) fn read_refused(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { kind, id, .. } = *header;
        let refusal = status_of(header)?;
        let read = self.incoming.get(&(Kind::ReadReply, id));
        if read.is_none_or(Incoming::has_begun) {
            return Err(PeerError::NotAsked { kind, id });
        }
        self.incoming.remove(&(Kind::ReadReply, id));
        self.incomplete -= 1;
        self.answered(Op::Read, id, Some(refusal));
        Ok(())
    }
}

/// Whether one more write or read of `len` bytes from `addr` on may begin.
fn check_remote(
    finished: &Sequence,
    number: u64,
    len: u64,
    addr: u64,
    most: u32,
) -> Result<(), PostError> {
    if addr.checked_add(len).is_none() {
        return Err(PostError::Wraps { addr, len });
    }
    if number - finished.low() >= u64::from(most) {
        return Err(PostError::TooMany { most });
    }
    Ok(())
}
