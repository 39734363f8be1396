//! The sending half of a socket: frames become bytes.

use super::bounce::{self, Bounce};
use crate::transport::error::TransportError;
use crate::transport::protocol::Kind;
use std::io;
use std::net::TcpStream;
use warpverbs_mem::socket::{Part, send};
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
}

/// What a socket has yet to send: gathered bytes, then a piece of payload.
#[derive(Default)]
pub(super) struct Outbound {
    gathered: Vec<u8>,
    sent: usize,
    /// Payload among the gathered bytes.
    inside: Vec<(Kind, u64, u64)>,
    piece: Option<Piece>,
    bounce: Bounce,
    /// The socket takes nothing more for now.
    pub(super) blocked: bool,
}

impl Outbound {
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
        self.inside.push((kind, id, len as u64));
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
        let piece = Piece { kind, id, region, offset, left: len, len, bounced: false, copy: None };
        self.piece = Some(match piece.region.kind() {
            warpverbs_mem::Kind::Host => piece,
            // The buffer of the piece before is free again: there is always one.
            _ => match self.bounce.take(&piece.region, chunk, 1)? {
                None => piece,
                Some(buffer) => {
                    let copy = bounce::start(&buffer, 0, &piece.region, offset, len)?;
                    Piece { region: buffer, offset: 0, bounced: true, copy, ..piece }
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
            let piece = self.piece.as_ref().filter(|piece| piece.copy.is_none());
            let part = piece.map(|p| Part { region: &p.region, offset: p.offset, len: p.left });
            let head = &self.gathered[self.sent..];
            if head.is_empty() && part.is_none() {
                break;
            }
            let offered = head.len() + part.map_or(0, |part| part.len);
            let count = match send(socket, head, part) {
                Ok(count) => count,
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

    fn advance(&mut self, count: usize, done: &mut impl FnMut(Kind, u64, u64)) {
        let head = count.min(self.gathered.len() - self.sent);
        self.sent += head;
        if self.sent == self.gathered.len() {
            self.gathered.clear();
            self.sent = 0;
            for (kind, id, len) in self.inside.drain(..) {
                done(kind, id, len);
            }
        }
        if let Some(piece) = &mut self.piece {
            piece.offset += (count - head) as u64;
            piece.left -= count - head;
            if piece.left == 0 {
                done(piece.kind, piece.id, piece.len as u64);
                if let Some(piece) = self.piece.take().filter(|piece| piece.bounced) {
                    self.bounce.give_back(piece.region);
                }
            }
        }
    }
}
