//! Connections with [bounce buffers](super::bounce): packets and completions that they keep back until
//! copies have ended.

use super::bounce::{Bounce, Failed, Held, Purpose};
use super::rx::Turn;
use super::tx::{TURN, request_spans};
use super::{Connections, Network};
use crate::engine::access::Spans;
use crate::engine::outcome::Refusal;
use crate::engine::tables::Tables;
use crate::slots::QpSlot;
use crate::violation::Rule;
use warpverbs_mem::Access;
use warpverbs_rc::{Payload, Transmit};
use warpverbs_wire::Psn;

/// Packets that a turn takes from a connection, whose payload shares copies.
const GATHERED: u32 = 256;

impl Connections {
    fn bounce(&mut self, slot: QpSlot) -> Option<&mut Bounce> {
        self.ends.get_mut(slot)?.bounce.as_deref_mut()
    }

    /// Adds the connection in `slot` to those whose copies are polled.
    pub(crate) fn enlist(&mut self, slot: QpSlot) {
        if let Some(bounce) = self.bounce(slot)
            && !std::mem::replace(&mut bounce.listed, true)
        {
            self.bouncing.push(slot);
        }
    }
}

impl Network {
    /// As [`Self::transmit`], for a connection with bounce buffers: packets are kept back until
    /// their payload was gathered and what they acknowledge has arrived.
    pub(crate) fn transmit_bounced(&mut self, tables: &mut Tables, slot: QpSlot, now: u64) {
        let mut taken = 0;
        while taken < GATHERED
            && self.conns.bounce(slot).is_some_and(|bounce| bounce.wants_packets())
            && let Some(transmit) = self.conns.poll_transmit(tables, slot, now)
        {
            self.conns.keep_back(tables, slot, transmit);
            taken += 1;
        }
        if let Some(bounce) = self.conns.bounce(slot) {
            bounce.start();
        }
        let mut sent = 0;
        while sent < TURN
            && self.blocked.is_empty()
            && let Some(held) = self.conns.bounce(slot).and_then(|bounce| bounce.pop_packet())
        {
            self.pack(tables, slot, &held.transmit, held.payload, now);
            self.conns.give_back(slot, &held);
            sent += 1;
        }
        self.conns.enlist(slot);
        if taken == GATHERED || sent == TURN || !self.blocked.is_empty() {
            self.conns.ends.enqueue(slot);
        }
    }
}

impl Connections {
    fn give_back(&mut self, slot: QpSlot, held: &Held) {
        if let Some(bounce) = self.bounce(slot) {
            bounce.give_back(held);
        }
    }

    /// Keeps a packet back. A packet whose payload cannot be read is left out, and its request fails.
    fn keep_back(&mut self, tables: &mut Tables, slot: QpSlot, transmit: Transmit) {
        let Tables { keys, sends, receives, .. } = tables;
        let mut spans = Spans::new();
        let found = match transmit.payload {
            Payload::Empty => Ok(()),
            Payload::Request { id, offset, len } => {
                let Some(q) = sends.live_mut(slot) else { return };
                let range = u64::from(offset)..u64::from(offset) + u64::from(len);
                let mut hint = std::mem::take(&mut q.local_hint);
                let posted = self.ends.get(slot).and_then(|end| end.requests.get(id));
                let sges = posted.map_or(&[][..], |posted| posted.outgoing.sent());
                let found = request_spans((keys, &mut hint, q.pd), sges, range, &mut spans);
                q.local_hint = hint;
                found.map_err(|rule| Some((id, rule)))
            }
            Payload::Region { rkey, va, len } => {
                let Some(rq) = receives.live_mut(slot) else { return };
                let right = Access::REMOTE_READ;
                let found = keys.lookup(&mut rq.remote_hint, rq.pd, rkey.0, va, len, right);
                // It was checked for this very call.
                found.map(|span| spans.push(span)).map_err(|_| None)
            }
        };
        match found {
            Ok(()) => {
                if let Some(bounce) = self.bounce(slot) {
                    bounce.hold(transmit, &spans);
                }
            }
            Err(None) => {}
            Err(Some((id, rule))) => {
                drop(spans);
                self.fail_request(slot, id, rule);
            }
        }
    }

    /// Polls the copies of all connections. Whether there are any.
    pub(crate) fn serve_copies(&mut self, tables: &mut Tables, now: u64) -> bool {
        if self.bouncing.is_empty() {
            return false;
        }
        for slot in std::mem::take(&mut self.bouncing) {
            if self.serve_copies_of(tables, slot, now) {
                self.ends.enqueue(slot);
            }
            let Some(bounce) = self.bounce(slot) else { continue };
            let (copies, bytes) = bounce.take_counts();
            bounce.listed = !bounce.is_idle();
            let listed = bounce.listed;
            self.stats.bounced_copies += copies;
            self.stats.bounced_bytes += bytes;
            if listed {
                self.bouncing.push(slot);
            }
        }
        !self.bouncing.is_empty()
    }

    /// Starts and ends copies of the connection in `slot`. Whether it may go on by it.
    fn serve_copies_of(&mut self, tables: &mut Tables, slot: QpSlot, now: u64) -> bool {
        let mut progress = false;
        while let Some(bounce) = self.bounce(slot) {
            let (any, failed) = bounce.poll(now);
            progress |= any;
            let Some(failed) = failed else { break };
            self.fail_copy(tables, slot, &failed);
        }
        if self.bounce(slot).is_some_and(|bounce| bounce.advance_atomic()) {
            tables.atomics.release(slot);
            progress = true;
        }
        while let Some(parked) = self.bounce(slot).and_then(|bounce| bounce.pop_parked()) {
            if !self.handle(tables, slot, now, &parked.packet(), Turn::Now) {
                if let Some(bounce) = self.bounce(slot) {
                    bounce.park_again(parked);
                }
                break;
            }
            progress = true;
        }
        if let Some(bounce) = self.bounce(slot) {
            bounce.start();
        }
        progress
    }

    /// A copy failed. The request that it belongs to fails, and nothing that depends on it is sent
    /// or reported.
    #[cold]
    fn fail_copy(&mut self, tables: &mut Tables, slot: QpSlot, failed: &Failed) {
        let Failed { number, purpose, rule } = *failed;
        match purpose {
            Purpose::Request(id) => {
                let kept = self.bounce(slot).is_some_and(|bounce| bounce.fail_report(id));
                match kept {
                    true => {
                        let end = self.ends.get(slot);
                        let posted = end.and_then(|end| Some((end, end.requests.get(id)?)));
                        let broken = posted.map(|(end, posted)| end.broken(posted.index, rule));
                        self.reports.extend(broken);
                    }
                    false => self.fail_request(slot, id, Some(rule)),
                }
            }
            Purpose::Peer(psn) => self.fail_response(slot, number, psn, rule),
            Purpose::Packets => self.fail_packets(slot, number, rule),
            // Its packet, which is parked, gets the error.
            Purpose::Atomic => tables.atomics.release(slot),
        }
    }

    /// The payload of packets could not be gathered.
    fn fail_packets(&mut self, slot: QpSlot, number: u64, rule: Rule) {
        let Some(bounce) = self.bounce(slot) else { return };
        let packets = bounce.take_ungathered(number);
        for held in &packets {
            self.give_back(slot, held);
        }
        let first = packets.iter().find_map(Held::request);
        if let Some(id) = first {
            self.fail_request(slot, id, Some(rule));
        }
        let answer = packets.iter().find(|held| held.request().is_none());
        if let Some(held) = answer {
            self.fail_response(slot, number, held.transmit.bth.psn, rule);
        }
    }

    /// The peer's request with the packet at `psn` failed here, by copy `number`.
    #[cold]
    pub(crate) fn fail_response(&mut self, slot: QpSlot, number: u64, psn: Psn, rule: Rule) {
        let held = self.bounce(slot).map(|bounce| bounce.take_unfounded(number));
        for held in held.into_iter().flatten() {
            self.give_back(slot, &held);
        }
        if let Some(end) = self.ends.get_mut(slot) {
            end.refusal.get_or_insert(Refusal::Operational { rule, receive: None });
            end.conn.fail_response(psn);
        }
        self.ends.enqueue(slot);
    }
}
