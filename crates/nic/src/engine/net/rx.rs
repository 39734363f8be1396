//! Packets in: checks that need the address or the datagram, then those of the connection; payload
//! is written at once.

use super::bounce::{Bounce, Fit, Purpose, not_placed};
use super::end::End;
use super::host::Responder;
use super::{Connections, Network, duration};
use crate::engine::access::{Spans, gather_range};
use crate::engine::atomic::Returned;
use crate::engine::tables::Tables;
use crate::slots::QpSlot;
use crate::stats::NetStats;
use crate::violation::{KeySide, Rule};
use std::net::SocketAddr;
use std::ops::Range;
use warpverbs_link::{Arrival, Seal};
use warpverbs_mem::{Access, Kind, SmallBuf, Span, scatter};
use warpverbs_rc::{Connection, Instant, Place, WrId};
use warpverbs_wire::{Checks, ParseError, Position, Psn, Transport};

impl Network {
    /// Takes datagrams from the link; how many.
    pub(super) fn receive_packets(&mut self, tables: &mut Tables, now: u64) -> usize {
        let Self { link: Some(link), conns, .. } = self else { return 0 };
        let mut own = 0;
        while let (Some(from), Some(bytes)) =
            (conns.envelopes.local, conns.datagrams.own.pop_front())
        {
            conns.arrived(tables, now, Arrival { from, bytes: &bytes, seal: Seal::Absent });
            own += 1;
        }
        own + link.receive(duration(now), &mut |arrival| conns.arrived(tables, now, arrival))
    }
}

impl Connections {
    fn arrived(&mut self, tables: &mut Tables, now: u64, arrival: Arrival<'_>) {
        self.stats.received += 1;
        self.stats.received_bytes += arrival.bytes.len() as u64;
        let from = arrival.from;
        let ib = match self.envelopes.open(arrival) {
            Ok(ib) => ib,
            Err(error) => return self.stats.count(&error),
        };
        let parsed = Transport::parse(ib, &Checks::CONFORMING);
        let packet = match &parsed {
            Ok(packet) => packet,
            Err(error) => return self.arrived_unparsed(tables, from, ib, error),
        };
        let slot = tables.by_qpn.get(&packet.bth.dest_qpn.get()).copied();
        let Some((slot, end)) = slot.and_then(|slot| Some((slot, self.ends.get(slot)?))) else {
            return self.arrived_unconnected(tables, slot, from, Some(packet));
        };
        if end.peer.ip() != from.ip() {
            self.stats.wrong_source += 1;
            return;
        }
        if !self.handle(tables, slot, now, packet, Turn::InOrder) {
            self.park(slot, packet);
        }
        self.ends.enqueue(slot);
    }

    /// Bytes that are not a valid packet. A reserved opcode of this service passes, because the
    /// connection answers it.
    #[cold]
    fn arrived_unparsed(
        &mut self,
        tables: &mut Tables,
        from: SocketAddr,
        ib: &[u8],
        error: &ParseError,
    ) {
        let Some((qpn, psn)) = Transport::reserved(ib, Checks::CONFORMING.pkey) else {
            return self.stats.count(error);
        };
        let slot = tables.by_qpn.get(&qpn.get()).copied();
        let Some((slot, end)) = slot.and_then(|slot| Some((slot, self.ends.get(slot)?))) else {
            return self.arrived_unconnected(tables, slot, from, None);
        };
        if end.peer.ip() != from.ip() {
            self.stats.wrong_source += 1;
            return;
        }
        self.take_reserved(tables, slot, psn);
        self.ends.enqueue(slot);
    }

    fn take_reserved(&mut self, tables: &mut Tables, slot: QpSlot, psn: Psn) {
        let mut checked = Spans::new();
        let Some((conn, mut host)) = self.host(tables, slot, &mut checked) else { return };
        // While packets are parked, a later one counts as lost.
        if !host.bounce.as_ref().is_some_and(|bounce| bounce.is_parked()) {
            conn.handle_reserved(psn, &mut host);
        }
    }

    /// Keeps a packet that could not be handled until it can.
    #[cold]
    fn park(&mut self, slot: QpSlot, packet: &Transport<'_>) {
        let bounce = self.ends.get_mut(slot).and_then(|end| end.bounce.as_deref_mut());
        let kept = bounce.is_some_and(|bounce| bounce.park(packet));
        self.stats.bounce_full += u64::from(!kept);
        self.enlist(slot);
    }

    /// The connection in `slot`, and what answers it. Checked ranges go into `checked`.
    #[inline]
    pub(super) fn host<'s, 'a: 's>(
        &'a mut self,
        tables: &'a mut Tables,
        slot: QpSlot,
        checked: &'s mut Spans<'a>,
    ) -> Option<(&'a mut Connection, Responder<'a, 's>)> {
        let Tables { keys, receives, srqs, scratch, atomics, .. } = tables;
        let Self { ends, pool, reports, .. } = self;
        let end = ends.get_mut(slot)?;
        let rq = receives.live_mut(slot)?;
        let End { conn, receive_in_use, refusal, bounce, .. } = end;
        let host = Responder {
            keys,
            rq,
            srqs,
            scratch,
            receive_in_use,
            refusal,
            bounce,
            pool,
            atomics,
            reports,
            not_yet: false,
            payload: &[],
            checked,
        };
        Some((conn, host))
    }

    /// Passes a packet to the connection in `slot`, and writes its payload. False if it cannot be
    /// answered yet: then it is handled again before any other.
    // Always: what was parsed stays in registers.
    #[inline(always)]
    pub(super) fn handle(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        now: u64,
        packet: &Transport<'_>,
        turn: Turn,
    ) -> bool {
        let Transport { bth, ext, payload } = packet;
        let mut checked = Spans::new();
        let Some((conn, mut host)) = self.host(tables, slot, &mut checked) else { return true };
        let len = payload.len() as u32;
        host.payload = payload;
        if let Some(bounce) = host.bounce {
            if bounce.is_parked() && turn == Turn::InOrder {
                return false;
            }
            if !bounce.has_room(len) {
                drop(checked);
                self.stats.bounce_full += 1;
                return true;
            }
        }
        let place = conn.handle_packet(Instant::from_nanos(now), bth, ext, len, &mut host);
        if host.not_yet {
            return false;
        }
        let bounced = host.bounce.is_some();
        let mut placed = Ok(());
        let inline = matches!(place, Place::Receive { .. })
            && bth.opcode.position() == Position::Only
            && host.rq.cqes.payload.takes(len.into());
        if inline {
            host.rq.cqes.payload.keep(host.receive_in_use.index, SmallBuf::of(payload));
        } else if matches!(place, Place::Region { .. } | Place::Receive { .. }) {
            let mtu = conn.config().mtu;
            let into = || {
                let full = len as usize == mtu.bytes();
                let fit = Fit { begins: bth.opcode.position().begins(), full };
                Into { purpose: Purpose::Peer(bth.psn), fit }
            };
            // The ranges that the connection has asked about for this packet.
            placed = write_payload(host.bounce, host.checked, payload, into);
        }
        drop(checked);
        if let Err(rule) = placed {
            // It was accepted, so it must not be acknowledged.
            self.fail_response(slot, u64::MAX, bth.psn, rule);
        }
        match place {
            Place::Nothing | Place::Region { .. } | Place::Receive { .. } => {}
            Place::Request { id, offset } => {
                let start = u64::from(offset);
                self.bring(tables, slot, id, start..start + u64::from(len), payload);
            }
            Place::Original { id, value } => {
                let posted = self.ends.get(slot).and_then(|end| end.requests.get(id));
                let result = posted.and_then(|posted| posted.outgoing.sges().first());
                let size = result.map_or(8, |result| result.len);
                self.bring(tables, slot, id, 0..size.into(), Returned::of(value, size).bytes());
            }
        }
        if bounced {
            self.enlist(slot);
        }
        true
    }

    /// Writes the response to a READ or an atomic of this end into its memory.
    fn bring(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        id: WrId,
        range: Range<u64>,
        bytes: &[u8],
    ) {
        let Tables { sends, keys, .. } = tables;
        let (Some(q), Some(end)) = (sends.live_mut(slot), self.ends.get_mut(slot)) else { return };
        let Some(posted) = end.requests.get(id) else { return };
        if posted.inline {
            return q.cqes.payload.keep(posted.index, SmallBuf::of(bytes));
        }
        let sges = posted.outgoing.sges().iter().copied();
        let (mut spans, hint) = (Spans::new(), &mut q.local_hint);
        let found = gather_range(keys, hint, q.pd, sges, range, Access::LOCAL_WRITE, &mut spans);
        let key = |(segment, error)| Rule::Key { side: KeySide::Local, segment, error };
        let placed = found.map_err(key).and_then(|()| {
            let fit = Fit { begins: false, full: true };
            let into = || Into { purpose: Purpose::Request(id), fit };
            write_payload(&mut end.bounce, &spans, bytes, into)
        });
        drop(spans);
        if let Err(rule) = placed {
            // With its last packet the request is complete already.
            end.unplaced.get_or_insert(id);
            self.fail_request(slot, id, Some(rule));
        }
    }
}

/// Which packets are handled while some are parked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Parked ones, before one that arrives.
    InOrder,
    /// This one: it is the first of them.
    Now,
}

/// How payload goes through bounce buffers.
#[derive(Clone, Copy)]
struct Into {
    purpose: Purpose,
    fit: Fit,
}

/// Writes checked pieces, which hold all of `bytes`, at once or through bounce buffers.
// Always: as `handle`.
#[inline(always)]
fn write_payload(
    bounce: &mut Option<Box<Bounce>>,
    spans: &[Span<'_>],
    bytes: &[u8],
    into: impl FnOnce() -> Into,
) -> Result<(), Rule> {
    if let Some(bounce) = bounce {
        let Into { purpose, fit } = into();
        return bounce.place(spans, bytes, purpose, fit);
    }
    match scatter(spans, bytes) {
        Ok([]) => Ok(()),
        Ok(_) => Err(Rule::CopyFailed { kind: Kind::Host }),
        Err(error) => Err(not_placed(Kind::Host, &error)),
    }
}

impl NetStats {
    fn count(&mut self, error: &ParseError) {
        match error {
            ParseError::Icrc { .. } => self.bad_icrc += 1,
            ParseError::Pkey { .. } => self.wrong_pkey += 1,
            _ => self.malformed += 1,
        }
    }
}
