//! The receiving half of a socket: bytes become headers and payload in place.

use super::Engine;
use super::placement::{Placement, Then};
use crate::error::TcpError;
use crate::protocol::{Due, Target};
use std::io;
use warpverbs_devmem::stream::{Part, receive};
use warpverbs_mem::{BounceBuffer, BounceShare, Kind as MemKind, Region};

/// Bytes read at a time while no payload is due.
const SCRATCH: usize = 16 << 10;
/// While more payload than this is due, only the next header is read behind it: bytes of the next
/// chunk belong in place as well.
const LONG: u64 = 16 << 10;
/// Bytes read behind long payload.
const BEHIND: usize = 64;
/// System calls on one socket in a row.
const TURN: usize = 8;
/// Bytes that are read at a time to be discarded.
const WASTE: usize = 64 << 10;

/// Bytes that were read from a socket and are not consumed.
pub(super) struct Inbound {
    scratch: Box<[u8]>,
    start: usize,
    end: usize,
    /// The bounce buffer of the chunk that comes in, and how much of it is filled.
    bounce: Option<(BounceBuffer, u64)>,
    share: BounceShare,
    pub(super) ended: bool,
}

impl Inbound {
    pub(super) fn new(share: BounceShare) -> Self {
        let scratch = vec![0; SCRATCH].into();
        Self { scratch, start: 0, end: 0, bounce: None, share, ended: false }
    }
}

/// The destination of bytes that are due.
enum Landing {
    /// The memory of the transfer, and the offset in it.
    Place(Region, u64),
    /// A bounce buffer, and the offset in it.
    Bounce(Region, u64),
    /// Nowhere.
    Waste,
}

impl Engine {
    /// Reads a socket until it is empty or its turn ends. Whether it had any bytes.
    pub(super) fn receive(&mut self, socket: u16) -> Result<bool, TcpError> {
        let at = usize::from(socket);
        let mut any = false;
        for _ in 0..TURN {
            self.check_ending()?;
            if self.inbound[at].ended || !self.digest(socket)? {
                break;
            }
            let due = self.place.protocol.due(socket);
            let landing = match &due {
                Some(due) => match self.landing(at, due)? {
                    Some(landing) => Some(landing),
                    // All bounce buffers are in use.
                    None => break,
                },
                None if self.place.protocol.takes_headers(socket) => None,
                None => break,
            };
            let (count, asked) = match self.read(socket, due.as_ref(), landing.as_ref()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TcpError::socket("receiving")(error)),
            };
            any = true;
            if count == 0 {
                self.inbound[at].ended = true;
                self.place.protocol.ended(socket)?;
                break;
            }
            let direct = match (due, landing) {
                (Some(due), Some(landing)) => {
                    let direct = due.len.min(count as u64);
                    self.landed(socket, &due, landing, direct);
                    direct as usize
                }
                _ => 0,
            };
            let inbound = &mut self.inbound[at];
            (inbound.start, inbound.end) = (0, count - direct);
            if !self.digest(socket)? || count < asked {
                break;
            }
        }
        Ok(any)
    }

    /// One system call. How many bytes came, and how many there was room for.
    fn read(
        &mut self,
        socket: u16,
        due: Option<&Due>,
        landing: Option<&Landing>,
    ) -> io::Result<(usize, usize)> {
        let at = usize::from(socket);
        let due_len = due.map_or(0, |due| due.len);
        let behind = match due {
            Some(_) if due_len > LONG => BEHIND,
            _ => SCRATCH,
        };
        let part = match landing {
            Some(Landing::Place(region, offset) | Landing::Bounce(region, offset)) => {
                Some(Part { region, offset: *offset, len: due_len as usize })
            }
            Some(Landing::Waste) => {
                let len = (due_len as usize).min(WASTE);
                Some(Part { region: &self.waste, offset: 0, len })
            }
            None => None,
        };
        // Wasted bytes may end before what is due: nothing may be read behind them.
        let whole = part.is_none_or(|part| part.len as u64 == due_len);
        let behind = if whole { behind } else { 0 };
        let asked = behind + part.map_or(0, |part| part.len);
        let rest = &mut self.inbound[at].scratch[..behind];
        let count = receive(&self.sockets[at], part, rest)?;
        Ok((count, asked))
    }

    /// Consumes what was read before. Whether all of it could be.
    fn digest(&mut self, socket: u16) -> Result<bool, TcpError> {
        let at = usize::from(socket);
        while self.inbound[at].start < self.inbound[at].end {
            let (start, end) = (self.inbound[at].start, self.inbound[at].end);
            let count = match self.place.protocol.due(socket) {
                Some(due) => {
                    let count = due.len.min((end - start) as u64);
                    let Some(landing) = self.landing(at, &due)? else { return Ok(false) };
                    if let Landing::Place(region, offset) | Landing::Bounce(region, offset) =
                        &landing
                    {
                        let bytes = &self.inbound[at].scratch[start..start + count as usize];
                        region.write(*offset, bytes)?;
                    }
                    self.landed(socket, &due, landing, count);
                    count as usize
                }
                None => {
                    let bytes = &self.inbound[at].scratch[start..end];
                    let Placement { protocol, keys, .. } = &mut self.place;
                    protocol.feed(socket, bytes, keys)?
                }
            };
            if count == 0 {
                return Ok(false);
            }
            self.inbound[at].start += count;
        }
        Ok(true)
    }

    /// Where the next byte that is due goes; `None` while all bounce buffers are in use.
    fn landing(&mut self, at: usize, due: &Due) -> Result<Option<Landing>, TcpError> {
        if let Some((buffer, filled)) = &self.inbound[at].bounce {
            return Ok(Some(Landing::Bounce(Region::clone(buffer), *filled)));
        }
        let Some(region) = self.place.target(due)? else { return Ok(Some(Landing::Waste)) };
        if region.kind() == MemKind::Host {
            return Ok(Some(Landing::Place(region, due.offset)));
        }
        let inbound = &mut self.inbound[at];
        let buffer = inbound.share.take(&*region.engine()?, region.kind())?;
        Ok(buffer.map(|buffer| {
            let landing = Landing::Bounce(Region::clone(&buffer), 0);
            inbound.bounce = Some((buffer, 0));
            landing
        }))
    }

    /// The first `count` bytes that were due have landed.
    fn landed(&mut self, socket: u16, due: &Due, landing: Landing, count: u64) {
        let Due { kind, id, .. } = *due;
        let place = &mut self.place;
        place.protocol.taken(socket, count);
        let bounce = &mut self.inbound[usize::from(socket)].bounce;
        match landing {
            Landing::Place(..) => place.protocol.placed(kind, id, count),
            Landing::Waste => place.placed(kind, id, count, due.target != Target::Discard),
            Landing::Bounce(..) if count < due.len => {
                if let Some((_, filled)) = bounce {
                    *filled += count;
                }
            }
            Landing::Bounce(from, filled) => {
                // The chunk is complete.
                let buffer = bounce.take().map(|(buffer, _)| buffer);
                let (to, len) = (place.target(due), filled + count);
                let offset = due.offset + count - len;
                let then = Then::Place { kind, id, len, buffer };
                place.copy(to, offset, (&from, 0), len, then);
            }
        }
    }
}
