//! Chunks as they arrive: headers are checked, and every payload byte gets a destination.

use super::agreed::{Agreed, Framing, MOST_ANNOUNCED, MOST_EAGER, MOST_NOTIFICATION};
use super::error::{Cut, Goodbye, PeerError, Refusal, status_of};
use super::header::{HEADER, Header, Kind};
use super::ledger::{Event, Need, Protocol};
use super::outgoing::Outlet;
use super::ranges::{MOST_PIECES, Ranges, Refused};
use super::request::{Op, Request};
use super::sequence::Sequence;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// The destination of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The memory of this receive or read.
    Request(Request),
    /// A buffer for this message, whose receive is not posted yet, or for this notification.
    Buffer,
    /// A registered region.
    Region {
        /// Its key.
        key: u32,
        /// Address of the transfer's first byte.
        addr: u64,
    },
    /// None: the transfer was refused, and the payload is discarded.
    Discard,
}

/// Payload that comes next on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Kind of the transfer.
    pub kind: Kind,
    /// Number of the transfer.
    pub id: u64,
    /// Bytes of the whole transfer.
    pub total: u64,
    /// Where it belongs.
    pub target: Target,
    /// Offset of the next byte in the transfer.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// One transfer of which something was announced.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) total: u64,
    /// Address and key, as the first chunk had them.
    addr: u64,
    key: u32,
    /// The announced parts; empty if one chunk was all of the transfer.
    announced: Ranges,
    whole: bool,
    placed: u64,
    pub(super) target: Target,
    pub(super) refusal: Option<Refusal>,
    /// Bytes charged to this end's window.
    pub(super) charged: u64,
}

impl Incoming {
    pub(super) fn new(header: &Header, target: Target, refusal: Option<Refusal>) -> Self {
        let Header { total, addr, key, .. } = *header;
        let announced = Ranges::default();
        Self { total, addr, key, announced, whole: false, placed: 0, target, refusal, charged: 0 }
    }

    /// Adds a chunk.
    fn announce(&mut self, header: &Header) -> Result<(), PeerError> {
        let Header { kind, id, offset, len, .. } = *header;
        let fields = [
            (self.total, header.total),
            (self.addr, header.addr),
            (u64::from(self.key), u64::from(header.key)),
        ];
        if let Some((first, now)) = fields.into_iter().find(|(first, now)| first != now) {
            return Err(PeerError::Changed { kind, id, first, now });
        }
        if len == 0 {
            return Ok(());
        }
        if self.whole {
            return Err(PeerError::Overlap { kind, id, offset, len });
        }
        if u64::from(len) == self.total && !self.has_begun() {
            self.whole = true;
            return Ok(());
        }
        // No overflow: `check_shape` has compared the end with `total`.
        self.announced.add(offset, offset + u64::from(len)).map_err(|refused| match refused {
            Refused::Overlap => PeerError::Overlap { kind, id, offset, len },
            Refused::Scattered => PeerError::Scattered { kind, id, most: MOST_PIECES },
        })
    }

    /// How many writes come before this notification.
    pub(super) fn after(&self) -> u64 {
        self.addr
    }

    /// Whether a chunk of it was announced.
    pub(super) fn has_begun(&self) -> bool {
        self.whole || !self.announced.pieces().is_empty()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.placed == self.total
    }
}

/// The receiving half of a socket.
#[derive(Debug)]
pub(super) struct Inlet {
    header: [u8; HEADER],
    have: usize,
    due: VecDeque<Due>,
    /// Bytes of all in `due`.
    announced: u64,
    goodbye: bool,
}

impl Default for Inlet {
    fn default() -> Self {
        Self { header: [0; HEADER], have: 0, due: VecDeque::new(), announced: 0, goodbye: false }
    }
}

/// The keys of this end.
pub trait Memory {
    /// Whether `key` allows `need` for `[addr, addr + len)`.
    fn check(&mut self, key: u32, addr: u64, len: u64, need: Need) -> Result<(), Refusal>;
}

impl<M> Protocol<M> {
    /// Takes header bytes from the stream of `socket`, until payload comes next or no more headers
    /// can be taken. Returns how many bytes it took.
    ///
    /// # Errors
    /// The peer broke the protocol: the link is over.
    pub fn feed(
        &mut self,
        socket: u16,
        bytes: &[u8],
        memory: &mut impl Memory,
    ) -> Result<usize, PeerError> {
        let mut taken = 0;
        while taken < bytes.len() && self.takes_headers(socket) {
            let inlet = &mut self.inlets[usize::from(socket)];
            let part = (HEADER - inlet.have).min(bytes.len() - taken);
            inlet.header[inlet.have..inlet.have + part]
                .copy_from_slice(&bytes[taken..taken + part]);
            inlet.have += part;
            taken += part;
            if inlet.have == HEADER {
                inlet.have = 0;
                let header = Header::decode(&inlet.header)?;
                self.frame(socket, &header, memory)?;
            }
        }
        Ok(taken)
    }

    /// Whether the next bytes of `socket` are a header that can be taken now.
    pub fn takes_headers(&self, socket: u16) -> bool {
        match self.agreed.receive {
            Framing::Inline => self.inlets[usize::from(socket)].due.is_empty(),
            Framing::Separate => {
                socket == 0 && self.inlets.iter().all(|inlet| inlet.due.len() < MOST_ANNOUNCED)
            }
        }
    }

    /// The payload that comes next on `socket`, if it is known.
    #[inline]
    pub fn due(&self, socket: u16) -> Option<Due> {
        self.inlets[usize::from(socket)].due.front().copied()
    }

    /// Bytes of payload that are due on `socket`.
    pub fn announced(&self, socket: u16) -> u64 {
        self.inlets[usize::from(socket)].announced
    }

    /// Whether the peer sends nothing more on `socket`, and all of it was read.
    pub fn is_finished(&self, socket: u16) -> bool {
        let inlet = &self.inlets[usize::from(socket)];
        inlet.goodbye && inlet.announced == 0
    }

    /// Whether payload is due on any socket, or a transfer is incomplete.
    pub fn expects_payload(&self) -> bool {
        self.incomplete != 0
    }

    /// Says that the first `count` bytes that are due on `socket` were read from it. They count once
    /// [`Protocol::placed`] says that they are where they belong.
    pub fn taken(&mut self, socket: u16, count: u64) {
        let inlet = &mut self.inlets[usize::from(socket)];
        if let Some(first) = inlet.due.front_mut() {
            debug_assert!(count <= first.len);
            first.offset += count;
            first.len -= count;
            if first.len == 0 {
                inlet.due.pop_front();
            }
            inlet.announced -= count;
        }
    }

    /// Says that `count` more bytes of a transfer are where they belong.
    pub fn placed(&mut self, kind: Kind, id: u64, count: u64) {
        let Some(incoming) = self.incoming.get_mut(&(kind, id)) else { return };
        incoming.placed += count;
        debug_assert!(incoming.placed <= incoming.total);
        if incoming.is_complete() {
            self.incomplete -= 1;
            self.completed(kind, id);
        }
    }

    /// Says that bytes of a transfer could not be brought where they belong. They count as placed
    /// all the same; the transfer fails once it is complete.
    pub fn misplaced(&mut self, kind: Kind, id: u64, count: u64) {
        if let Some(incoming) = self.incoming.get_mut(&(kind, id)) {
            incoming.refusal.get_or_insert(Refusal::MemoryFailed);
        }
        self.placed(kind, id, count);
    }

    /// Says that the stream of `socket` has ended.
    ///
    /// # Errors
    /// It ended before its goodbye.
    pub fn ended(&self, socket: u16) -> Result<(), Cut> {
        let inlet = &self.inlets[usize::from(socket)];
        let header = if inlet.have == 0 { 0 } else { (HEADER - inlet.have) as u64 };
        let missing = header + inlet.announced;
        match inlet.goodbye && missing == 0 {
            true => Ok(()),
            false => Err(Cut { socket, missing }),
        }
    }

    fn frame(
        &mut self,
        socket: u16,
        header: &Header,
        memory: &mut impl Memory,
    ) -> Result<(), PeerError> {
        let Header { kind, id, .. } = *header;
        if self.inlets[usize::from(socket)].goodbye && kind != Kind::Close {
            return Err(PeerError::AfterClose { kind });
        }
        self.out.heard(header.posted, header.credit)?;
        match kind {
            Kind::Message | Kind::Write | Kind::ReadReply | Kind::Notification => {
                self.agreed.check_shape(socket, header)?;
                self.chunk(header, memory)
            }
            Kind::ReadRequest => self.read_requested(header, memory),
            Kind::WriteDone => self.write_done(header),
            Kind::ReadRefused => self.read_refused(header),
            Kind::Update => Ok(()),
            Kind::Close => {
                let goodbye = status_of(header)?;
                self.agreed.check_socket(socket, header.socket)?;
                let inlet = &mut self.inlets[usize::from(header.socket)];
                if std::mem::replace(&mut inlet.goodbye, true) {
                    return Err(PeerError::Repeated { kind, id });
                }
                if goodbye != Goodbye::Finished || self.inlets.iter().all(|inlet| inlet.goodbye) {
                    self.events.push_back(Event::Goodbye(goodbye));
                }
                Ok(())
            }
        }
    }

    fn chunk(&mut self, header: &Header, memory: &mut impl Memory) -> Result<(), PeerError> {
        let Header { kind, id, total, .. } = *header;
        let is_new = !self.incoming.contains_key(&(kind, id));
        if is_new {
            let incoming = self.admit_incoming(header, memory)?;
            self.incoming.insert((kind, id), incoming);
            self.incomplete += 1;
        }
        let Entry::Occupied(mut entry) = self.incoming.entry((kind, id)) else { return Ok(()) };
        let incoming = entry.get_mut();
        incoming.announce(header)?;
        if header.len == 0 && !is_new && kind != Kind::ReadReply {
            // A transfer of no bytes has one chunk, which completed it. Reads are there before their
            // reply, and no longer after it.
            return Err(PeerError::Repeated { kind, id });
        }
        if kind == Kind::Write && incoming.refusal.is_none() && !is_new {
            // The region may have been deregistered since the first chunk.
            let checked = memory.check(header.key, header.addr, total, Need::Write);
            incoming.refusal = checked.err();
        }
        if kind == Kind::ReadReply && header.status != 0 {
            // The region was deregistered midway; the rest are zeros.
            incoming.refusal = Some(status_of(header)?);
        }
        if incoming.refusal.is_some() {
            incoming.target = Target::Discard;
        }
        let target = incoming.target;
        if header.len != 0 {
            let (offset, len) = (header.offset, u64::from(header.len));
            let due = Due { kind, id, total, target, offset, len };
            let inlet = &mut self.inlets[usize::from(header.socket)];
            inlet.announced += len;
            inlet.due.push_back(due);
        } else {
            // An empty transfer is complete as soon as it is announced.
            self.placed(kind, id, 0);
        }
        Ok(())
    }

    /// The first chunk of a transfer.
    fn admit_incoming(
        &mut self,
        header: &Header,
        memory: &mut impl Memory,
    ) -> Result<Incoming, PeerError> {
        let Header { kind, id, total, addr, key, eager, .. } = *header;
        match kind {
            Kind::Message => {
                if self.messages_in.is_finished(id) {
                    return Err(PeerError::Repeated { kind, id });
                }
                let (posted, request) = (self.numbers[Op::Receive as usize], Request::receive(id));
                let target = match self.requests.len(request) {
                    Some(capacity) if total > capacity => Target::Discard,
                    Some(_) => Target::Request(request),
                    None if eager => Target::Buffer,
                    None => return Err(PeerError::NotPosted { id, posted }),
                };
                let mut incoming = Incoming::new(header, target, None);
                if eager {
                    incoming.charged = self.window.charge(total).map_err(exceeded)?;
                    if total > MOST_EAGER {
                        return Err(PeerError::NotPosted { id, posted });
                    }
                }
                Ok(incoming)
            }
            Kind::Write => {
                self.out.admit_numbered(kind, id, &self.writes_in)?;
                let refusal = memory.check(key, addr, total, Need::Write).err();
                Ok(Incoming::new(header, Target::Region { key, addr }, refusal))
            }
            Kind::Notification => {
                if id < self.next_notification_in {
                    return Err(PeerError::Repeated { kind, id });
                }
                let mut incoming = Incoming::new(header, Target::Buffer, None);
                incoming.charged = self.window.charge(total).map_err(exceeded)?;
                Ok(incoming)
            }
            // The incoming half of a read is there from the moment at which it is posted.
            _ => Err(PeerError::NotAsked { kind, id }),
        }
    }

    fn read_requested(
        &mut self,
        header: &Header,
        memory: &mut impl Memory,
    ) -> Result<(), PeerError> {
        let Header { kind, id, total, addr, key, .. } = *header;
        self.out.admit_numbered(kind, id, &self.reads_in)?;
        if self.replies.contains_key(&id) {
            return Err(PeerError::Repeated { kind, id });
        }
        self.reply(header, memory.check(key, addr, total, Need::Read).err());
        Ok(())
    }
}

impl Agreed {
    /// The socket that a header names: its own, or with separate headers any.
    fn check_socket(&self, carried: u16, named: u16) -> Result<(), PeerError> {
        let right = match self.receive {
            Framing::Inline => named == carried,
            Framing::Separate => named < self.sockets,
        };
        if right { Ok(()) } else { Err(PeerError::WrongSocket { named, carried }) }
    }

    /// Checks the rules of every chunk.
    fn check_shape(&self, socket: u16, header: &Header) -> Result<(), PeerError> {
        let Header { kind, len, offset, total, .. } = *header;
        self.check_socket(socket, header.socket)?;
        if self.receive == Framing::Separate && header.socket == 0 && len != 0 {
            return Err(PeerError::WrongSocket { named: 0, carried: socket });
        }
        if len > self.chunk {
            return Err(PeerError::ChunkTooLong { len, most: self.chunk });
        }
        if len == 0 && total != 0 {
            return Err(PeerError::EmptyChunk { total });
        }
        if offset.checked_add(u64::from(len)).is_none_or(|end| end > total) {
            return Err(PeerError::Outside { offset, len, total });
        }
        if kind == Kind::Notification && (total > MOST_NOTIFICATION || total != u64::from(len)) {
            return Err(PeerError::NotificationTooLong { len: total, most: MOST_NOTIFICATION });
        }
        Ok(())
    }
}

fn exceeded((used, window): (u64, u64)) -> PeerError {
    PeerError::WindowExceeded { used, window }
}

impl Outlet {
    /// Whether the peer may begin a write or a read of this number, which must be new and near the
    /// first that is unfinished. A peer that keeps to the number of operations that was agreed on has
    /// no more answers to come than it has operations; beside them wait the requests of this end.
    fn admit_numbered(&self, kind: Kind, id: u64, finished: &Sequence) -> Result<(), PeerError> {
        if finished.is_finished(id) {
            return Err(PeerError::Repeated { kind, id });
        }
        let (first, most) = (finished.low(), self.agreed.open);
        if id - first >= u64::from(most) {
            return Err(PeerError::TooManyOpen { kind, id, first, most });
        }
        let waiting = self.control.len();
        if waiting >= 3 * most as usize {
            return Err(PeerError::Unread { kind, id, waiting });
        }
        Ok(())
    }
}
