//! Packets in: what a connection cannot know is checked, then the connection judges, and payload
//! goes to its place at once.

use super::owner::Owner;
use super::transmit::outgoing;
use super::{Network, duration};
use crate::engine::Core;
use crate::engine::atomic::Returned;
use crate::link::Link;
use crate::responder::{Spans, gather_range};
use crate::stats::NetStats;
use crate::violation::{KeySide, Rule};
use std::net::SocketAddr;
use std::ops::Range;
use warpverbs_mem::{Access, Span};
use warpverbs_rc::{Instant, Need, Place, WrId};
use warpverbs_wire::{Checks, Envelope, Ip, ParseError, Psn, Qpn, Transport, Udp};

impl Core {
    /// Takes datagrams from the link; how many.
    pub(super) fn hear(&mut self, now: u64) -> usize {
        let Some(mut link) = self.net.link.take() else { return 0 };
        let hides_id = link.hides_ip_id();
        let heard = link.receive(duration(now), &mut |from, datagram| {
            self.arrived(now, from, datagram, hides_id);
        });
        self.net.link = Some(link);
        heard
    }

    fn arrived(&mut self, now: u64, from: SocketAddr, datagram: &[u8], hides_id: bool) {
        self.net.stats.received += 1;
        self.net.stats.received_bytes += datagram.len() as u64;
        let opened = self.net.open(from, datagram, hides_id);
        let Ok(arrived) = opened.inspect_err(|error| self.net.stats.count(error)) else { return };
        let known = self.by_qpn.get(&arrived.dest_qpn().get()).copied();
        let Some(slot) = known.filter(|&slot| self.net.end(slot).is_some()) else {
            self.net.stats.unknown_qp += 1;
            return;
        };
        if self.net.end(slot).is_some_and(|end| end.peer.ip() != from.ip()) {
            self.net.stats.wrong_source += 1;
            return;
        }
        let Self { net, keys, receives, srqs, events, scratch, .. } = self;
        let Some(end) = net.end_mut(slot) else { return };
        let Some(rq) = receives.get_mut(slot) else { return };
        let (at_hand, refusal) = (&mut end.at_hand, &mut end.refusal);
        let mut owner = Owner { keys, rq, srqs, events, scratch, at_hand, refusal };
        let packet = match arrived {
            Arrived::Packet(packet) => packet,
            Arrived::Reserved(_, psn) => {
                end.conn.handle_reserved(psn, &mut owner);
                return self.net.enqueue(slot);
            }
        };
        let (now, len) = (Instant::from_nanos(now), packet.payload.len() as u32);
        let place = end.conn.handle_packet(now, &packet.bth, &packet.ext, len, &mut owner);
        match place {
            Place::Nothing => {}
            Place::Region { rkey, va } => {
                let span = owner.range(rkey, va, len, Need::Write).ok().flatten();
                scatter(span.as_slice(), packet.payload);
            }
            Place::Receive { offset, .. } => {
                let start = u64::from(offset);
                let spans = owner.scatter(start..start + u64::from(len)).unwrap_or_default();
                scatter(&spans, packet.payload);
            }
            Place::Request { id, offset } => {
                let start = u64::from(offset);
                self.bring(slot, id, start..start + u64::from(len), packet.payload);
            }
            Place::Original { id, value } => {
                self.bring(slot, id, 0..8, Returned::eight(value).bytes());
            }
        }
        self.net.enqueue(slot);
    }

    /// Puts what the peer sent for a READ or an atomic of ours into its memory.
    fn bring(&mut self, slot: u32, id: WrId, range: Range<u64>, bytes: &[u8]) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        let mut hint = std::mem::take(&mut q.local_hint);
        let Some(outgoing) = outgoing(q, id) else { return };
        let sges = outgoing.sges().iter().copied();
        let mut spans = Spans::new();
        let needed = Access::LOCAL_WRITE;
        let found = gather_range(&self.keys, &mut hint, q.pd, sges, range, needed, &mut spans);
        q.local_hint = hint;
        match found {
            Ok(()) => scatter(&spans, bytes),
            Err((segment, error)) => {
                drop(spans);
                let rule = Rule::Key { side: KeySide::Local, segment, error };
                self.fail_request(slot, id, Some(rule));
            }
        }
    }
}

/// Writes checked pieces, which hold all of `bytes`.
fn scatter(spans: &[Span<'_>], bytes: &[u8]) {
    let mut rest = bytes;
    for span in spans {
        let (now, later) = rest.split_at(rest.len().min(span.len as usize));
        if let Err(error) = span.region.write(span.offset, now) {
            // The piece is inside its region and host memory.
            tracing::error!(%error, "payload not placed");
        }
        rest = later;
    }
}

/// What a datagram holds.
enum Arrived<'a> {
    Packet(Transport<'a>),
    /// A reserved opcode of this service: for whom, and its PSN.
    Reserved(Qpn, Psn),
}

impl Arrived<'_> {
    fn dest_qpn(&self) -> Qpn {
        match self {
            Self::Packet(packet) => packet.bth.dest_qpn,
            Self::Reserved(qpn, _) => *qpn,
        }
    }
}

impl Network {
    /// ICRC, opcode, partition and lengths.
    fn open<'a>(
        &mut self,
        from: SocketAddr,
        datagram: &'a [u8],
        hides_id: bool,
    ) -> Result<Arrived<'a>, ParseError> {
        let unknown = ParseError::IpVersion { found: 0 };
        let local = self.local.ok_or(unknown)?;
        let mut ip = Ip::new(from.ip(), local.ip()).ok_or(unknown)?;
        if let (true, Ip::V4(ip)) = (hides_id, &mut ip) {
            ip.id = self.hidden.guess();
        }
        let envelope = Envelope { ip, udp: Udp { src_port: from.port() } };
        let ib = match hides_id {
            true => {
                let (ib, explained) = envelope.open_any_id(datagram)?;
                if let Ip::V4(ip) = explained.ip {
                    self.hidden.learn(ip.id);
                }
                ib
            }
            false => envelope.open(datagram)?,
        };
        let checks = Checks::CONFORMING;
        match Transport::parse(ib, &checks) {
            Ok(packet) => Ok(Arrived::Packet(packet)),
            Err(error) => match Transport::reserved(ib, checks.pkey) {
                Some((qpn, psn)) => Ok(Arrived::Reserved(qpn, psn)),
                None => Err(error),
            },
        }
    }
}

/// What is known of identifications that a link hides. Those of one call of a sender follow each
/// other from 0 on; a right guess saves working it out.
#[derive(Debug, Default)]
pub(super) struct HiddenIds {
    last: u16,
    follows: bool,
}

impl HiddenIds {
    fn guess(&self) -> u16 {
        if self.follows { self.last.wrapping_add(1) } else { 0 }
    }

    fn learn(&mut self, id: u16) {
        self.follows = id != 0 && id == self.last.wrapping_add(1);
        self.last = id;
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
