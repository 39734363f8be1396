//! Transfers go to their sockets, with the memory in which they lie.

use super::Engine;
use super::outbound::Piece;
use crate::error::TcpError;
use crate::keys::Asked;
use crate::protocol::{Framing, Payload, Source};
use warpverbs_mem::{HostBuf, Kind as MemKind, MemError, Progress, Region, copy};

/// Payload up to this length is copied behind its header.
const GATHERED: usize = 8 << 10;
/// System calls on one socket in a row.
const TURN: usize = 64;

impl Engine {
    /// Makes frames of what can be sent, and hands the sockets as much as they take. Whether anything was
    /// sent.
    pub(super) fn transmit(&mut self) -> Result<bool, TcpError> {
        let mut any = false;
        self.deferred = false;
        let separate = self.place.protocol.agreed().send == Framing::Separate;
        for socket in 0..self.sockets.len() as u16 {
            if self.place.protocol.is_quiet() && self.outbound[usize::from(socket)].is_empty() {
                continue;
            }
            for _ in 0..TURN {
                self.check_ending()?;
                while !self.place.protocol.is_quiet() && self.has_room(socket, separate) {
                    let mut asked = Asked::new(&self.place.keys);
                    let Some(frame) = self.place.protocol.next_frame(socket, &mut asked) else {
                        break;
                    };
                    let found = asked.found();
                    self.outbound[usize::from(frame.carrier)].push(&frame.header);
                    if let Some(payload) = frame.payload {
                        self.attach(socket, &payload, found)?;
                    }
                }
                if separate && socket != 0 {
                    any |= self.flush(0)?;
                }
                if !self.flush(socket)? {
                    break;
                }
                any = true;
            }
        }
        Ok(any)
    }

    fn has_room(&self, socket: u16, separate: bool) -> bool {
        let free = |at: usize| self.outbound[at].has_room();
        free(usize::from(socket)) && (!separate || free(0))
    }

    /// Adds the payload of a frame. `found`: the memory that the protocol has just asked for.
    pub(super) fn attach(
        &mut self,
        socket: u16,
        payload: &Payload,
        found: Option<Region>,
    ) -> Result<(), TcpError> {
        let Payload { kind, id, source, offset, len } = *payload;
        let (region, offset, len) = match source {
            Source::Request(request) => (self.place.memory_of(request), offset, len as usize),
            Source::Region { .. } => (found, offset, len as usize),
            Source::Zeros => (Some(self.zeros()?), 0, len as usize),
        };
        let Some(region) = region else { return Err(TcpError::UnknownRequest) };
        let outbound = &mut self.outbound[usize::from(socket)];
        let mut piece = Piece { kind, id, region, offset, len, bounce: None, copy: None };
        if piece.region.kind() != MemKind::Host {
            let engine = piece.region.engine()?;
            // Each socket sends one piece at a time: there is always a buffer.
            if let Some(buffer) = outbound.share.take(&*engine, piece.region.kind())? {
                if let Progress::Pending(copy) = copy(&buffer, 0, &piece.region, offset, len)? {
                    piece.copy = Some(copy);
                }
                (piece.region, piece.offset) = (Region::clone(&buffer), 0);
                piece.bounce = Some(buffer);
            }
        } else if len <= GATHERED {
            return Ok(outbound.gather(kind, id, &piece.region, offset, len)?);
        }
        outbound.attach(piece);
        Ok(())
    }

    fn zeros(&mut self) -> Result<Region, MemError> {
        let chunk = self.place.protocol.agreed().chunk as usize;
        let zeros = match self.zeros.take() {
            Some(zeros) => zeros,
            None => HostBuf::region(chunk)?,
        };
        Ok(self.zeros.insert(zeros).clone())
    }

    pub(super) fn flush(&mut self, socket: u16) -> Result<bool, TcpError> {
        let (at, protocol) = (usize::from(socket), &mut self.place.protocol);
        self.outbound[at].flush(&self.sockets[at], |kind, id, len| protocol.sent(kind, id, len))
    }
}
