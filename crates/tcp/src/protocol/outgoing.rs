//! Transfers to be sent, and the frame that goes next on a socket.

use super::agreed::{Agreed, Framing, MOST_EAGER, SMALL};
use super::error::{Goodbye, PeerError, PostError, Refusal};
use super::header::{HEADER, Header, Kind};
use super::incoming::Memory;
use super::ledger::{Need, Protocol};
use super::request::{Op, Request};
use super::window::{News, Window};
use std::collections::VecDeque;

/// The source of payload to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The memory of a request of this end.
    Request(Request),
    /// A registered region that the peer reads.
    Region {
        /// Its key.
        key: u32,
        /// Address of the transfer's first byte.
        addr: u64,
    },
    /// Zeros, in place of a region that was deregistered while the peer read it.
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

/// The sending half.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) agreed: Agreed,
    /// Frames without payload.
    pub(super) control: VecDeque<Header>,
    /// Transfers, each with what is left of it: of those that stay in one piece, and of others.
    small: VecDeque<(Header, Source)>,
    bulk: VecDeque<(Header, Source)>,
    /// Messages, and notifications, that the peer has no room for yet; each in order.
    messages: VecDeque<Header>,
    notifications: VecDeque<Header>,
    /// The window of this end at the peer.
    window: Window,
    /// Receives that the peer has posted.
    peer_posted: u64,
    pub(super) news: News,
    closing: Option<Goodbye>,
    /// Sockets whose last frame was framed.
    closed: Vec<bool>,
}

impl Outlet {
    pub(super) fn new(agreed: &Agreed) -> Self {
        Self {
            agreed: *agreed,
            control: VecDeque::new(),
            small: VecDeque::new(),
            bulk: VecDeque::new(),
            messages: VecDeque::new(),
            notifications: VecDeque::new(),
            window: Window::new(agreed.peer_window),
            peer_posted: 0,
            news: News::default(),
            closing: None,
            closed: vec![false; usize::from(agreed.sockets)],
        }
    }

    pub(super) fn check_open(&self) -> Result<(), PostError> {
        if self.closing.is_some() { Err(PostError::Closed) } else { Ok(()) }
    }

    /// A message or a notification, which is sent once the peer has room for it.
    pub(super) fn wait(&mut self, header: Header) {
        match header.kind {
            Kind::Message => self.messages.push_back(header),
            _ => self.notifications.push_back(header),
        }
        self.admit();
    }

    /// Takes the peer's receive count and credit from a frame.
    pub(super) fn heard(&mut self, posted: u64, credit: u64) -> Result<(), PeerError> {
        let charged = self.window.charged();
        if credit > charged {
            return Err(PeerError::TooMuchCredit { credit, charged });
        }
        // Frames of several sockets arrive in any order.
        if posted > self.peer_posted || credit > self.window.credit {
            self.peer_posted = self.peer_posted.max(posted);
            self.window.credit = self.window.credit.max(credit);
            self.admit();
        }
        Ok(())
    }

    /// Queues the messages and notifications for which the peer now has room.
    fn admit(&mut self) {
        while let Some(&(mut header)) = self.messages.front() {
            if header.id >= self.peer_posted {
                if header.total > MOST_EAGER || self.window.charge(header.total).is_err() {
                    break;
                }
                header.eager = true;
            }
            self.messages.pop_front();
            self.carry(header);
        }
        while let Some(&header) = self.notifications.front()
            && self.window.charge(header.total).is_ok()
        {
            self.notifications.pop_front();
            self.carry(header);
        }
    }

    /// Queues the memory of a request.
    fn carry(&mut self, header: Header) {
        if let Some(request) = Request::carried(header.kind, header.id) {
            self.queue(header, Source::Request(request));
        }
    }

    pub(super) fn queue(&mut self, header: Header, source: Source) {
        let in_one_piece = header.total <= SMALL || header.kind == Kind::Notification;
        let queue = if in_one_piece { &mut self.small } else { &mut self.bulk };
        queue.push_back((header, source));
    }

    /// The next piece of a transfer that may take this socket.
    fn take_for(&mut self, socket: u16) -> Option<(Header, Source)> {
        let serves = |small: bool| match self.agreed.send {
            _ if self.agreed.sockets == 1 => true,
            Framing::Inline => small == (socket == 0),
            Framing::Separate => socket != 0,
        };
        let queue = match (serves(true) && !self.small.is_empty(), serves(false)) {
            (true, _) => &mut self.small,
            (false, true) => &mut self.bulk,
            (false, false) => return None,
        };
        let (left, source) = queue.front_mut()?;
        let (mut header, source) = (*left, *source);
        let rest = header.total - header.offset;
        header.len = rest.min(u64::from(self.agreed.chunk)) as u32;
        left.offset += u64::from(header.len);
        if rest == u64::from(header.len) {
            queue.pop_front();
        }
        Some((header, source))
    }

    fn is_drained(&self) -> bool {
        self.small.is_empty()
            && self.bulk.is_empty()
            && self.control.is_empty()
            && self.messages.is_empty()
            && self.notifications.is_empty()
    }

    /// The socket whose headers travel on `socket`, and that needs a goodbye.
    fn goodbye(&mut self, socket: u16) -> Option<Header> {
        let begun = self.closed.contains(&true);
        let reason = self.closing.filter(|_| begun || self.is_drained())?;
        let named = match self.agreed.send {
            Framing::Inline => Some(socket).filter(|socket| !self.closed[usize::from(*socket)]),
            Framing::Separate if socket != 0 => None,
            Framing::Separate => (0..self.agreed.sockets).find(|s| !self.closed[usize::from(*s)]),
        }?;
        self.closed[usize::from(named)] = true;
        Some(Header { socket: named, status: reason as u32, ..Header::new(Kind::Close) })
    }
}

impl<M> Protocol<M> {
    /// The frame that goes next on `socket`, which has nothing left to send. With
    /// [`Framing::Separate`], a frame with payload must not be asked for a socket while socket 0 has
    /// no room for its header.
    pub fn next_frame(&mut self, socket: u16, memory: &mut impl Memory) -> Option<Frame> {
        // Only close frames of other sockets follow a close frame.
        if !self.out.closed.contains(&true) {
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

    /// A frame that carries only the receive count and the credit, if the peer may be waiting for them;
    /// with `lazy`, if they have changed at all.
    pub fn update(&mut self, lazy: bool) -> Option<Frame> {
        let Outlet { news, closed, .. } = &self.out;
        let wanted = news.is_new() && (lazy || news.urgent) && !closed[0];
        wanted.then(|| self.frame_of(Header::new(Kind::Update), 0, None))
    }

    /// Whether the peer may have to wait for [`Protocol::update`].
    pub fn is_urgent(&self) -> bool {
        self.out.news.urgent
    }

    /// Says that `len` bytes of payload were handed to the sockets.
    pub fn sent(&mut self, kind: Kind, id: u64, len: u64) {
        match Request::carried(kind, id) {
            Some(request) => {
                // A write is complete once the peer says so.
                if self.requests.sent(request, len).is_some() && request.op != Op::Write {
                    self.requests.complete(request, None);
                }
            }
            None => {
                let Some(unsent) = self.replies.get_mut(&id) else { return };
                *unsent -= len;
                if *unsent == 0 {
                    self.replies.remove(&id);
                    self.reads_in.finish(id);
                }
            }
        }
    }

    /// The peer asks for bytes, which it may read unless there is a refusal.
    pub(super) fn reply(&mut self, request: &Header, refusal: Option<Refusal>) {
        let Header { id, key, addr, total, .. } = *request;
        if let Some(refusal) = refusal {
            self.reads_in.finish(id);
            let status = refusal as u32;
            self.out.control.push_back(Header { id, status, ..Header::new(Kind::ReadRefused) });
            return;
        }
        self.replies.insert(id, total);
        let reply = Header { id, total, ..Header::new(Kind::ReadReply) };
        self.out.queue(reply, Source::Region { key, addr });
    }

    fn frame_of(&mut self, mut header: Header, socket: u16, source: Option<Source>) -> Frame {
        (header.posted, header.credit) = self.out.news.tell();
        let Header { kind, id, offset, len, .. } = header;
        if source.is_some() && len == 0 {
            self.sent(kind, id, 0);
        }
        let payload =
            source.filter(|_| len != 0).map(|source| Payload { kind, id, source, offset, len });
        let carrier = if self.agreed.send == Framing::Separate { 0 } else { socket };
        Frame { header: header.encode(), carrier, payload }
    }

    /// Closes the sending side: nothing can be posted any more, and a close frame follows all posted
    /// work.
    pub fn close(&mut self) {
        self.out.closing.get_or_insert(Goodbye::Finished);
    }

    /// Sends nothing more but a close frame with this reason.
    pub fn abort(&mut self, reason: Goodbye) {
        let out = &mut self.out;
        out.small.clear();
        out.bulk.clear();
        out.control.clear();
        out.messages.clear();
        out.notifications.clear();
        out.closing = Some(reason);
    }

    /// Whether the close frames were handed to the sockets.
    pub fn is_closed(&self) -> bool {
        self.out.closed.iter().all(|closed| *closed)
    }
}
