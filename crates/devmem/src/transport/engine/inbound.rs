//! The receiving half of a socket: bytes become headers and payload in place.

use super::{Engine, bounce};
use crate::stream::{Part, receive};
use crate::transport::error::TransportError;
use crate::transport::protocol::{Due, Kind, Need, Target};
use std::io;
use warpverbs_mem::{HostBuf, Kind as MemKind, MemError, Region, SmallBuf};

/// Bytes read at a time while no payload is due.
const SCRATCH: usize = 16 << 10;
/// While more payload than this is due, only the next header is read behind it: bytes of the next
/// chunk belong in place as well.
const LONG: u64 = 16 << 10;
/// Bytes read behind long payload.
const BEHIND: usize = 64;
/// System calls for one socket before it is another's turn.
const TURN: usize = 8;
/// Unwanted bytes are read so many at a time.
const WASTE: usize = 64 << 10;

/// What was read from a socket and is not consumed.
pub(super) struct Inbound {
    scratch: Box<[u8]>,
    start: usize,
    end: usize,
    /// The bounce buffer of the chunk that comes in, and how much of it is filled.
    bounce: Option<(Region, usize)>,
    pub(super) ended: bool,
}

impl Default for Inbound {
    fn default() -> Self {
        let scratch = vec![0; SCRATCH].into();
        Self { scratch, start: 0, end: 0, bounce: None, ended: false }
    }
}

/// Where bytes that are due go.
enum Landing {
    /// Where they belong.
    Place(Region, u64),
    /// To a bounce buffer.
    Bounce(Region, u64),
    /// Nowhere.
    Waste,
}

impl Engine {
    /// Reads what there is on a socket. Whether there was anything.
    pub(super) fn receive(&mut self, socket: u16) -> Result<bool, TransportError> {
        let at = usize::from(socket);
        let mut any = false;
        for _ in 0..TURN {
            self.check_ending()?;
            if self.inbound[at].ended || !self.digest(socket)? {
                break;
            }
            let due = self.protocol.due(socket);
            let landing = match &due {
                Some(due) => match self.landing(at, due)? {
                    Some(landing) => Some(landing),
                    // All bounce buffers are in use.
                    None => break,
                },
                None if self.protocol.takes_headers(socket) => None,
                None => break,
            };
            let (count, asked) = match self.read(socket, due.as_ref(), landing.as_ref()) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TransportError::socket("receiving")(error)),
            };
            any = true;
            if count == 0 {
                self.inbound[at].ended = true;
                self.protocol.ended(socket)?;
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
    fn digest(&mut self, socket: u16) -> Result<bool, TransportError> {
        let at = usize::from(socket);
        while self.inbound[at].start < self.inbound[at].end {
            let (start, end) = (self.inbound[at].start, self.inbound[at].end);
            let count = match self.protocol.due(socket) {
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
                    self.protocol.feed(socket, bytes, &mut self.keys)?
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
    fn landing(&mut self, at: usize, due: &Due) -> Result<Option<Landing>, TransportError> {
        if let Some((buffer, filled)) = &self.inbound[at].bounce {
            return Ok(Some(Landing::Bounce(buffer.clone(), *filled as u64)));
        }
        let Some(region) = self.target(due)? else { return Ok(Some(Landing::Waste)) };
        if region.kind() == MemKind::Host {
            return Ok(Some(Landing::Place(region, due.offset)));
        }
        let (chunk, most) = (self.protocol.agreed().chunk as usize, 2 * self.sockets.len());
        let buffer = self.bounce.take(&region, chunk, most)?;
        Ok(buffer.map(|buffer| {
            self.inbound[at].bounce = Some((buffer.clone(), 0));
            Landing::Bounce(buffer, 0)
        }))
    }

    /// The memory of a transfer; `None` if it is refused by now.
    pub(super) fn target(&mut self, due: &Due) -> Result<Option<Region>, MemError> {
        let total = due.total as usize;
        let buffer = || match total {
            0..=4096 => Ok(SmallBuf::region(total)),
            _ => HostBuf::region(total),
        };
        let buffered = |id, buffers: &mut rustc_hash::FxHashMap<u64, Region>| {
            if let Some(region) = buffers.get(&id) {
                return Ok(Some(region.clone()));
            }
            let region = buffer()?;
            buffers.insert(id, region.clone());
            Ok(Some(region))
        };
        match due.target {
            Target::Receive(id) => Ok(self.memory_of(super::Class::Receive, id)),
            Target::Read(id) => Ok(self.memory_of(super::Class::Read, id)),
            Target::Buffer(id) => buffered(id, &mut self.messages),
            Target::Notification(id) => buffered(id, &mut self.notes),
            Target::Region { key, addr } => {
                Ok(self.keys.find(key, addr, due.total, Need::Write).ok())
            }
            Target::Discard => Ok(None),
        }
    }

    /// The first `count` bytes that were due have landed.
    fn landed(&mut self, socket: u16, due: &Due, landing: Landing, count: u64) {
        let at = usize::from(socket);
        let Due { kind, id, .. } = *due;
        self.protocol.taken(socket, count);
        match landing {
            Landing::Place(..) => self.protocol.placed(kind, id, count),
            Landing::Waste if due.target == Target::Discard => {
                self.protocol.placed(kind, id, count);
            }
            Landing::Waste => self.protocol.misplaced(kind, id, count),
            Landing::Bounce(buffer, filled) if count < due.len => {
                self.inbound[at].bounce = Some((buffer, (filled + count) as usize));
            }
            Landing::Bounce(buffer, filled) => {
                self.inbound[at].bounce = None;
                let (end, len) = (due.offset + count, filled + count);
                self.fetch(due, buffer, end - len, len);
            }
        }
    }

    /// Starts the copy of a chunk from its bounce buffer to where it belongs.
    fn fetch(&mut self, due: &Due, buffer: Region, offset: u64, len: u64) {
        let Due { kind, id, .. } = *due;
        let started = match self.target(due) {
            Ok(Some(to)) => bounce::start(&to, offset, &buffer, 0, len as usize).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match started {
            Ok(Some(Some(copy))) => {
                let then = super::Then::Place { kind, id, len, buffer };
                return self.copies.push_back(super::Copying { copy, then });
            }
            Ok(Some(None)) => self.protocol.placed(kind, id, len),
            Ok(None) => self.protocol.misplaced(kind, id, len),
            Err(error) => {
                self.memory_error.get_or_insert(error);
                self.protocol.misplaced(kind, id, len);
            }
        }
        self.bounce.give_back(buffer);
    }

    /// The bytes of a notification or a message in its buffer.
    pub(super) fn unbuffer(&mut self, kind: Kind, id: u64) -> Region {
        let buffers = if kind == Kind::Message { &mut self.messages } else { &mut self.notes };
        // An empty one has no buffer.
        buffers.remove(&id).unwrap_or_else(|| SmallBuf::region(0))
    }
}
