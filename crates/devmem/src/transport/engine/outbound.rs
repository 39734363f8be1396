//! The sending half of a socket: frames become bytes.

use super::bounce::{self, Bounce};
use crate::send::{Outgoing, Zerocopy};
use crate::stream::{Part, send, send_more};
use crate::transport::error::TransportError;
use crate::transport::protocol::Kind;
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use warpverbs_mem::{MemError, Pending, Region};

/// Frames are gathered up to so many bytes before they are sent.
const GATHER: usize = 32 << 10;

/// A piece of payload that is sent from where it lies.
struct Piece {
    kind: Kind,
    id: u64,
    /// The user's memory, or the bounce buffer.
    region: Region,
    offset: u64,
    left: usize,
    len: usize,
    bounced: bool,
    /// The copy into the bounce buffer.
    copy: Option<Pending>,
    /// Whether the kernel is to send it without copying, and the last such send.
    zerocopy: bool,
    last: Option<u64>,
}

impl Piece {
    /// What is left of it.
    fn part(&self) -> Part<'_> {
        Part { region: &self.region, offset: self.offset, len: self.left }
    }
}

/// Payload that was handed over, and that the kernel reads until this send has completed.
struct Held {
    kind: Kind,
    id: u64,
    last: u64,
    _region: Region,
}

/// What a socket has yet to send: gathered bytes, then a piece of payload.
#[derive(Default)]
pub(super) struct Outbound {
    gathered: Vec<u8>,
    sent: usize,
    /// Payload among the gathered bytes, and where in them it ends.
    inside: VecDeque<(Kind, u64, u64, usize)>,
    piece: Option<Piece>,
    bounce: Bounce,
    /// The socket takes nothing more for now.
    pub(super) blocked: bool,
    /// If the kernel can send without copying: pieces of so many bytes at least.
    zerocopy: Option<(Zerocopy, u64)>,
    held: VecDeque<Held>,
}

impl Outbound {
    /// Sends of `zerocopy` bytes or more are not copied, as long as the kernel has a use for that.
    pub(super) fn new(socket: &TcpStream, zerocopy: Option<u64>) -> Self {
        let enable = |least| Some((Zerocopy::enable(socket.as_fd()).ok()?, least));
        Self { zerocopy: zerocopy.and_then(enable), ..Self::default() }
    }

    /// Whether the kernel may read payload of this transfer that was handed over.
    pub(super) fn holds(&self, kind: Kind, id: u64) -> bool {
        self.held.iter().any(|held| held.kind == kind && held.id == id)
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

    /// Looks which sends have completed. Whether any has.
    pub(super) fn reap(&mut self, socket: &TcpStream) -> Result<bool, TransportError> {
        if !self.reads_memory() {
            return Ok(false);
        }
        let Some((zerocopy, least)) = &mut self.zerocopy else { return Ok(false) };
        let before = zerocopy.sends().done_before();
        let sends = zerocopy.poll(socket.as_fd())?;
        let done = sends.done_before();
        if sends.copied() != 0 {
            // The way to this peer, loopback for example, copies: that costs more than one copy.
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

    /// Adds payload that is sent from where it lies, or through a bounce buffer of `chunk` bytes.
    pub(super) fn attach(
        &mut self,
        kind: Kind,
        id: u64,
        region: Region,
        offset: u64,
        len: usize,
        chunk: usize,
    ) -> Result<(), MemError> {
        debug_assert!(self.piece.is_none());
        // What the peer reads may be deregistered, and used otherwise, at any time.
        let own = matches!(kind, Kind::Message | Kind::Write);
        let least = self.zerocopy.as_ref().map_or(u64::MAX, |(_, least)| *least);
        let piece = Piece {
            kind,
            id,
            region,
            offset,
            left: len,
            len,
            bounced: false,
            copy: None,
            zerocopy: own && len as u64 >= least,
            last: None,
        };
        self.piece = Some(match piece.region.kind() {
            warpverbs_mem::Kind::Host => piece,
            // The buffer of the piece before is free again: there is always one.
            _ => match self.bounce.take(&piece.region, chunk, 1)? {
                None => piece,
                Some(buffer) => {
                    let copy = bounce::start(&buffer, 0, &piece.region, offset, len)?;
                    let zerocopy = false;
                    Piece { region: buffer, offset: 0, bounced: true, copy, zerocopy, ..piece }
                }
            },
        });
        Ok(())
    }

    /// Whether a copy engine is at work for this socket.
    pub(super) fn is_copying(&self) -> bool {
        self.piece.as_ref().is_some_and(|piece| piece.copy.is_some())
    }

    /// Looks whether the copy into the bounce buffer is done.
    fn poll_copy(&mut self) -> Result<(), MemError> {
        if let Some(piece) = &mut self.piece
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
    /// The socket's, but for one that is full; the copy engine's.
    pub(super) fn flush(
        &mut self,
        socket: &TcpStream,
        mut done: impl FnMut(Kind, u64, u64),
    ) -> Result<bool, TransportError> {
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
                Err(error) => return Err(TransportError::socket("sending")(error)),
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

    /// One system call. How many bytes the socket took, and how many it was offered; `None` if there
    /// are none for now.
    fn hand_over(&mut self, socket: &TcpStream) -> io::Result<Option<(usize, usize)>> {
        let head = &self.gathered[self.sent..];
        let piece = self.piece.as_mut().filter(|piece| piece.copy.is_none());
        let part = match piece {
            Some(piece) if piece.zerocopy => {
                if !head.is_empty() {
                    // The piece follows: the kernel need not send the header by itself.
                    return Ok(Some((send_more(socket, head)?, head.len())));
                }
                if let Some((zerocopy, _)) = &mut self.zerocopy {
                    let (from, len) = (Outgoing::Host(piece.region.clone()), piece.left as u64);
                    match zerocopy.send(socket.as_fd(), &from, piece.offset, len) {
                        Ok((number, count)) => {
                            piece.last = Some(number);
                            return Ok(Some((count as usize, piece.left)));
                        }
                        // Too many pages are pinned, or too many completions wait.
                        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                        Err(error) => return Err(error),
                    }
                }
                piece.zerocopy = false;
                Some(piece.part())
            }
            piece => piece.map(|piece| piece.part()),
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
        // Each as soon as it was taken: the peer may answer it before it has the rest.
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
        if let Some(piece) = &mut self.piece {
            piece.offset += (count - head) as u64;
            piece.left -= count - head;
            if piece.left == 0
                && let Some(piece) = self.piece.take()
            {
                let Piece { kind, id, region, len, .. } = piece;
                if let Some(last) = piece.last {
                    self.held.push_back(Held { kind, id, last, _region: region });
                } else if piece.bounced {
                    self.bounce.give_back(region);
                }
                done(kind, id, len as u64);
            }
        }
    }
}
