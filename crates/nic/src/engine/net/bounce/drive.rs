//! Connections with a [stage](super): what they keep back, and what is passed on when copies
//! have ended.

use super::super::rx::Turn;
use super::super::tx::{TURN, request_spans};
use super::super::{Connections, End, Network};
use super::{Held, Stage, Why};
use crate::engine::access::{Refusal, Spans};
use crate::engine::stage::{Landed, Pool};
use crate::engine::tables::Tables;
use crate::slots::{QpSlot, Slot};
use crate::violation::Rule;
use warpverbs_mem::{Access, Region};
use warpverbs_rc::{Payload, Transmit};
use warpverbs_wire::Psn;

/// Packets that a turn takes from a connection, whose payload shares copies.
const GATHERED: u32 = 256;

impl End {
    /// The next completion to report.
    pub(in crate::engine::net) fn poll_completion(&mut self) -> Option<warpverbs_rc::Completion> {
        match &mut self.stage {
            None => self.conn.poll_completion(),
            Some(stage) => stage.poll_completion(&mut self.conn),
        }
    }

    /// No completion is kept back.
    pub(in crate::engine::net) fn has_reported(&self) -> bool {
        self.stage.as_ref().is_none_or(|stage| stage.has_reported())
    }

    /// From now on payload may lie in memory such as `region`.
    pub(in crate::engine::net) fn stage_for(
        &mut self,
        pool: &mut Pool,
        region: &Region,
    ) -> Result<(), Rule> {
        admit(&mut self.stage, pool, region)
    }
}

/// Memory such as `region` needs a stage.
#[cold]
pub(in crate::engine::net) fn admit(
    stage: &mut Option<Box<Stage>>,
    pool: &mut Pool,
    region: &Region,
) -> Result<(), Rule> {
    if stage.is_none() {
        let made = Stage::new(pool, region).inspect_err(|error| {
            tracing::warn!(%error, "no memory to stage payload in");
        });
        *stage = Some(made.map_err(|_| Rule::CopyFailed { kind: region.kind() })?);
    }
    Ok(())
}

impl Connections {
    fn stage(&mut self, slot: QpSlot) -> Option<(&mut Stage, &mut Pool)> {
        let Self { ends, pool, .. } = self;
        let end = ends.get_mut(slot.at())?.as_deref_mut()?;
        Some((end.stage.as_deref_mut()?, pool))
    }

    /// The stage of the connection in `slot` has something to do.
    pub(in crate::engine::net) fn enlist(&mut self, slot: QpSlot) {
        if let Some((stage, _)) = self.stage(slot)
            && !std::mem::replace(&mut stage.listed, true)
        {
            self.staging.push(slot);
        }
    }
}

impl Network {
    /// As [`Self::transmit`], for a connection with a stage: packets are kept back until their
    /// payload was gathered and what they promise has arrived.
    pub(in crate::engine::net) fn transmit_staged(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        now: u64,
    ) {
        let mut taken = 0;
        while taken < GATHERED
            && self.conns.stage(slot).is_some_and(|(stage, pool)| stage.wants_packets(pool))
            && let Some(transmit) = self.conns.poll_transmit(tables, slot, now)
        {
            self.conns.keep_back(tables, slot, transmit);
            taken += 1;
        }
        if let Some((stage, _)) = self.conns.stage(slot) {
            stage.start(now);
        }
        let mut sent = 0;
        while sent < TURN
            && self.blocked.is_empty()
            && let Some(held) = self.conns.stage(slot).and_then(|(stage, _)| stage.pop_packet())
        {
            self.pack(tables, slot, &held.transmit, held.payload, now);
            self.conns.give_back(slot, &held);
            sent += 1;
        }
        self.conns.enlist(slot);
        if taken == GATHERED || sent == TURN || !self.blocked.is_empty() {
            self.conns.enqueue(slot);
        }
    }
}

impl Connections {
    fn give_back(&mut self, slot: QpSlot, held: &Held) {
        if let Some((stage, pool)) = self.stage(slot) {
            stage.give_back(pool, held);
        }
    }

    /// Keeps a packet back. One whose payload cannot be had is left out, and its request fails.
    fn keep_back(&mut self, tables: &mut Tables, slot: QpSlot, transmit: Transmit) {
        let Tables { keys, sends, receives, .. } = tables;
        let mut spans = Spans::new();
        let found = match transmit.payload {
            Payload::Empty => Ok(()),
            Payload::Request { id, offset, len } => {
                let Some(q) = sends.live_mut(slot) else { return };
                let range = u64::from(offset)..u64::from(offset) + u64::from(len);
                let mut hint = std::mem::take(&mut q.local_hint);
                let posted = self.end(slot).and_then(|end| end.requests.get(id));
                let sges = posted.map_or(&[][..], |posted| posted.outgoing.sges());
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
                if let Some((stage, _)) = self.stage(slot) {
                    stage.hold(transmit, &spans);
                }
            }
            Err(None) => {}
            Err(Some((id, rule))) => {
                drop(spans);
                self.fail_request(slot, id, rule);
            }
        }
    }

    /// Looks at every stage that has something to do. Whether there is one.
    pub(in crate::engine) fn serve_stages(&mut self, tables: &mut Tables, now: u64) -> bool {
        if self.staging.is_empty() {
            return false;
        }
        for slot in std::mem::take(&mut self.staging) {
            if self.serve_stage(tables, slot, now) {
                self.enqueue(slot);
            }
            let Some((stage, _)) = self.stage(slot) else { continue };
            let (copies, bytes) = stage.take_counts();
            stage.listed = !stage.is_idle();
            let listed = stage.listed;
            self.stats.staged_copies += copies;
            self.stats.staged_bytes += bytes;
            if listed {
                self.staging.push(slot);
            }
        }
        !self.staging.is_empty()
    }

    /// Starts and ends copies of the stage in `slot`. Whether the connection may go on by it.
    fn serve_stage(&mut self, tables: &mut Tables, slot: QpSlot, now: u64) -> bool {
        let mut news = false;
        while let Some(landed) = self.stage(slot).and_then(|(stage, pool)| stage.land(now, pool)) {
            news = true;
            if let Err(error) = &landed.result {
                tracing::warn!(%error, %slot, "copy failed");
                self.fail_landed(slot, &landed);
            }
        }
        if self.stage(slot).is_some_and(|(stage, _)| stage.advance_atomic()) {
            tables.atomics.release(slot);
            news = true;
        }
        while let Some(parked) = self.stage(slot).and_then(|(stage, _)| stage.pop_parked()) {
            if !self.handle(tables, slot, now, &parked.packet(), Turn::Now) {
                if let Some((stage, _)) = self.stage(slot) {
                    stage.park_again(parked);
                }
                break;
            }
            news = true;
        }
        if let Some((stage, _)) = self.stage(slot) {
            stage.start(now);
        }
        news
    }

    /// A copy failed: whoever was to have its bytes hears of it, and nobody that they are there.
    #[cold]
    fn fail_landed(&mut self, slot: QpSlot, landed: &Landed<Why>) {
        let Landed { number, why, kind, .. } = *landed;
        let rule = Rule::CopyFailed { kind };
        match why {
            Why::Request(id) => {
                let kept = self.stage(slot).is_some_and(|(stage, _)| stage.fail_report(id));
                match kept {
                    true => {
                        let end = self.end(slot);
                        let posted = end.and_then(|end| Some((end, end.requests.get(id)?)));
                        let broken = posted.map(|(end, posted)| end.broken(posted.index, rule));
                        self.reports.extend(broken);
                    }
                    false => self.fail_request(slot, id, Some(rule)),
                }
            }
            Why::Peer(psn) => self.fail_response(slot, number, psn, rule),
            Why::Packets => self.fail_packets(slot, number, rule),
        }
    }

    /// The payload of packets could not be gathered.
    fn fail_packets(&mut self, slot: QpSlot, number: u64, rule: Rule) {
        let Some((stage, _)) = self.stage(slot) else { return };
        let packets = stage.take_ungathered(number);
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

    /// What the peer asked for with the packet at `psn` failed here, by copy `number`.
    #[cold]
    pub(in crate::engine::net) fn fail_response(
        &mut self,
        slot: QpSlot,
        number: u64,
        psn: Psn,
        rule: Rule,
    ) {
        let held = self.stage(slot).map(|(stage, _)| stage.take_unfounded(number));
        for held in held.into_iter().flatten() {
            self.give_back(slot, &held);
        }
        if let Some(end) = self.end_mut(slot) {
            end.refusal.get_or_insert(Refusal::Operational { rule, receive: None });
            end.conn.fail_response(psn);
        }
        self.enqueue(slot);
    }
}
