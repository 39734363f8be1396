//! Looking at [pages of doorbell registers](super::uars), and at the records of their QPs.

use super::doorbell::DoorbellScanner;
use super::queues::Queues;
use super::uars::{HOT, LATER, RECORDS, WINDOW};
use crate::format::{self, WqeIndex};
use crate::objects::send::{DoorbellOnly, PendingDoorbell, SendQueue, Source};
use crate::slots::{QpSlot, UarSlot};
use warpverbs_mem::Kind;
use warpverbs_rdma::QpState;

impl DoorbellScanner {
    /// Looks at one register of each page, and at the records that are due. Whether work was
    /// announced.
    #[inline]
    pub(super) fn scan_uars(&mut self, queues: &mut Queues) -> bool {
        if self.uars.is_empty() { false } else { self.scan_pages(queues) }
    }

    fn scan_pages(&mut self, queues: &mut Queues) -> bool {
        let mut rung = false;
        for i in 0..HOT {
            let Some(&slot) = self.uars.hot.get(i) else { break };
            rung |= self.look(queues, slot);
        }
        let end = (self.uars.page + WINDOW).min(self.uars.pages.len());
        while let Some((page, bytes)) = self.uars.next_change(end) {
            rung |= self.ring_register(queues, page, bytes);
        }
        self.uars.end_slice();
        for _ in 0..RECORDS {
            let Some(slot) = self.uars.next_due() else { break };
            rung |= self.look_anew(queues, slot);
        }
        if !self.uars.later.is_empty()
            && queues.completer.steps.is_multiple_of(LATER)
            && let Some(slot) = self.uars.next_later()
        {
            rung |= self.look_anew(queues, slot);
        }
        rung
    }

    /// Looks at a record that may have changed. Whether it announced something.
    pub(super) fn look_anew(&mut self, queues: &mut Queues, slot: QpSlot) -> bool {
        if !self.fetch_record(queues, slot) {
            return true;
        }
        let rung = self.look(queues, slot);
        if rung {
            self.uars.heat(slot);
        }
        rung
    }

    /// Looks at the record of a QP, unless doorbells alone count. Whether it announced something. One
    /// that must be copied has nothing new unless it was fetched.
    #[inline]
    fn look(&self, queues: &mut Queues, slot: QpSlot) -> bool {
        let Some(q) = queues.tables.sends.get(slot) else { return false };
        q.doorbell.recorded() != WqeIndex::of(q.progress.posted)
            && !matches!(q.doorbell.source, Source::Uar { now: DoorbellOnly::Always, .. })
            && self.poll_record(queues, slot)
    }

    /// A register of `page` has a new value.
    fn ring_register(&mut self, queues: &mut Queues, page: UarSlot, bytes: [u8; 8]) -> bool {
        self.uars.look_at_all(page, 1 << self.uars.register);
        let bell = format::announced(bytes);
        // The value may have overwritten other doorbells, whatever else it is.
        let Some(&slot) = queues.tables.by_qpn.get(&bell.qpn.get()) else { return false };
        let Some(q) = queues.tables.sends.live_mut(slot) else { return false };
        let Source::Uar { page: own, now, .. } = q.doorbell.source else { return false };
        if own != page || matches!(q.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return false;
        }
        let (next, before) = (bell.next, q.progress.posted);
        self.uars.heat(slot);
        let copied = q.doorbell.record.kind() != Kind::Host;
        if copied {
            self.uars.rung_by(page, slot);
            q.switch(queues.consume_only);
            begin(q, next);
        }
        if now == DoorbellOnly::Always {
            q.stats.doorbells += 1;
            self.announce_index(queues, slot, next);
            return true;
        }
        let rung = !self.fetch_record(queues, slot) || self.poll_record(queues, slot);
        let Some(q) = queues.tables.sends.live_mut(slot) else { return rung };
        if copied && let Some(ring) = &mut q.ring.wqes {
            ring.forget();
        }
        if rung {
            return true;
        }
        let start = WqeIndex::default();
        let no_record = before == 0 && q.doorbell.recorded() == start && next != start;
        if now == DoorbellOnly::Detect && no_record {
            let polls = match q.doorbell.pending {
                PendingDoorbell::AwaitRecord { polls, .. } => polls,
                _ => self.polls_of(q),
            };
            q.doorbell.pending = PendingDoorbell::AwaitRecord { doorbell: next, polls };
            queues.schedule.watch(slot);
        }
        false
    }
}

/// Starts to copy what a doorbell says to be announced, before the record is known to announce it:
/// the two copies follow each other then.
#[cold]
fn begin(q: &mut SendQueue, next: WqeIndex) {
    let posted = next.widen(q.progress.posted);
    if let Some(ring) = &mut q.ring.wqes
        && !q.ring.consume_only
        && posted - q.progress.reported <= q.ring.depth
    {
        ring.begin(q.progress.posted, posted);
    }
}
