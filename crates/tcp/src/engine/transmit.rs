//! What is to be sent goes to its sockets, with the memory in which it lies.

use super::{Class, Engine};
use crate::error::TcpError;
use crate::keys::Asked;
use crate::protocol::{Framing, Payload, Source};
use warpverbs_mem::{HostBuf, Kind as MemKind, MemError, Region};

/// Payload up to this length is copied behind its header.
const GATHERED: usize = 8 << 10;
/// System calls for one socket before it is another's turn.
const TURN: usize = 64;

impl Engine {
    /// Frames what can be sent, and sends what the sockets take. Whether anything was sent.
    pub(super) fn transmit(&mut self) -> Result<bool, TcpError> {
        let mut any = false;
        self.deferred = false;
        let separate = self.protocol.agreed().send == Framing::Separate;
        for socket in 0..self.sockets.len() as u16 {
            if self.protocol.is_quiet() && self.outbound[usize::from(socket)].is_empty() {
                continue;
            }
            for _ in 0..TURN {
                self.check_ending()?;
                while !self.protocol.is_quiet() && self.has_room(socket, separate) {
                    let mut asked = Asked::new(&self.keys);
                    let Some(frame) = self.protocol.next_frame(socket, &mut asked) else { break };
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
        let chunk = self.protocol.agreed().chunk as usize;
        let (region, offset) = match source {
            Source::Message(id) => (self.memory_of(Class::Send, id), offset),
            Source::Write(id) => (self.memory_of(Class::Write, id), offset),
            Source::Notification(id) => (self.memory_of(Class::Notify, id), offset),
            Source::Region { .. } => (found, offset),
            Source::Zeros => (self.zeros(chunk)?, 0),
        };
        let outbound = &mut self.outbound[usize::from(socket)];
        let Some(region) = region else { return Err(TcpError::UnknownOperation) };
        let len = len as usize;
        match region.kind() {
            MemKind::Host if len <= GATHERED => outbound.gather(kind, id, &region, offset, len)?,
            _ => outbound.attach(kind, id, region, offset, len, chunk)?,
        }
        Ok(())
    }

    fn zeros(&mut self, len: usize) -> Result<Option<Region>, MemError> {
        if self.zeros.is_none() {
            self.zeros = Some(HostBuf::region(len)?);
        }
        Ok(self.zeros.clone())
    }

    pub(super) fn flush(&mut self, socket: u16) -> Result<bool, TcpError> {
        let (at, protocol) = (usize::from(socket), &mut self.protocol);
        self.outbound[at].flush(&self.sockets[at], |kind, id, len| protocol.sent(kind, id, len))
    }
}
