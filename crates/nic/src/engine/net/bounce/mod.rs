//! Payload in memory that only a copy engine reaches goes through bounce buffers, and what depends
//! on it is delayed.
//!
//! A connection has bounce buffers from the first request that names such memory. They do not
//! change its packets and completions, only when these are passed on: a packet leaves when its
//! payload was gathered, and an acknowledgement or a completion when everything placed before it
//! has arrived. Host memory uses the same copy queue, so that its bytes do not become visible
//! before those that were placed elsewhere earlier.

mod atomic;
mod chunks;
mod kept;

pub(super) use chunks::{Slice, pool};
pub(super) use kept::{Failed, Fit, Held, Purpose};

use crate::engine::access::MAX_PIECES;
use crate::engine::copies::{Behind, CopyQueue, Ended};
use crate::violation::Rule;
use chunks::Chunks;
use kept::{Parked, Pending, Tag};
use std::collections::VecDeque;
use warpverbs_mem::{BouncePool, Kind, MemError, Region, Span};
use warpverbs_rc::{Completion, Connection, Status, Transmit, WrId};

/// Bytes gathered ahead of the link at most: some copies, so that one is under way while others are
/// sent.
const AHEAD: u32 = 1 << 20;
/// Packets kept back at most.
const KEPT: usize = 1024;
/// The longest payload of a packet.
const PACKET: u32 = 4096;
/// Copies of one connection asked for and not ended, at most. A bound on their bytes alone would not do:
/// a peer that sends single bytes would make millions of them.
const COPIES: usize = 4096;

/// Bounce buffers of a connection, and what waits for copies. See the module.
#[derive(Debug)]
pub(super) struct Bounce {
    chunks: Chunks,
    copies: CopyQueue<Tag>,
    /// Everything placed so far has arrived when all copies before this one have ended.
    placed: u64,
    /// The last payload of the peer was that of a whole packet.
    full: bool,
    packets: Behind<Held>,
    /// Bytes of their payload in bounce buffers.
    ahead: u32,
    reports: Behind<Completion>,
    parked: VecDeque<Parked>,
    atomic: Option<Pending>,
    /// In the list of those with something to do.
    pub(super) listed: bool,
}

impl Bounce {
    /// For memory such as `region`.
    pub(super) fn new(pool: &BouncePool, region: &Region) -> Result<Box<Self>, MemError> {
        let chunks = Chunks::new(pool, region)?;
        let kind = region.kind();
        tracing::info!(%kind, "payload of a connection is copied through host memory");
        Ok(Box::new(Self {
            chunks,
            copies: CopyQueue::default(),
            placed: 0,
            full: false,
            packets: Behind::default(),
            ahead: 0,
            reports: Behind::default(),
            parked: VecDeque::new(),
            atomic: None,
            listed: false,
        }))
    }

    /// Memory such as `region` needs bounce buffers.
    #[cold]
    pub(super) fn admit(
        bounce: &mut Option<Box<Bounce>>,
        pool: &BouncePool,
        region: &Region,
    ) -> Result<(), Rule> {
        if bounce.is_none() {
            let made = Self::new(pool, region).inspect_err(|error| {
                tracing::warn!(%error, "no memory for bounce buffers");
            });
            *bounce = Some(made.map_err(|_| Rule::CopyFailed { kind: region.kind() })?);
        }
        Ok(())
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
}

/// Payload that arrives.
impl Bounce {
    /// A packet with this many bytes of payload can be taken. An atomic's answer has none and brings
    /// 8.
    pub(super) fn has_room(&mut self, len: u32) -> bool {
        self.takes_copies() && self.chunks.make_room(len.max(8))
    }

    /// Another packet's copies can be asked for: it has at most as many pieces as a receive.
    fn takes_copies(&self) -> bool {
        self.copies.len() + MAX_PIECES <= COPIES
    }

    /// Asks for copies of `bytes` to checked pieces, which hold all of them; there is room. Bytes
    /// of one message may arrive together, in any order, and so may whole packets. A shorter
    /// message comes after those before it: it may be the flag that announces them.
    pub(super) fn place(
        &mut self,
        spans: &[Span<'_>],
        bytes: &[u8],
        purpose: Purpose,
        fit: Fit,
    ) -> Result<(), Rule> {
        let continues = !fit.begins || fit.full && self.full;
        self.full = fit.full;
        let mut rest = bytes;
        for span in spans {
            let (piece, later) = rest.split_at(rest.len().min(span.len as usize));
            rest = later;
            self.place_piece(span, piece, purpose, continues)
                .map_err(|error| not_placed(span.region.kind(), &error))?;
        }
        self.copies.start(None, u64::MAX, true);
        if rest.is_empty() { Ok(()) } else { Err(Rule::CopyFailed { kind: Kind::Host }) }
    }

    fn place_piece(
        &mut self,
        span: &Span<'_>,
        bytes: &[u8],
        purpose: Purpose,
        continues: bool,
    ) -> Result<(), MemError> {
        if span.region.kind() == Kind::Host && self.copies.is_empty() {
            return span.region.write(span.offset, bytes);
        }
        let full = MemError::CopyFailed { code: -1, what: "bounce buffers without room" };
        let slice = self.chunks.take(bytes.len() as u32).ok_or(full.clone())?;
        let from = self.chunks.span(slice).ok_or(full)?;
        from.region.write(from.offset, bytes)?;
        let tag = Tag { purpose, frees: Some(slice) };
        self.copies.push_or_join(&from, &Span { len: slice.len, ..*span }, tag, |last| {
            let joins = match (last.purpose, purpose) {
                (Purpose::Peer(_), Purpose::Peer(_)) => continues,
                (last, _) => last == purpose,
            };
            if let Some(frees) = last.frees.as_mut().filter(|_| joins) {
                frees.len += slice.len;
            }
            joins
        });
        self.placed = self.copies.next();
        Ok(())
    }

    /// Everything that was placed has arrived.
    fn has_arrived(&self) -> bool {
        self.copies.has_ended(self.placed)
    }
}

/// Packets and completions that leave later.
impl Bounce {
    /// Another packet of the connection can be taken.
    pub(super) fn wants_packets(&mut self) -> bool {
        let few = self.ahead < AHEAD && self.packets.len() < KEPT && self.takes_copies();
        few && self.chunks.make_room(PACKET)
    }

    /// Keeps a packet back. Its payload lies in `spans`, and is gathered now if the CPU does not
    /// reach all of it.
    pub(super) fn hold(&mut self, transmit: Transmit, spans: &[Span<'_>]) {
        let (mut upto, mut payload) = (self.placed, None);
        let mut held = Held { transmit, payload, from: self.copies.next() };
        if spans.iter().any(|span| span.region.kind() != Kind::Host) {
            payload = self.chunks.take(held.transmit.payload.len());
        }
        if let Some(slice) = payload {
            self.ahead += slice.len;
            let mut at = 0;
            for span in spans {
                let Some(to) = self.chunks.span(slice.part(at, span.len)) else { break };
                let tag = Tag { purpose: Purpose::Packets, frees: None };
                self.copies.push_or_join(span, &to, tag, |last| last.purpose == Purpose::Packets);
                at += span.len;
                // The first piece may have become part of an earlier copy.
                held.from = held.from.min(self.copies.next() - 1);
            }
            (held.payload, upto) = (payload, self.copies.next());
        }
        self.packets.push(upto, held);
    }

    /// The next packet that may leave; its payload is to be given back.
    pub(super) fn pop_packet(&mut self) -> Option<Held> {
        self.packets.pop(&self.copies)
    }

    /// Reads the gathered payload of a packet; false if that failed.
    pub(super) fn read(&self, payload: Slice, out: &mut [u8]) -> bool {
        self.chunks.span(payload).is_some_and(|span| span.region.read(span.offset, out).is_ok())
    }

    /// The packet was sent, or never will be.
    pub(super) fn give_back(&mut self, held: &Held) {
        if let Some(payload) = held.payload {
            self.ahead -= payload.len;
            self.chunks.give_back(payload);
        }
    }

    /// The next completion that may be reported. All that the connection has are taken.
    pub(super) fn poll_completion(&mut self, conn: &mut Connection) -> Option<Completion> {
        while let Some(done) = conn.poll_completion() {
            self.reports.push(self.placed, done);
        }
        self.reports.pop(&self.copies)
    }
}

/// Copies that end.
impl Bounce {
    /// Starts what was asked for, as far as it may start.
    pub(super) fn start(&mut self) {
        self.copies.start(None, u64::MAX, false);
    }

    /// Starts and ends copies: whether any has ended; no further than the first that failed.
    pub(super) fn poll(&mut self, now: u64) -> (bool, Option<Failed>) {
        let mut any = false;
        loop {
            self.start();
            let Some(Ended { number, tag, engine, result, hangs }) = self.copies.take_ended(now)
            else {
                return (any, None);
            };
            any = true;
            // A slice that a hanging copy may still touch is used for nothing else.
            if let Some(slice) = tag.frees.filter(|_| !hangs) {
                self.chunks.give_back(slice);
            }
            let Err(error) = result else { continue };
            tracing::warn!(%error, "copy failed");
            if let (Purpose::Atomic, Some(Pending::Running(va, ..))) = (tag.purpose, &self.atomic) {
                let error = MemError::CopyFailed { code: -1, what: "a copy of an atomic's word" };
                self.atomic = Some(Pending::Done(*va, Err(error)));
            }
            let rule = Rule::CopyFailed { kind: engine };
            return (any, Some(Failed { number, purpose: tag.purpose, rule }));
        }
    }

    /// The response to a READ or an atomic of ours could not be written to its memory. False if its
    /// completion was not kept back.
    pub(super) fn fail_report(&mut self, failed: WrId) -> bool {
        let found = self.reports.iter_mut().find_map(|report| match report {
            Completion::Request { id, result } if *id == failed => Some(result),
            _ => None,
        });
        found.map(|result| *result = Err(Status::LocalProtection)).is_some()
    }

    /// Copy `number` of the payload of packets failed: they are taken out.
    pub(super) fn take_ungathered(&mut self, number: u64) -> Vec<Held> {
        self.packets
            .extract(|upto, held| held.payload.is_some() && (held.from..upto).contains(&number))
    }

    /// Copy `number` failed. Removes the acknowledgements and receive completions that depend on it
    /// or on any later copy.
    pub(super) fn take_unfounded(&mut self, number: u64) -> Vec<Held> {
        self.reports
            .extract(|upto, report| upto > number && !matches!(report, Completion::Request { .. }));
        self.packets.extract(|upto, held| upto > number && held.transmit.bth.opcode.is_response())
    }
}

/// The range was checked for this packet: its owner has unmapped it, or the NIC is at fault.
#[cold]
pub(super) fn not_placed(kind: Kind, error: &MemError) -> Rule {
    tracing::error!(%error, "payload was not placed");
    Rule::CopyFailed { kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use warpverbs_mem::testing::{LazyCopier, LazyMemory};
    use warpverbs_wire::Psn;

    #[test]
    fn copies_of_single_bytes_are_bounded_in_number() {
        let copier = Arc::new(LazyCopier::default());
        let (region, view) = LazyMemory::regions(1 << 16, 0, &copier).unwrap();
        let mut bounce = Bounce::new(&pool(), &region).unwrap();
        let fit = Fit { begins: true, full: false };
        let mut taken = 0;
        while bounce.has_room(1) {
            // Every other byte: no copy continues the one before it.
            let span = Span { region: &region, offset: taken * 2, len: 1, proxy_lkey: None };
            bounce.place(&[span], &[7], Purpose::Peer(Psn::from_low_bits(0)), fit).unwrap();
            taken += 1;
        }
        assert!((1000..=COPIES as u64).contains(&taken), "{taken} copies");
        copier.allow(u64::MAX / 2);
        let (ended, failed) = bounce.poll(0);
        assert!(ended && failed.is_none() && bounce.has_room(1));
        let mut bytes = vec![0; 1 << 16];
        view.read(0, &mut bytes).unwrap();
        let expected = |at: u64| u8::from(at.is_multiple_of(2) && at / 2 < taken) * 7;
        assert!((0..).zip(&bytes).all(|(at, byte)| *byte == expected(at)));
    }
}
