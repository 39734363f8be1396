//! Packets out: headers from the connection, payload gathered straight into the packet, the ICRC
//! over it, several packets for one peer to the link at a time.

use super::bounce::Slice;
use super::end::Outgoing;
use super::train::{Target, Train};
use super::{Connections, Network, duration};
use crate::engine::access::{Spans, gather_range};
use crate::engine::tables::Tables;
use crate::format::Sge;
use crate::objects::send::SendQueue;
use crate::slots::QpSlot;
use crate::violation::{KeySide, Rule};
use std::ops::Range;
use warpverbs_link::{QpnPart, Sent};
use warpverbs_mem::{Access, AccessError, KeyHint, KeyTable, Kind};
use warpverbs_rc::{Instant, Payload, Status, Transmit, WrId};
use warpverbs_wire::{Envelope, Ip, Transport, Udp, icrc};

/// Packets of one connection before the next one is served: four trains of UDP, at MTU 4096.
pub(super) const TURN: u32 = 60;

impl Network {
    /// Hands the train to the link.
    pub(super) fn depart(&mut self, now: u64) {
        if self.train.count == 0 {
            return;
        }
        let bytes = self.spare.pop().unwrap_or_default();
        let mut train = std::mem::replace(&mut self.train, Train { bytes, ..Train::default() });
        self.seal(&mut train, now);
        if !self.blocked.is_empty() {
            self.blocked.push_back(train);
        } else if let Err(train) = self.dispatch(train, now) {
            self.blocked.push_back(train);
        }
    }

    fn dispatch(&mut self, train: Train, now: u64) -> Result<(), Train> {
        if let (Some((to, _)), Some(link), 1..) = (train.to, &mut self.link, train.count) {
            let (count, len) = (train.count as u64, train.len as u64);
            match link.send(duration(now), to, train.datagrams(), train.segment) {
                Sent::Taken => {
                    self.conns.stats.sent += count;
                    self.conns.stats.sent_bytes += len;
                }
                Sent::Blocked => return Err(train),
                Sent::Lost(kind) => {
                    tracing::debug!(%to, ?kind, "datagrams not sent");
                    self.conns.stats.send_errors += count;
                }
            }
        }
        if self.spare.len() < 4 {
            self.spare.push(train.bytes);
        }
        Ok(())
    }
}

impl Network {
    /// Offers again what the link did not take. Whether there is any left.
    pub(super) fn send_blocked(&mut self, now: u64) -> bool {
        while let Some(train) = self.blocked.pop_front() {
            if let Err(train) = self.dispatch(train, now) {
                self.blocked.push_front(train);
                return true;
            }
        }
        false
    }

    /// Sends packets of the connection of the QP in `slot`, as far as its turn and the link allow. The
    /// last train stays for packets of other connections to the same peer.
    pub(super) fn transmit(&mut self, tables: &mut Tables, slot: QpSlot, now: u64) {
        if self.conns.ends.get(slot).is_some_and(|end| end.bounce.is_some()) {
            return self.transmit_bounced(tables, slot, now);
        }
        for _ in 0..TURN {
            if !self.blocked.is_empty() {
                break;
            }
            let packet = self.conns.poll_transmit(tables, slot, now);
            let Some(transmit) = &packet else { return };
            self.pack(tables, slot, transmit, None, now);
        }
        self.conns.ends.enqueue(slot);
    }

    /// Adds a packet to the train, its payload perhaps from a bounce buffer. One whose payload
    /// cannot be gathered is left out, and its request fails.
    // Always: what to send stays in registers.
    #[inline(always)]
    pub(super) fn pack(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        transmit: &Transmit,
        bounced: Option<Slice>,
        now: u64,
    ) {
        let Transmit { bth, ext, payload } = transmit;
        let len = Transport::len_with(ext, payload.len() as usize) + icrc::LEN;
        if !(self.train.last == Some(slot) && self.train.has_room(len)) {
            let Some(to) = self.conns.ends.get(slot).map(|end| end.peer) else { return };
            let to = (to, QpnPart::of(bth.dest_qpn.get()));
            self.open_train(to, Some(slot), len, now);
        }
        self.append(len, |conns, datagram| {
            let built = Transport::emit_around(
                bth,
                ext,
                payload.len() as usize,
                &mut datagram[..len - icrc::LEN],
            );
            match built {
                Ok(range) => match bounced {
                    None => conns.fill(tables, slot, transmit, &mut datagram[range]),
                    Some(slice) => {
                        let bounce = conns.ends.get(slot).and_then(|end| end.bounce.as_ref());
                        bounce.is_some_and(|bounce| bounce.read(slice, &mut datagram[range]))
                    }
                },
                Err(error) => {
                    // The connection makes packets that fit its MTU.
                    tracing::error!(%error, "packet not built");
                    false
                }
            }
        });
    }

    /// Makes the train one to `to` with room for a datagram of `len` bytes, from the connection in
    /// `slot` if it is of one.
    pub(super) fn open_train(&mut self, to: Target, slot: Option<QpSlot>, len: usize, now: u64) {
        if self.train.count > 0 && !(self.train.to == Some(to) && self.train.has_room(len)) {
            self.depart(now);
        }
        (self.train.to, self.train.last) = (Some(to), slot);
        if let (Some(link), 0) = (&self.link, self.train.count) {
            self.train.limits = link.train_limits();
        }
    }

    /// Adds a datagram of `len` bytes to the train, if `write` has written all of it but the ICRC.
    #[inline]
    pub(super) fn append(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut Connections, &mut [u8]) -> bool,
    ) {
        let Self { train, conns, .. } = self;
        if write(conns, train.next(len)) {
            train.add(len);
        }
    }
}

impl Connections {
    /// The next packet of the connection in `slot`.
    // Always: as `pack`.
    #[inline(always)]
    pub(super) fn poll_transmit(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        now: u64,
    ) -> Option<Transmit> {
        let now = Instant::from_nanos(now);
        let end = self.ends.get_mut(slot)?;
        if !end.conn.has_responses() {
            return end.conn.poll_request(now);
        }
        let mut checked = Spans::new();
        let (conn, mut host) = self.host(tables, slot, &mut checked)?;
        conn.poll_transmit(now, &mut host)
    }

    /// Gathers a packet's payload. False if it cannot be read.
    fn fill(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        transmit: &Transmit,
        out: &mut [u8],
    ) -> bool {
        match transmit.payload {
            Payload::Empty => true,
            Payload::Request { id, offset, .. } => {
                let Tables { sends, keys, .. } = tables;
                let (Some(q), Some(end)) = (sends.live_mut(slot), self.ends.get(slot)) else {
                    return false;
                };
                let posted = end.requests.get(id).map(|posted| &posted.outgoing);
                let gathered = gather_request(keys, q, posted, offset, out);
                if let Err(rule) = gathered {
                    self.fail_request(slot, id, rule);
                }
                gathered.is_ok()
            }
            Payload::Region { rkey, va, len } => {
                let Some(rq) = tables.receives.live_mut(slot) else { return false };
                let right = Access::REMOTE_READ;
                let found = tables.keys.lookup(&mut rq.remote_hint, rq.pd, rkey.0, va, len, right);
                // The key was checked for this very call; the owner may have unmapped the memory.
                let gathered = found.is_ok_and(|span| span.region.read(span.offset, out).is_ok());
                if !gathered {
                    let rule = Rule::CopyFailed { kind: Kind::Host };
                    self.fail_response(slot, u64::MAX, transmit.bth.psn, rule);
                }
                gathered
            }
        }
    }

    /// The memory of a request that is not complete cannot be accessed any more: it fails when
    /// those before it are complete.
    pub(super) fn fail_request(&mut self, slot: QpSlot, id: WrId, rule: Option<Rule>) {
        let Self { ends, reports, .. } = self;
        if let Some(end) = ends.get_mut(slot) {
            end.conn.fail_request(id, Status::LocalProtection);
            if let (Some(rule), Some(posted)) = (rule, end.requests.get(id)) {
                reports.push(end.broken(posted.index, rule));
            }
        }
        self.ends.enqueue(slot);
    }
}

impl Network {
    /// Puts an ICRC behind every datagram of a train, or zeros. Their numbers in it are their IPv4
    /// identifications.
    fn seal(&mut self, train: &mut Train, now: u64) {
        let (Some(link), Some((to, part))) = (&mut self.link, train.to) else { return };
        let (wanted, local) =
            (link.wants_icrc(duration(now), to, part), self.conns.envelopes.local);
        // Their families are the same: the path was checked.
        let Some((local, mut ip)) = local.and_then(|at| Some((at, Ip::new(at.ip(), to.ip())?)))
        else {
            return;
        };
        let Train { bytes, len, segment, .. } = train;
        for (id, datagram) in bytes[..*len].chunks_mut((*segment).max(1)).enumerate() {
            if !wanted {
                if let Some(trailer) = datagram.last_chunk_mut::<{ icrc::LEN }>() {
                    *trailer = [0; icrc::LEN];
                }
                continue;
            }
            if let Ip::V4(ip) = &mut ip {
                ip.id = id as u16;
            }
            let envelope = Envelope { ip, udp: Udp { src_port: local.port() } };
            // They are longer than their ICRC, and shorter than what IP carries.
            let sealed = envelope.seal(datagram);
            debug_assert!(sealed.is_ok());
        }
    }
}

/// Where the bytes of `range` of a request's payload lie.
#[inline]
pub(super) fn request_spans<'k>(
    (keys, hint, pd): (&'k KeyTable, &mut KeyHint, u32),
    sges: &[Sge],
    range: Range<u64>,
    spans: &mut Spans<'k>,
) -> Result<(), Option<Rule>> {
    let sges = sges.iter().copied();
    gather_range(keys, hint, pd, sges, range, Access::empty(), spans)
        .map_err(|(segment, error)| Some(own_key(segment, error)))
}

/// A segment of the requester's own names memory that it may not use.
fn own_key(segment: u8, error: AccessError) -> Rule {
    Rule::Key { side: KeySide::Local, segment, error }
}

/// The bytes from `offset` of a request's payload. `None` as error: no rule was broken.
#[inline]
fn gather_request(
    keys: &KeyTable,
    q: &mut SendQueue,
    posted: Option<&Outgoing>,
    offset: u32,
    out: &mut [u8],
) -> Result<(), Option<Rule>> {
    let (pd, start) = (q.pd, offset as usize);
    let sges = match posted.ok_or(None)? {
        Outgoing::Bytes(bytes) | Outgoing::Operands(bytes, _) => {
            out.copy_from_slice(bytes.get(start..start + out.len()).ok_or(None)?);
            return Ok(());
        }
        // The usual case, without a list of pieces.
        Outgoing::One(Sge { addr, lkey, .. }) => {
            let (at, len) = (addr.wrapping_add(offset.into()), out.len() as u32);
            let found = keys.lookup(&mut q.local_hint, pd, lkey.0, at, len, Access::empty());
            let span = found.map_err(|error| Some(own_key(0, error)))?;
            return span.region.read(span.offset, out).map_err(|_| None);
        }
        outgoing => outgoing.sent(),
    };
    let mut hint = std::mem::take(&mut q.local_hint);
    let (range, mut spans) = (start as u64..(start + out.len()) as u64, Spans::new());
    let gathered = request_spans((keys, &mut hint, pd), sges, range, &mut spans);
    q.local_hint = hint;
    gathered?;
    let mut rest = out;
    for span in &spans {
        let (now, later) = rest.split_at_mut(span.len as usize);
        span.region.read(span.offset, now).map_err(|_| None)?;
        rest = later;
    }
    Ok(())
}
