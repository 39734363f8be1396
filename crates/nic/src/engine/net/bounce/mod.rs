//! What a connection keeps back while payload is on its way from or to memory that only a copy
//! engine reaches.
//!
//! A connection has a stage from the first time that it has to do with such memory. What the
//! connection says does not change by it, only when that is passed on: a packet leaves when its
//! payload was gathered, and it, as well as a completion, when everything placed before it has
//! arrived. Memory of the host takes part, since what is placed there must not be seen before what
//! was placed elsewhere before it.

mod drive;

pub(super) use drive::admit;

use super::rx::not_placed;
use crate::engine::atomic::{Amo, AtomicGate, RemoteAtomic};
use crate::engine::stage::{Chunks, Copies, Landed, Pool, Slice, Way};
use crate::slots::QpSlot;
use crate::violation::Rule;
use std::collections::VecDeque;
use warpverbs_mem::{Kind, MemError, Region, SmallBuf, Span};
use warpverbs_rc::{Completion, Connection, Payload, Status, Transmit, WrId};
use warpverbs_wire::{Bth, Extension, Psn, Transport};

/// Bytes gathered ahead of the link at most: some copies, so that one is under way while others are
/// sent.
const AHEAD: u32 = 1 << 20;
/// Packets kept back at most.
const KEPT: usize = 1024;
/// Packets that wait behind an atomic at most; later ones count as lost.
const PARKED: usize = 256;
/// The longest payload of a packet.
const PACKET: u32 = 4096;

/// What a copy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Payload of packets that are kept back.
    Packets,
    /// What the peer sent for a READ or an atomic of ours.
    Request(WrId),
    /// What the peer sent, from the packet with this PSN on.
    Peer(Psn),
}

/// How a packet's payload goes together with that of the packet before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// It begins a message.
    pub(super) begins: bool,
    /// It is as long as a packet may be. Requesters send one WRITE as several messages of such.
    pub(super) full: bool,
}

/// A packet kept back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) transmit: Transmit,
    /// Its payload, if it lies in the stage.
    pub(super) payload: Option<Slice>,
    /// Number of the first copy that gathers it.
    from: u64,
    /// It leaves when all copies before this one have ended.
    upto: u64,
}

/// A packet that waits behind an atomic.
#[derive(Debug)]
pub(super) struct Parked {
    bth: Bth,
    ext: Extension,
    payload: Box<[u8]>,
}

impl Parked {
    pub(super) fn packet(&self) -> Transport<'_> {
        Transport { bth: self.bth, ext: self.ext, payload: &self.payload }
    }
}

/// An atomic of the peer on memory that only a copy engine reaches: the next that the connection
/// executes.
#[derive(Debug)]
enum Pending {
    Running(u64, Box<RemoteAtomic>),
    /// At this address, with what was there.
    Done(u64, Result<u64, MemError>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stage {
    chunks: Chunks,
    copies: Copies<Why>,
    /// Everything placed so far has arrived when all copies before this one have ended.
    placed: u64,
    /// The last payload of the peer was that of a whole packet.
    full: bool,
    packets: VecDeque<Held>,
    /// Bytes of their payload in the stage.
    ahead: u32,
    reports: VecDeque<(u64, Completion)>,
    parked: VecDeque<Parked>,
    atomic: Option<Pending>,
    /// In the list of stages with something to do.
    pub(super) listed: bool,
}

impl Stage {
    /// For memory such as `region`.
    pub(super) fn new(pool: &mut Pool, region: &Region) -> Result<Box<Self>, MemError> {
        let kind = region.kind();
        let none = MemError::NoCopier { from: kind, to: Kind::Host };
        let copier = region.copier().ok_or(none)?;
        tracing::info!(%kind, "payload of a connection is copied through host memory");
        Ok(Box::new(Self {
            chunks: Chunks::new(pool, copier)?,
            copies: Copies::default(),
            placed: 0,
            full: false,
            packets: VecDeque::new(),
            ahead: 0,
            reports: VecDeque::new(),
            parked: VecDeque::new(),
            atomic: None,
            listed: false,
        }))
    }

    /// Nothing is under way or kept back.
    pub(super) fn is_idle(&self) -> bool {
        let running = matches!(self.atomic, Some(Pending::Running(..)));
        let waits = !self.packets.is_empty() || !self.reports.is_empty();
        self.copies.is_empty() && !waits && self.parked.is_empty() && !running
    }

    /// Every completion was passed on.
    pub(super) fn has_reported(&self) -> bool {
        self.reports.is_empty()
    }

    /// Copies started and their bytes since the last call.
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.copies.count), std::mem::take(&mut self.copies.bytes))
    }

    /// The connection goes. What nothing touches any more serves others.
    pub(super) fn dissolve(&mut self, pool: &mut Pool) {
        self.chunks.dissolve(pool);
    }
}

/// Payload that arrives.
impl Stage {
    /// A packet with so many bytes of payload can be taken. An atomic's answer has none and brings
    /// 8.
    pub(super) fn has_room(&mut self, pool: &mut Pool, len: u32) -> bool {
        self.copies.have_room() && self.chunks.make_room(pool, len.max(8))
    }

    /// Has checked pieces written, which hold all of `bytes`; there is room. Bytes of one message
    /// may arrive together, in any order, and so may whole packets. A shorter message comes after
    /// those before it: it may be the flag that says that they are there.
    pub(super) fn place(
        &mut self,
        now: u64,
        spans: &[Span<'_>],
        bytes: &[u8],
        why: Why,
        fit: Fit,
    ) -> Result<(), Rule> {
        let continues = !fit.begins || fit.full && self.full;
        self.full = fit.full;
        let mut rest = bytes;
        for span in spans {
            let (piece, later) = rest.split_at(rest.len().min(span.len as usize));
            rest = later;
            self.place_piece(span, piece, why, continues)
                .map_err(|error| not_placed(span, &error))?;
        }
        self.copies.start(now, &self.chunks, true);
        if rest.is_empty() { Ok(()) } else { Err(Rule::CopyFailed { kind: Kind::Host }) }
    }

    fn place_piece(
        &mut self,
        span: &Span<'_>,
        bytes: &[u8],
        why: Why,
        continues: bool,
    ) -> Result<(), MemError> {
        if span.region.kind() == Kind::Host && self.copies.is_empty() {
            return span.region.write(span.offset, bytes);
        }
        let full = MemError::CopyFailed { code: -1, what: "a stage without room" };
        let slice = self.chunks.take(bytes.len() as u32).ok_or(full.clone())?;
        let (memory, at) = self.chunks.memory(slice).ok_or(full)?;
        memory.write(at, bytes)?;
        let joins = |last: &Why| match (last, why) {
            (Why::Peer(_), Why::Peer(_)) => continues,
            (last, _) => *last == why,
        };
        self.copies.push(Way::Place, span, slice, why, joins);
        self.placed = self.copies.next();
        Ok(())
    }

    /// Everything that was placed has arrived.
    fn has_arrived(&self) -> bool {
        self.copies.has_landed(self.placed)
    }
}

/// Packets and completions that leave later.
impl Stage {
    /// Another packet of the connection can be taken.
    pub(super) fn wants_packets(&mut self, pool: &mut Pool) -> bool {
        let few = self.ahead < AHEAD && self.packets.len() < KEPT && self.copies.have_room();
        few && self.chunks.make_room(pool, PACKET)
    }

    /// Keeps a packet back. Its payload lies in `spans`, and is gathered now if the CPU does not
    /// reach all of it.
    pub(super) fn hold(&mut self, transmit: Transmit, spans: &[Span<'_>]) {
        let (from, mut payload) = (self.copies.next(), None);
        let mut held = Held { transmit, payload, from, upto: self.placed };
        if spans.iter().any(|span| span.region.kind() != Kind::Host) {
            payload = self.chunks.take(held.transmit.payload.len());
        }
        if let Some(slice) = payload {
            self.ahead += slice.len;
            let mut at = 0;
            for span in spans {
                let part = slice.part(at, span.len);
                self.copies.push(Way::Gather, span, part, Why::Packets, |last| {
                    matches!(last, Why::Packets)
                });
                at += span.len;
                // The first piece may have become part of an earlier copy.
                held.from = held.from.min(self.copies.next() - 1);
            }
            (held.payload, held.upto) = (payload, self.copies.next());
        }
        self.packets.push_back(held);
    }

    /// The next packet that may leave; its payload is to be given back.
    pub(super) fn pop_packet(&mut self) -> Option<Held> {
        let upto = self.packets.front()?.upto;
        self.copies.has_landed(upto).then(|| self.packets.pop_front()).flatten()
    }

    /// Reads the gathered payload of a packet.
    pub(super) fn read(&self, payload: Slice, out: &mut [u8]) -> bool {
        let Some((memory, at)) = self.chunks.memory(payload) else { return false };
        memory.read(at, out).is_ok()
    }

    /// The packet has left, or will not.
    pub(super) fn give_back(&mut self, pool: &mut Pool, held: &Held) {
        if let Some(payload) = held.payload {
            self.ahead -= payload.len;
            self.chunks.give_back(pool, payload);
        }
    }

    /// The next completion that may be reported. All that the connection has are taken.
    pub(super) fn poll_completion(&mut self, conn: &mut Connection) -> Option<Completion> {
        while let Some(done) = conn.poll_completion() {
            self.reports.push_back((self.placed, done));
        }
        let upto = self.reports.front()?.0;
        let report = self.copies.has_landed(upto).then(|| self.reports.pop_front()).flatten();
        report.map(|(_, done)| done)
    }
}

/// Copies that end.
impl Stage {
    /// Starts what was asked for, as far as it may start.
    pub(super) fn start(&mut self, now: u64) {
        self.copies.start(now, &self.chunks, false);
    }

    /// The oldest copy, once it has ended.
    pub(super) fn land(&mut self, now: u64, pool: &mut Pool) -> Option<Landed<Why>> {
        self.start(now);
        let landed = self.copies.land(now)?;
        if let Some(slice) = landed.done_with {
            self.chunks.give_back(pool, slice);
        }
        Some(landed)
    }

    /// A READ or an atomic of ours did not come into our memory. False if its completion was not
    /// kept back.
    pub(super) fn fail_report(&mut self, failed: WrId) -> bool {
        let found = self.reports.iter_mut().find_map(|(_, report)| match report {
            Completion::Request { id, result } if *id == failed => Some(result),
            _ => None,
        });
        found.map(|result| *result = Err(Status::LocalProtection)).is_some()
    }

    /// Copy `number` of the payload of packets failed: they are taken out.
    pub(super) fn take_ungathered(&mut self, number: u64) -> VecDeque<Held> {
        self.take_packets(|held| held.payload.is_some() && (held.from..held.upto).contains(&number))
    }

    /// Copy `number` failed. Removes the acknowledgements and receive completions that depend on it
    /// or on any later copy.
    pub(super) fn take_unfounded(&mut self, number: u64) -> VecDeque<Held> {
        self.reports.retain(|(upto, report)| {
            *upto <= number || matches!(report, Completion::Request { .. })
        });
        self.take_packets(|held| held.upto > number && held.transmit.bth.opcode.is_response())
    }

    fn take_packets(&mut self, which: impl Fn(&Held) -> bool) -> VecDeque<Held> {
        let (taken, kept) = std::mem::take(&mut self.packets).into_iter().partition(which);
        self.packets = kept;
        taken
    }
}

/// Atomics of the peer.
impl Stage {
    /// Does the atomic at `va`, which is `target`, after everything placed before it. `None`: not
    /// yet. `gate` lets one atomic at a time onto such memory.
    pub(super) fn atomic(
        &mut self,
        (slot, gate): (QpSlot, &mut AtomicGate),
        (amo, va): (Amo, u64),
        target: Span<'_>,
    ) -> Result<Option<u64>, MemError> {
        match self.atomic.take() {
            Some(Pending::Done(at, result)) if at == va => return result.map(Some),
            Some(running @ Pending::Running(..)) => {
                self.atomic = Some(running);
                return Ok(None);
            }
            _ => {}
        }
        if !self.has_arrived() {
            return Ok(None);
        }
        if target.region.kind() == Kind::Host {
            return amo.on_host(target.region, target.offset).map(|old| Some(old.value()));
        }
        if !gate.is_free() {
            return Ok(None);
        }
        let result = SmallBuf::region(8);
        let result = Span { region: &result, offset: 0, len: 8, proxy_lkey: None };
        let running = RemoteAtomic::start(amo, target, result)?;
        gate.take(slot);
        self.atomic = Some(Pending::Running(va, Box::new(running)));
        Ok(None)
    }

    /// Lets an atomic go on. True when it has ended.
    pub(super) fn advance_atomic(&mut self) -> bool {
        let Some(Pending::Running(va, running)) = &mut self.atomic else { return false };
        let result = match running.advance() {
            Ok(false) => return false,
            Ok(true) => Ok(running.found()),
            Err(fault) => Err(fault.into_copy()),
        };
        self.atomic = Some(Pending::Done(*va, result));
        true
    }

    /// Packets wait behind an atomic.
    pub(super) fn is_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Keeps a packet for later, behind those that wait. False if there are too many.
    pub(super) fn park(&mut self, packet: &Transport<'_>) -> bool {
        if self.parked.len() >= PARKED {
            return false;
        }
        let Transport { bth, ext, payload } = *packet;
        self.parked.push_back(Parked { bth, ext, payload: payload.into() });
        true
    }

    /// The packet that waits longest, once there may be an answer to it.
    pub(super) fn pop_parked(&mut self) -> Option<Parked> {
        let running = matches!(self.atomic, Some(Pending::Running(..)));
        (!running && self.has_arrived()).then(|| self.parked.pop_front()).flatten()
    }

    /// There was none yet.
    pub(super) fn park_again(&mut self, parked: Parked) {
        self.parked.push_front(parked);
    }
}

impl Held {
    /// The request of ours whose payload it has.
    pub(super) fn request(&self) -> Option<WrId> {
        match self.transmit.payload {
            Payload::Request { id, .. } => Some(id),
            _ => None,
        }
    }
}
