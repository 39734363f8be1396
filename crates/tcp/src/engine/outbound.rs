//! The sending half of a socket: frames become bytes.

use crate::error::TcpError;
use crate::protocol::{Kind, Request};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use warpverbs_devmem::send::{Outgoing, SendError, Zerocopy};
use warpverbs_devmem::stream::{Part, send, send_more};
use warpverbs_mem::{BounceBuffer, BounceShare, MemError, Pending, Region};

/// Frames are gathered up to this many bytes before they are sent.
const GATHER: usize = 32 << 10;

/// A piece of payload that is sent from where it lies.
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) id: u64,
    /// The memory of a program, or a bounce buffer.
    pub(super) region: Region,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The copy into the bounce buffer, while that is under way.
    pub(super) copy: Option<Pending>,
    /// `Some` if the region is a bounce buffer.
    pub(super) bounce: Option<BounceBuffer>,
}

/// A piece that is being sent.
struct Sending {
    piece: Piece,
    left: usize,
    /// Whether the kernel is to send it without copying, and the last such send.
    zerocopy: bool,
    last: Option<u64>,
}

impl Sending {
    /// The rest of it.
    fn part(&self) -> Part<'_> {
        let Piece { region, offset, len, .. } = &self.piece;
        Part { region, offset: offset + (len - self.left) as u64, len: self.left }
    }
}

/// Payload that was handed over, and that the kernel reads until this send has completed.
struct Held {
    request: Option<Request>,
    last: u64,
    _region: Region,
}

/// Bytes that a socket has yet to send: gathered bytes, then a piece of payload.
pub(super) struct Outbound {
    gathered: Vec<u8>,
    sent: usize,
    /// Payload among the gathered bytes, and where in them it ends.
    inside: VecDeque<(Kind, u64, u64, usize)>,
    piece: Option<Sending>,
    /// The socket is full.
    pub(super) blocked: bool,
    /// `Some` if the kernel can send without copying, with the least length of such pieces.
    zerocopy: Option<(Zerocopy, u64)>,
    held: VecDeque<Held>,
    /// Bounce buffers.
    pub(super) share: BounceShare,
}

impl Outbound {
    /// Sends of `zerocopy` bytes or more are not copied, unless the kernel reports that it copies anyway.
    pub(super) fn new(socket: &TcpStream, zerocopy: Option<u64>, share: BounceShare) -> Self {
        let enable = |least| Some((Zerocopy::enable(socket.as_fd()).ok()?, least));
        Self {
            gathered: Vec::new(),
            sent: 0,
            inside: VecDeque::new(),
            piece: None,
            blocked: false,
            zerocopy: zerocopy.and_then(enable),
            held: VecDeque::new(),
            share,
        }
    }

    /// Whether the kernel may read payload of this request that was handed over.
    pub(super) fn holds(&self, request: Request) -> bool {
        self.held.iter().any(|held| held.request == Some(request))
    }

    /// Whether the kernel may read memory of the program.
    #[inline]
    pub(super) fn reads_memory(&self) -> bool {
        self.zerocopy.as_ref().is_some_and(|(zerocopy, _)| zerocopy.sends().in_flight() != 0)
    }

    /// Sends without copies, and how many of them the kernel copied.
    pub(super) fn zerocopied(&self) -> (u64, u64) {
        let sends = self.zerocopy.as_ref().map(|(zerocopy, _)| zerocopy.sends());
        sends.map_or((0, 0), |sends| (sends.done_before() + sends.in_flight(), sends.copied()))
    }

    /// Reaps completed sends. Whether there were any.
    pub(super) fn reap(&mut self, socket: &TcpStream) -> Result<bool, TcpError> {
        if !self.reads_memory() {
            return Ok(false);
        }
        let Some((zerocopy, least)) = &mut self.zerocopy else { return Ok(false) };
        let before = zerocopy.sends().done_before();
        let sends = zerocopy.poll(socket.as_fd())?;
        let done = sends.done_before();
        if sends.copied() != 0 {
            // The kernel copies for this peer anyway, as over loopback, which costs more than an ordinary
            // send.
            *least = u64::MAX;
        }
        while self.held.front().is_some_and(|held| held.last < done) {
            self.held.pop_front();
        }
        Ok(done != before)
    }

    /// Whether another frame can be added.
    pub(super) fn has_room(&self) -> bool {
        self.piece.is_none() && self.gathered.len() < GATHER && !self.blocked
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.piece.is_none()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
    }

    /// Adds payload by copying it.
    pub(super) fn gather(
        &mut self,
        kind: Kind,
        id: u64,
        from: &Region,
        offset: u64,
        len: usize,
    ) -> Result<(), MemError> {
        let at = self.gathered.len();
        self.gathered.resize(at + len, 0);
        from.read(offset, &mut self.gathered[at..])?;
        self.inside.push_back((kind, id, len as u64, at + len));
        Ok(())
    }

    /// Adds payload that is sent from where it lies.
    pub(super) fn attach(&mut self, piece: Piece) {
        debug_assert!(self.piece.is_none());
        // Memory that the peer reads may be deregistered and reused at any time.
        let own = matches!(piece.kind, Kind::Message | Kind::Write) && piece.bounce.is_none();
        let least = self.zerocopy.as_ref().map_or(u64::MAX, |(_, least)| *least);
        let (left, zerocopy) = (piece.len, own && piece.len as u64 >= least);
        self.piece = Some(Sending { piece, left, zerocopy, last: None });
    }

    /// Whether a copy engine is at work for this socket.
    pub(super) fn is_copying(&self) -> bool {
        self.piece.as_ref().is_some_and(|sending| sending.piece.copy.is_some())
    }

    /// Checks whether the copy into the bounce buffer is done.
    fn poll_copy(&mut self) -> Result<(), MemError> {
        if let Some(Sending { piece, .. }) = &mut self.piece
            && let Some(copy) = &piece.copy
            && copy.is_done()?
        {
            piece.copy = None;
        }
        Ok(())
    }

    /// Sends what the socket takes, and reports payload of which the last byte was taken. Whether
    /// anything was sent.
    ///
    /// # Errors
    /// The socket failed (a full socket is not an error), or the copy engine failed.
    pub(super) fn flush(
        &mut self,
        socket: &TcpStream,
        mut done: impl FnMut(Kind, u64, u64),
    ) -> Result<bool, TcpError> {
        self.poll_copy()?;
        let mut any = false;
        self.blocked = false;
        while !self.is_empty() {
            let (count, offered) = match self.hand_over(socket) {
                Ok(None) => break,
                Ok(Some(handed)) => handed,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TcpError::socket("sending")(error)),
            };
            any = true;
            self.advance(count, &mut done);
            if count < offered {
                self.blocked = true;
                break;
            }
        }
        Ok(any)
    }

    /// One system call. Bytes that the socket took, and bytes that it was offered; `None` if there is
    /// nothing to send.
    fn hand_over(&mut self, socket: &TcpStream) -> io::Result<Option<(usize, usize)>> {
        let head = &self.gathered[self.sent..];
        let sending = self.piece.as_mut().filter(|sending| sending.piece.copy.is_none());
        let part = match sending {
            Some(sending) if sending.zerocopy => {
                if !head.is_empty() {
                    // The piece follows: the kernel need not send the header by itself.
                    return Ok(Some((send_more(socket, head)?, head.len())));
                }
                if let Some((zerocopy, _)) = &mut self.zerocopy {
                    let Part { region, offset, len } = sending.part();
                    let from = Outgoing::Host(region.clone());
                    match zerocopy.send(socket.as_fd(), &from, offset, len as u64) {
                        Ok((number, count)) => {
                            sending.last = Some(number);
                            return Ok(Some((count as usize, sending.left)));
                        }
                        Err(SendError::Socket { cause, .. }) => {
                            // Too many pages are pinned, or too many completions wait.
                            if cause.raw_os_error() != Some(libc::ENOBUFS) {
                                return Err(cause);
                            }
                        }
                        Err(error) => return Err(io::Error::other(error)),
                    }
                }
                sending.zerocopy = false;
                Some(sending.part())
            }
            sending => sending.map(|sending| sending.part()),
        };
        if head.is_empty() && part.is_none() {
            return Ok(None);
        }
        let offered = head.len() + part.map_or(0, |part| part.len);
        Ok(Some((send(socket, head, part)?, offered)))
    }

    fn advance(&mut self, count: usize, done: &mut impl FnMut(Kind, u64, u64)) {
        let head = count.min(self.gathered.len() - self.sent);
        self.sent += head;
        // Each is reported as soon as it was taken: the peer may answer it before it has the rest.
        while let Some(&(kind, id, len, end)) = self.inside.front()
            && end <= self.sent
        {
            self.inside.pop_front();
            done(kind, id, len);
        }
        if self.sent == self.gathered.len() {
            self.gathered.clear();
            self.sent = 0;
        }
        let Some(sending) = &mut self.piece else { return };
        sending.left -= count - head;
        if sending.left == 0
            && let Some(Sending { piece, last, .. }) = self.piece.take()
        {
            let Piece { kind, id, region, len, .. } = piece;
            if let Some(last) = last {
                let request = Request::carried(kind, id);
                self.held.push_back(Held { request, last, _region: region });
            }
            done(kind, id, len as u64);
        }
    }
}
