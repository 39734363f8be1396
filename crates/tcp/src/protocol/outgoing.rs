//! What is to be sent, and which frame goes next on a socket.

use super::agreed::{Agreed, Framing, MOST_EAGER, OVERHEAD, SMALL};
use super::error::{Goodbye, PeerError, PostError, Refusal};
use super::header::{HEADER, Header, Kind};
use super::incoming::Memory;
use super::ledger::{Event, Need, Protocol};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Where payload to be sent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The memory of the message with this number.
    Message(u64),
    /// The memory of the write with this number.
    Write(u64),
    /// The bytes of the notification with this number.
    Notification(u64),
    /// A registered region that the peer reads.
    Region {
        /// Its key.
        key: u32,
        /// Address of the transfer's first byte.
        addr: u64,
    },
    /// Zeros, in place of a region whose key was taken back while the peer read it.
    Zeros,
}

/// Payload to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Kind of the transfer.
    pub kind: Kind,
    /// Number of the transfer.
    pub id: u64,
    /// Where it comes from.
    pub source: Source,
    /// Offset in the transfer.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// A frame to be sent whole: the header on `carrier`, the payload right behind it, or on another
/// socket if headers and payload are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header.
    pub header: [u8; HEADER],
    /// The socket that carries it.
    pub carrier: u16,
    /// The payload, on the socket for which the frame was asked.
    pub payload: Option<Payload>,
}

/// One transfer to be sent.
#[derive(Clone, Copy, Debug)]
struct Out {
    header: Header,
    source: Source,
}

impl Out {
    fn new(kind: Kind, id: u64, total: u64, source: Source) -> Self {
        Self { header: Header { id, total, ..Header::new(kind) }, source }
    }
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Outlet {
    sockets: u16,
    chunk: u32,
    framing: Framing,
    peer_window: u64,
    pub(super) next_write: u64,
    pub(super) next_read: u64,
    next_message: u64,
    next_notification: u64,
    /// Frames without payload.
    control: VecDeque<Header>,
    small: VecDeque<Out>,
    bulk: VecDeque<Out>,
    /// Messages, and notifications, that the peer has no room for yet; each in order.
    messages: VecDeque<Out>,
    notifications: VecDeque<Out>,
    /// Bytes not yet handed to the sockets, by transfer.
    unsent: FxHashMap<(Kind, u64), u64>,
    peer_posted: u64,
    charged: u64,
    peer_credit: u64,
    /// What the peer is told: now, as far as it was told, and whether that is urgent.
    posted: u64,
    posted_told: u64,
    credit: u64,
    credit_told: u64,
    urgent: bool,
    closing: Option<Goodbye>,
    /// Sockets whose last frame was framed.
    closed: Vec<bool>,
}

impl Outlet {
    pub(super) fn new(agreed: &Agreed) -> Self {
        Self {
            sockets: agreed.sockets,
            chunk: agreed.chunk,
            framing: agreed.send,
            peer_window: agreed.peer_window,
            next_write: 0,
            next_read: 0,
            next_message: 0,
            next_notification: 0,
            control: VecDeque::new(),
            small: VecDeque::new(),
            bulk: VecDeque::new(),
            messages: VecDeque::new(),
            notifications: VecDeque::new(),
            unsent: FxHashMap::default(),
            peer_posted: 0,
            charged: 0,
            peer_credit: 0,
            posted: 0,
            posted_told: 0,
            credit: 0,
            credit_told: 0,
            urgent: false,
            closing: None,
            closed: vec![false; usize::from(agreed.sockets)],
        }
    }

    pub(super) fn check_open(&self) -> Result<(), PostError> {
        if self.closing.is_some() { Err(PostError::Closed) } else { Ok(()) }
    }

    pub(super) fn post_message(&mut self, len: u64) -> u64 {
        let id = self.next_message;
        self.next_message += 1;
        self.messages.push_back(Out::new(Kind::Message, id, len, Source::Message(id)));
        self.unsent.insert((Kind::Message, id), len);
        self.admit();
        id
    }

    pub(super) fn post_notification(&mut self, len: u64) -> u64 {
        let id = self.next_notification;
        self.next_notification += 1;
        let mut out = Out::new(Kind::Notification, id, len, Source::Notification(id));
        out.header.addr = self.next_write;
        self.notifications.push_back(out);
        self.unsent.insert((Kind::Notification, id), len);
        self.admit();
        id
    }

    pub(super) fn post_write(&mut self, len: u64, key: u32, addr: u64) {
        let id = self.next_write;
        self.next_write += 1;
        let mut out = Out::new(Kind::Write, id, len, Source::Write(id));
        (out.header.key, out.header.addr) = (key, addr);
        self.unsent.insert((Kind::Write, id), len);
        self.queue(out);
    }

    pub(super) fn post_read(&mut self, len: u64, key: u32, addr: u64) {
        let id = self.next_read;
        self.next_read += 1;
        let header = Header { id, total: len, key, addr, ..Header::new(Kind::ReadRequest) };
        self.control.push_back(header);
    }

    pub(super) fn write_done(&mut self, id: u64, refusal: Option<Refusal>) {
        let status = refusal.map_or(0, |refusal| refusal as u32);
        self.control.push_back(Header { id, status, ..Header::new(Kind::WriteDone) });
    }

    /// Frames without payload that no socket has taken.
    pub(super) fn waiting(&self) -> usize {
        self.control.len()
    }

    /// Whether all of a write was handed to the sockets.
    pub(super) fn is_sent(&self, write: u64) -> bool {
        !self.unsent.contains_key(&(Kind::Write, write))
    }

    /// The number of posted receives has changed.
    pub(super) fn posted(&mut self, posted: u64, urgent: bool) {
        self.posted = posted;
        self.urgent |= urgent;
    }

    pub(super) fn owes_credit(&mut self, credit: u64, window: u64) {
        self.credit = credit;
        self.urgent |= credit - self.credit_told >= window / 4;
    }

    /// What the peer says about its receives and its window.
    pub(super) fn heard(&mut self, posted: u64, credit: u64) -> Result<(), PeerError> {
        if credit > self.charged {
            return Err(PeerError::TooMuchCredit { credit, charged: self.charged });
        }
        // Frames of several sockets arrive in any order.
        if posted > self.peer_posted || credit > self.peer_credit {
            self.peer_posted = self.peer_posted.max(posted);
            self.peer_credit = self.peer_credit.max(credit);
            self.admit();
        }
        Ok(())
    }

    pub(super) fn close(&mut self, reason: Goodbye) {
        self.closing.get_or_insert(reason);
    }

    pub(super) fn abort(&mut self, reason: Goodbye) {
        for queue in [&mut self.small, &mut self.bulk, &mut self.messages, &mut self.notifications]
        {
            queue.clear();
        }
        self.control.clear();
        self.closing = Some(reason);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.iter().all(|closed| *closed)
    }

    /// Moves what the peer has room for to the queues of what is sent.
    fn admit(&mut self) {
        while let Some(&(mut out)) = self.messages.front() {
            let Header { id, total, .. } = out.header;
            if id >= self.peer_posted {
                if total > MOST_EAGER || !self.charge(total) {
                    break;
                }
                out.header.eager = true;
            }
            self.messages.pop_front();
            self.queue(out);
        }
        while let Some(&out) = self.notifications.front()
            && self.charge(out.header.total)
        {
            self.notifications.pop_front();
            self.queue(out);
        }
    }

    /// Charges the peer's window, if it has room.
    fn charge(&mut self, total: u64) -> bool {
        let room = self.peer_window - (self.charged - self.peer_credit);
        let fits = total + OVERHEAD <= room;
        if fits {
            self.charged += total + OVERHEAD;
        }
        fits
    }

    fn queue(&mut self, out: Out) {
        let in_one_piece = out.header.total <= SMALL || out.header.kind == Kind::Notification;
        match in_one_piece {
            true => self.small.push_back(out),
            false => self.bulk.push_back(out),
        }
    }

    fn take(&mut self, small: bool) -> Option<(Header, Source)> {
        let queue = if small { &mut self.small } else { &mut self.bulk };
        let out = queue.front_mut()?;
        let mut header = out.header;
        let rest = header.total - header.offset;
        header.len = rest.min(u64::from(self.chunk)) as u32;
        out.header.offset += u64::from(header.len);
        let source = out.source;
        if rest == u64::from(header.len) {
            queue.pop_front();
        }
        Some((header, source))
    }

    /// Whether payload of this queue may take this socket.
    fn serves(&self, socket: u16, small: bool) -> bool {
        match self.framing {
            _ if self.sockets == 1 => true,
            Framing::Inline => small == (socket == 0),
            Framing::Separate => socket != 0,
        }
    }

    fn take_for(&mut self, socket: u16) -> Option<(Header, Source)> {
        for small in [true, false] {
            if self.serves(socket, small)
                && let Some(taken) = self.take(small)
            {
                return Some(taken);
            }
        }
        None
    }

    fn is_drained(&self) -> bool {
        let queues = [&self.small, &self.bulk, &self.messages, &self.notifications];
        self.control.is_empty() && queues.iter().all(|queue| queue.is_empty())
    }

    /// The socket whose headers travel on `socket`, and that needs a goodbye.
    fn goodbye(&mut self, socket: u16) -> Option<Header> {
        let begun = self.closed.contains(&true);
        let reason = self.closing.filter(|_| begun || self.is_drained())?;
        let named = match self.framing {
            Framing::Inline => Some(socket).filter(|socket| !self.closed[usize::from(*socket)]),
            Framing::Separate if socket != 0 => None,
            Framing::Separate => (0..self.sockets).find(|s| !self.closed[usize::from(*s)]),
        }?;
        self.closed[usize::from(named)] = true;
        Some(Header { socket: named, status: reason.status(), ..Header::new(Kind::Close) })
    }
}

impl Protocol {
    /// The frame that goes next on `socket`, which has nothing left to send. With
    /// [`Framing::Separate`], a frame with payload must not be asked for a socket while socket 0 has
    /// no room for its header.
    pub fn next_frame(&mut self, socket: u16, memory: &mut impl Memory) -> Option<Frame> {
        // Nothing follows a goodbye but the goodbyes of other sockets.
        if self.out.closed.contains(&true) {
            let goodbye = self.out.goodbye(socket)?;
            return Some(self.frame_of(goodbye, socket, None));
        }
        if socket == 0
            && let Some(header) = self.out.control.pop_front()
        {
            return Some(self.frame_of(header, 0, None));
        }
        if let Some((mut header, mut source)) = self.out.take_for(socket) {
            header.socket = socket;
            if let Source::Region { key, addr } = source
                && let Err(refusal) = memory.check(key, addr, header.total, Need::Read)
            {
                header.status = refusal as u32;
                source = Source::Zeros;
            }
            return Some(self.frame_of(header, socket, Some(source)));
        }
        let goodbye = self.out.goodbye(socket)?;
        Some(self.frame_of(goodbye, socket, None))
    }

    /// Whether [`Protocol::next_frame`] has nothing for any socket.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        let out = &self.out;
        let framed = out.small.is_empty() && out.bulk.is_empty() && out.control.is_empty();
        framed && out.closing.is_none()
    }

    /// A frame that only says which receives are posted and how much of the window is free, if the
    /// peer may have to wait for that; with `lazy`, if it does not know it yet.
    pub fn update(&mut self, lazy: bool) -> Option<Frame> {
        let out = &self.out;
        let news = out.posted != out.posted_told || out.credit != out.credit_told;
        let wanted = news && (lazy || out.urgent) && !out.closed[0];
        wanted.then(|| self.frame_of(Header::new(Kind::Update), 0, None))
    }

    /// Whether the peer may have to wait for [`Protocol::update`].
    pub fn is_urgent(&self) -> bool {
        self.out.urgent
    }

    /// Says that `len` bytes of payload were handed to the sockets.
    pub fn sent(&mut self, kind: Kind, id: u64, len: u64) {
        let Some(unsent) = self.out.unsent.get_mut(&(kind, id)) else { return };
        *unsent -= len;
        if *unsent != 0 {
            return;
        }
        self.out.unsent.remove(&(kind, id));
        match kind {
            Kind::Message => self.events.push_back(Event::Sent(id)),
            Kind::Notification => self.events.push_back(Event::Notified(id)),
            Kind::ReadReply => {
                self.replies.remove(&id);
                self.reads_in.finish(id);
            }
            _ => {}
        }
    }

    /// The peer asks for bytes that it may read.
    pub(super) fn reply(&mut self, id: u64, key: u32, addr: u64, total: u64) {
        self.replies.insert(id);
        self.out.unsent.insert((Kind::ReadReply, id), total);
        self.out.queue(Out::new(Kind::ReadReply, id, total, Source::Region { key, addr }));
    }

    pub(super) fn refuse_read(&mut self, id: u64, refusal: Refusal) {
        self.reads_in.finish(id);
        let status = refusal as u32;
        self.out.control.push_back(Header { id, status, ..Header::new(Kind::ReadRefused) });
    }

    fn frame_of(&mut self, mut header: Header, socket: u16, source: Option<Source>) -> Frame {
        let out = &mut self.out;
        (header.posted, header.credit) = (out.posted, out.credit);
        (out.posted_told, out.credit_told, out.urgent) = (out.posted, out.credit, false);
        let Header { kind, id, offset, len, .. } = header;
        if source.is_some() && len == 0 {
            self.sent(kind, id, 0);
        }
        let payload =
            source.filter(|_| len != 0).map(|source| Payload { kind, id, source, offset, len });
        let carrier = if self.out.framing == Framing::Separate { 0 } else { socket };
        Frame { header: header.encode(), carrier, payload }
    }
}
