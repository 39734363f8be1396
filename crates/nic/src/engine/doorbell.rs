//! Polling doorbells, and how far each send queue is announced.

use super::queues::Queues;
use super::uars::Uars;
use crate::config::{Config, DoorbellPolicy};
use crate::format::{self, WqeIndex};
use crate::objects::send::DoorbellOnly;
use crate::objects::send::{PendingDoorbell, SendQueue, Source};
use crate::slots::{QpSlot, Slot};
use crate::violation::{QueueKind, Rule};
use arrayvec::ArrayVec;
use rand::Rng;
use rand::rngs::StdRng;
use warpverbs_mem::{DoorbellPage, Kind};
use warpverbs_rdma::QpState;

/// Doorbells polled in one slice in addition to those of busy QPs: eight cache lines.
const WINDOW: usize = 64;
/// QPs whose doorbells are looked at in every slice.
const HOT: usize = 8;
/// Copies at most of a record that lags behind its doorbell.
const COPIED_POLLS: u32 = 100;

/// The doorbell page, the values last seen there, and what a new value means.
pub(crate) struct DoorbellScanner {
    page: DoorbellPage,
    seen: Vec<u64>,
    cursor: usize,
    /// QPs that ring doorbells of this page.
    dense: usize,
    /// QPs whose doorbells were rung last, newest first.
    hot: ArrayVec<QpSlot, HOT>,
    pub(super) uars: Uars,
    pub(super) policy: DoorbellPolicy,
    record_polls: u32,
    watch_rewrites: bool,
    pub(super) rng: StdRng,
}

impl DoorbellScanner {
    pub(crate) fn new(config: &Config, page: DoorbellPage, rng: StdRng) -> Self {
        Self {
            page,
            seen: Vec::new(),
            cursor: 0,
            dense: 0,
            hot: ArrayVec::new(),
            uars: Uars::default(),
            policy: config.policy,
            record_polls: config.record_polls,
            watch_rewrites: config.watch_rewrites,
            rng,
        }
    }

    /// Doorbells there are.
    pub(crate) fn count(&self) -> u32 {
        self.page.count() as u32
    }

    /// Silences a doorbell: before its QP is handed out, and after it is gone.
    pub(crate) fn clear(&mut self, slot: QpSlot) {
        self.page.clear(slot.at());
        if self.seen.len() <= slot.at() {
            self.seen.resize(slot.at() + 1, 0);
        }
        self.seen[slot.at()] = 0;
        self.hot.retain(|hot| *hot != slot);
    }

    /// Begins to watch the doorbell of the QP in `slot`.
    pub(crate) fn watch(&mut self, slot: QpSlot, q: &SendQueue) {
        match q.doorbell.source {
            Source::Doorbell => self.dense += 1,
            Source::Uar { page, .. } => {
                self.uars.join(page, slot, q.doorbell.record.kind() != Kind::Host);
            }
        }
    }

    /// The QP in `slot` is gone.
    pub(crate) fn forget(&mut self, slot: QpSlot, q: &SendQueue) {
        match q.doorbell.source {
            Source::Doorbell => self.dense -= 1,
            Source::Uar { page, .. } => {
                self.uars.leave(page, slot, q.doorbell.record.kind() != Kind::Host);
            }
        }
    }

    #[inline]
    fn is_rung(&self, slot: QpSlot) -> bool {
        let slot = slot.at();
        u64::from_ne_bytes(self.page.load(slot)) != self.seen[slot]
    }

    /// The first rung doorbell of the window at the cursor, if any. The cursor moves past it, so
    /// that one that is rung without end does not hold up the others.
    #[inline]
    fn scan_window(&mut self) -> Option<QpSlot> {
        let end = (self.cursor + WINDOW).min(self.seen.len());
        match self.page.find_change(&self.seen[..end], self.cursor) {
            Some(slot) => {
                self.cursor = slot + 1;
                Some(QpSlot(slot as u32))
            }
            None => {
                self.cursor = if end == self.seen.len() { 0 } else { end };
                None
            }
        }
    }

    fn take(&mut self, slot: QpSlot) -> [u8; 8] {
        let bytes = self.page.load(slot.at());
        self.seen[slot.at()] = u64::from_ne_bytes(bytes);
        if self.hot.first() != Some(&slot) {
            self.hot.retain(|hot| *hot != slot);
            self.hot.truncate(HOT - 1);
            self.hot.insert(0, slot);
        }
        bytes
    }
}

/// How the announced index relates to what is known.
enum Announced {
    Nothing,
    More,
    Broken(Rule),
}

impl DoorbellScanner {
    /// Looks at the doorbells of busy QPs and at one window of the others; at all windows if
    /// there is nothing else to do. Whether one was rung.
    #[inline]
    pub(crate) fn scan(&mut self, queues: &mut Queues) -> bool {
        let mut rung = self.scan_uars(queues) | self.scan_hot(queues);
        let elsewhere = self.dense == 0 && !self.uars.is_empty();
        let windows = if elsewhere { 0 } else { self.seen.len().div_ceil(WINDOW) };
        for _ in 0..windows {
            while let Some(slot) = self.scan_window() {
                rung = true;
                self.ring(queues, slot);
            }
            if rung || !queues.schedule.is_empty() {
                break;
            }
            rung = self.scan_hot(queues);
        }
        rung
    }

    #[inline]
    fn scan_hot(&mut self, queues: &mut Queues) -> bool {
        let mut rung = false;
        for i in 0..HOT {
            let Some(&slot) = self.hot.get(i) else { break };
            if self.is_rung(slot) {
                rung = true;
                self.ring(queues, slot);
            }
        }
        rung
    }

    /// Looks at all doorbells, all registers, and the records of QPs that ring registers.
    pub(crate) fn scan_all(&mut self, queues: &mut Queues) {
        (0..self.uars.slices_of_a_round()).for_each(|_| {
            self.scan(queues);
        });
        for slot in (0..queues.tables.sends.high_water() as u32).map(QpSlot) {
            let source = queues.tables.sends.get(slot).map(|q| q.doorbell.source);
            if let Some(Source::Uar { .. }) = source {
                self.look_anew(queues, slot);
            }
        }
    }

    /// Looks at the record of the QP in `slot`. Whether it announced something.
    pub(super) fn poll_record(&self, queues: &mut Queues, slot: QpSlot) -> bool {
        let Some(q) = queues.tables.sends.live(slot) else { return false };
        // Before RTS, the index in the record may be from before RESET.
        if matches!(q.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return false;
        }
        let record = q.doorbell.recorded();
        if record == WqeIndex::of(q.progress.posted) || q.doorbell.refused_record == Some(record) {
            return false;
        }
        self.announce_index(queues, slot, record);
        let Some(q) = queues.tables.sends.live_mut(slot) else { return true };
        q.stats.doorbells += 1;
        q.doorbell.refused_record = (record != WqeIndex::of(q.progress.posted)).then_some(record);
        true
    }

    /// The doorbell of `slot` has a new value.
    #[inline]
    fn ring(&mut self, queues: &mut Queues, slot: QpSlot) {
        let bytes = self.take(slot);
        let Some(q) = queues.tables.sends.get_mut(slot) else {
            let value = u64::from_le_bytes(bytes);
            return queues.diagnostics.report(
                0,
                QueueKind::Send,
                0,
                Rule::DoorbellUnowned { slot: slot.0, value },
            );
        };
        q.stats.doorbells += 1;
        if !q.format.is_mlx5() {
            return self.ring_alone(queues, slot, bytes);
        }
        let (bell, qpn) = (format::announced(bytes), q.qpn);
        if bell.qpn != qpn {
            let (found, expected, at) = (bell.qpn.get(), qpn.get(), q.progress.posted);
            let rule = Rule::DoorbellQpn { found, expected };
            return queues.diagnostics.report(expected, QueueKind::Send, at, rule);
        }
        if q.doorbell.lose > 0 {
            q.doorbell.lose -= 1;
            q.doorbell.pending = PendingDoorbell::Dropped { polls: q.doorbell.lose_recovery };
            return queues.schedule.watch(slot);
        }
        let by_record = match self.policy {
            DoorbellPolicy::DoorbellFirst => false,
            DoorbellPolicy::RecordFirst => true,
            // A doorbell that is behind is older than the record that was used before: the record stays
            // valid.
            DoorbellPolicy::Random => {
                let posted = WqeIndex::of(q.progress.posted);
                self.rng.next_u32() & 1 == 0 || bell.next.ahead_of(posted) < 0
            }
            DoorbellPolicy::DropThenRecover { polls } => {
                q.doorbell.pending = PendingDoorbell::Dropped { polls: Some(polls) };
                return queues.schedule.watch(slot);
            }
        };
        if !by_record {
            q.doorbell.pending = PendingDoorbell::None;
            return self.announce_index(queues, slot, bell.next);
        }
        let polls = self.polls_of(q);
        self.announce_by_record(queues, slot, bell.next, polls);
    }

    /// Polls of a record that lags behind its doorbell.
    pub(super) fn polls_of(&self, q: &SendQueue) -> u32 {
        match q.doorbell.record.kind() {
            Kind::Host => self.record_polls,
            _ => self.record_polls.min(COPIED_POLLS),
        }
    }

    /// Takes the record's index; waits for the record if it lags behind the doorbell.
    pub(super) fn announce_by_record(
        &self,
        queues: &mut Queues,
        slot: QpSlot,
        doorbell: WqeIndex,
        polls: u32,
    ) {
        if !self.fetch_record(queues, slot) {
            return;
        }
        let Some(q) = queues.tables.sends.live_mut(slot) else { return };
        let record = q.doorbell.recorded();
        let lags = doorbell.ahead_of(record) > 0;
        q.doorbell.pending = if lags {
            PendingDoorbell::AwaitRecord { doorbell, polls }
        } else {
            PendingDoorbell::None
        };
        self.announce_index(queues, slot, record);
        if lags {
            queues.schedule.watch(slot);
        }
    }

    /// A recovery is being waited for.
    pub(crate) fn is_recovering(&self, queues: &Queues) -> bool {
        queues.schedule.watched.iter().filter_map(|&slot| queues.tables.sends.live(slot)).any(|q| {
            match q.doorbell.pending {
                PendingDoorbell::None | PendingDoorbell::Dropped { polls: None } => false,
                PendingDoorbell::Dropped { .. } | PendingDoorbell::AwaitRecord { .. } => true,
            }
        })
    }

    /// One poll for every delayed ring. Whether any announced work.
    pub(crate) fn poll_watched(&mut self, queues: &mut Queues) -> bool {
        let (mut news, mut i) = (false, 0);
        while let Some(&slot) = queues.schedule.watched.get(i) {
            let (keep, moved) = self.poll_one(queues, slot);
            news |= moved;
            if keep {
                i += 1;
            } else {
                queues.schedule.watched.swap_remove(i);
            }
        }
        news
    }

    /// Whether to keep watching, and whether work was announced.
    fn poll_one(&self, queues: &mut Queues, slot: QpSlot) -> (bool, bool) {
        let Some(q) = queues.tables.sends.live_mut(slot) else { return (false, false) };
        let qpn = q.qpn.get();
        let before = q.progress.posted;
        match q.doorbell.pending {
            PendingDoorbell::None | PendingDoorbell::Dropped { polls: None } => {}
            PendingDoorbell::Dropped { polls: Some(polls @ 1..) } => {
                q.doorbell.pending = PendingDoorbell::Dropped { polls: Some(polls - 1) };
            }
            PendingDoorbell::Dropped { polls: Some(0) } => {
                q.doorbell.pending = PendingDoorbell::None;
                if !q.format.is_mlx5() {
                    self.announce_alone(queues, slot, self.page.load(slot.at()));
                } else if self.fetch_record(queues, slot)
                    && let Some(q) = queues.tables.sends.live(slot)
                {
                    let record = q.doorbell.recorded();
                    self.announce_index(queues, slot, record);
                }
            }
            PendingDoorbell::AwaitRecord { doorbell, polls: 0 } => {
                q.doorbell.pending = PendingDoorbell::None;
                if q.doorbell.has_no_record() {
                    self.announce_index(queues, slot, doorbell);
                    return (true, true);
                }
                let (record, doorbell) = (q.doorbell.recorded().0, doorbell.0);
                let rule = Rule::RecordBehindDoorbell { record, doorbell };
                queues.diagnostics.report(qpn, QueueKind::Send, before, rule);
            }
            PendingDoorbell::AwaitRecord { doorbell, polls } => {
                self.announce_by_record(queues, slot, doorbell, polls - 1);
            }
        }
        let flushed = queues.flush_late_receives(slot);
        let Some(q) = queues.tables.sends.live(slot) else { return (false, flushed) };
        let keep = q.doorbell.pending != PendingDoorbell::None || q.state == QpState::Err;
        (keep, flushed || q.progress.posted != before)
    }

    /// Reads or copies the record of the QP in `slot`, unless doorbells alone count. Its value before RTS
    /// may be from before RESET. `false`: it cannot be read.
    #[inline]
    pub(super) fn fetch_record(&self, queues: &mut Queues, slot: QpSlot) -> bool {
        if let Some(q) = queues.tables.sends.live(slot)
            && q.doorbell.record.kind() != Kind::Host
            && !matches!(q.state, QpState::Reset | QpState::Init | QpState::Rtr)
            && !matches!(q.doorbell.source, Source::Uar { now: DoorbellOnly::Always, .. })
            && q.doorbell.record.fetch().is_err()
        {
            let kind = q.doorbell.record.kind();
            self.fail_next(queues, slot, kind);
            return false;
        }
        true
    }

    /// The record or the WQEs cannot be copied: the next WQE fails.
    #[cold]
    fn fail_next(&self, queues: &mut Queues, slot: QpSlot, kind: Kind) {
        let Some(q) = queues.tables.sends.live_mut(slot) else { return };
        // The last known value of the record announces nothing.
        q.doorbell.refused_record = Some(q.doorbell.recorded());
        if !q.state.flushes_sends() {
            q.progress.posted = q.progress.posted.max(q.progress.next + 1);
            q.turn.deferred_error = Some(Rule::CopyFailed { kind });
        }
        queues.enqueue(slot);
    }

    /// The send queue in `slot` is announced up to an index of which this is a part.
    #[inline]
    pub(super) fn announce_index(&self, queues: &mut Queues, slot: QpSlot, found: WqeIndex) {
        if let Some(q) = queues.tables.sends.live(slot) {
            let posted = found.widen(q.progress.posted);
            self.announce(queues, slot, posted);
        }
    }

    /// The send queue in `slot` is announced up to `found`.
    #[inline]
    pub(super) fn announce(&self, queues: &mut Queues, slot: QpSlot, found: u64) {
        let Some(q) = queues.tables.sends.live_mut(slot) else { return };
        if q.ring.consume_only != queues.consume_only {
            q.switch(queues.consume_only);
        }
        let before = q.progress.posted;
        match extend(q, found) {
            Announced::Nothing => return,
            Announced::More => {}
            Announced::Broken(rule) => {
                let (qpn, fatal) = (q.qpn.get(), rule.status().is_some());
                if fatal && !q.state.flushes_sends() {
                    // The slots that could be in use are flushed, no more. If all of them were
                    // executed, the error is that of the first WQE beyond.
                    q.progress.posted =
                        (q.progress.reported + q.ring.depth).max(q.progress.next + 1);
                    q.turn.deferred_error = Some(rule);
                    queues.enqueue(slot);
                } else {
                    queues.diagnostics.report(qpn, QueueKind::Send, before, rule);
                }
                return;
            }
        }
        // A WQE that is not executed is not read.
        if q.ring.consume_only {
            return queues.enqueue(slot);
        }
        if let Some(ring) = &mut q.ring.wqes
            && ring.fetch(before, q.progress.posted).is_err()
        {
            let kind = ring.kind();
            return self.fail_next(queues, slot, kind);
        }
        if self.watch_rewrites && q.format.is_mlx5() {
            remember(q, before);
        }
        queues.enqueue(slot);
    }
}

/// The queue is announced up to `posted`, if that is a possible index.
#[inline]
fn extend(q: &mut SendQueue, posted: u64) -> Announced {
    let more = posted - q.progress.posted;
    if more == 0 {
        return Announced::Nothing;
    }
    if matches!(q.state, QpState::Reset | QpState::Init | QpState::Rtr) {
        return Announced::Broken(Rule::DoorbellState { state: q.state });
    }
    // A ring of mlx5's has at most 2^15 WQEBBs, so a longer way forward is a shorter way back.
    if more > 1 << 15 && q.format.is_mlx5() {
        let (found, expected) = (posted as u16, q.progress.posted as u16);
        return Announced::Broken(Rule::Backward { found, expected });
    }
    let outstanding = posted - q.progress.reported;
    if outstanding > q.ring.depth {
        return Announced::Broken(Rule::BeyondRing { posted, outstanding, depth: q.ring.depth });
    }
    q.progress.posted = posted;
    Announced::More
}

/// Keeps copies of the WQEBBs from `before` to `posted`.
fn remember(q: &mut SendQueue, before: u64) {
    let Some(ring) = &q.ring.wqes else { return };
    q.ring.snapshot.resize(q.ring.depth as usize, [0; 8]);
    for index in before..q.progress.posted {
        q.ring.snapshot[(index % q.ring.depth) as usize] = ring.load(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::sync::atomic::Ordering::Relaxed;
    use warpverbs_mem::HostBuf;

    #[test]
    fn a_doorbell_that_never_rests_is_seen_once_a_round() {
        let region = HostBuf::region(8 * 8).unwrap();
        let page = DoorbellPage::new(&region, 8).unwrap();
        let mut bells = DoorbellScanner::new(&Config::default(), page, StdRng::seed_from_u64(1));
        (0..8).for_each(|slot| bells.clear(QpSlot(slot)));
        let mut rung = Vec::new();
        for round in 0..100 {
            // Another value before every look, and a neighbour that rings now and then.
            region.atomic_u64(3 * 8).unwrap().fetch_add(1, Relaxed);
            region.atomic_u64(5 * 8).unwrap().store(round / 10, Relaxed);
            let Some(slot) = bells.scan_window() else { break };
            bells.take(slot);
            rung.push(slot);
        }
        assert_eq!(rung, [QpSlot(3)]);
        region.atomic_u64(5 * 8).unwrap().store(7, Relaxed);
        assert_eq!(
            (bells.scan_window(), bells.scan_window(), bells.scan_window()),
            (Some(QpSlot(3)), Some(QpSlot(5)), None)
        );
    }
}
