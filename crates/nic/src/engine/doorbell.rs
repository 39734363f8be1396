//! Hearing doorbells and deciding how far a send queue is announced.

use super::Core;
use super::run::Advance;
use crate::config::DoorbellPolicy;
use crate::qp::QpState;
use crate::qp::send::{Notice, SendQueue};
use crate::violation::{QueueKind, Rule};
use arrayvec::ArrayVec;
use rand::Rng;
use warpverbs_mem::DoorbellPage;
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::Doorbell;
use warpverbs_mlx5::opcode::SendOpcode;

/// Doorbells looked at in one slice, besides those of busy QPs: eight cache lines.
const WINDOW: usize = 64;
/// QPs whose doorbells are looked at in every slice.
const HOT: usize = 8;

/// The doorbell page and the values last seen there.
pub(crate) struct Bells {
    page: DoorbellPage,
    seen: Vec<u64>,
    cursor: usize,
    /// Slots rung last, newest first.
    hot: ArrayVec<u32, HOT>,
}

impl Bells {
    pub(crate) fn new(page: DoorbellPage) -> Self {
        Self { page, seen: Vec::new(), cursor: 0, hot: ArrayVec::new() }
    }

    /// Doorbells there are.
    pub(crate) fn count(&self) -> u32 {
        self.page.count() as u32
    }

    /// Silences a doorbell: before its QP is handed out, and after it is gone.
    pub(crate) fn clear(&mut self, slot: u32) {
        self.page.clear(slot as usize);
        if self.seen.len() <= slot as usize {
            self.seen.resize(slot as usize + 1, 0);
        }
        self.seen[slot as usize] = 0;
        self.hot.retain(|hot| *hot != slot);
    }

    #[inline]
    fn is_rung(&self, slot: u32) -> bool {
        let slot = slot as usize;
        u64::from_ne_bytes(self.page.load(slot)) != self.seen[slot]
    }

    /// The first rung doorbell of the window at the cursor, if any. The cursor moves past it, so
    /// that one that is rung without end does not hold up the others.
    #[inline]
    fn scan(&mut self) -> Option<u32> {
        let end = (self.cursor + WINDOW).min(self.seen.len());
        match self.page.find_change(&self.seen[..end], self.cursor) {
            Some(slot) => {
                self.cursor = slot + 1;
                Some(slot as u32)
            }
            None => {
                self.cursor = if end == self.seen.len() { 0 } else { end };
                None
            }
        }
    }

    fn take(&mut self, slot: u32) -> [u8; 8] {
        let bytes = self.page.load(slot as usize);
        self.seen[slot as usize] = u64::from_ne_bytes(bytes);
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

impl Core {
    /// Looks at the doorbells of busy QPs and at one window of the others; at all windows if
    /// there is nothing else to do. Whether one was rung.
    #[inline]
    pub(crate) fn listen(&mut self) -> bool {
        let mut heard = self.listen_hot();
        let windows = self.bells.seen.len().div_ceil(WINDOW);
        for _ in 0..windows {
            while let Some(slot) = self.bells.scan() {
                heard = true;
                self.ring(slot);
            }
            if heard || !self.run.is_empty() {
                break;
            }
            heard = self.listen_hot();
        }
        heard
    }

    #[inline]
    fn listen_hot(&mut self) -> bool {
        let mut heard = false;
        for i in 0..HOT {
            let Some(&slot) = self.bells.hot.get(i) else { break };
            if self.bells.is_rung(slot) {
                heard = true;
                self.ring(slot);
            }
        }
        heard
    }

    /// The doorbell of `slot` has a new value.
    #[inline]
    fn ring(&mut self, slot: u32) {
        let bytes = self.bells.take(slot);
        let Some(q) = self.sends.get_mut(slot) else {
            let value = u64::from_le_bytes(bytes);
            return self.report(0, QueueKind::Send, 0, Rule::DoorbellUnowned { slot, value });
        };
        q.stats.doorbells += 1;
        let (bell, qpn) = (Doorbell::parse(bytes), q.qpn);
        if bell.qpn() != qpn {
            let (found, expected, at) = (bell.qpn().get(), qpn.get(), q.posted);
            let rule = Rule::DoorbellQpn { found, expected };
            return self.report(expected, QueueKind::Send, at, rule);
        }
        if q.lose > 0 {
            q.lose -= 1;
            q.notice = Notice::Dropped { polls: q.lose_recovery };
            return self.watch(slot);
        }
        let by_record = match self.policy {
            DoorbellPolicy::DoorbellFirst => false,
            DoorbellPolicy::RecordFirst => true,
            DoorbellPolicy::Random => self.rng.next_u32() & 1 == 0,
            DoorbellPolicy::DropThenRecover { polls } => {
                q.notice = Notice::Dropped { polls: Some(polls) };
                return self.watch(slot);
            }
        };
        if !by_record {
            q.notice = Notice::None;
            return self.announce(slot, bell.next().0);
        }
        self.announce_by_record(slot, bell.next().0, self.record_patience);
    }

    /// Believes the record; waits for it if it lags behind the doorbell.
    fn announce_by_record(&mut self, slot: u32, doorbell: u16, polls: u32) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        let record = q.record.send();
        let lags = (doorbell.wrapping_sub(record) as i16) > 0;
        q.notice = if lags { Notice::AwaitRecord { doorbell, polls } } else { Notice::None };
        self.announce(slot, record);
        if lags {
            self.watch(slot);
        }
    }

    fn watch(&mut self, slot: u32) {
        if !self.watched.contains(&slot) {
            self.watched.push(slot);
        }
    }

    /// A QP in ERR flushes receives that are still posted: its record is looked at now and then.
    pub(crate) fn watch_receives(&mut self, slot: u32) {
        self.watch(slot);
    }

    /// A recovery is being waited for.
    pub(crate) fn is_recovering(&self) -> bool {
        self.watched.iter().filter_map(|&slot| self.sends.get(slot)).any(|q| match q.notice {
            Notice::None | Notice::Dropped { polls: None } => false,
            Notice::Dropped { .. } | Notice::AwaitRecord { .. } => true,
        })
    }

    /// One poll for every ring that was put off. Whether anything came of it.
    pub(crate) fn poll_watched(&mut self) -> bool {
        let (mut news, mut i) = (false, 0);
        while let Some(&slot) = self.watched.get(i) {
            let (keep, moved) = self.poll_one(slot);
            news |= moved;
            if keep {
                i += 1;
            } else {
                self.watched.swap_remove(i);
            }
        }
        news
    }

    /// Whether to keep watching, and whether something came of it.
    fn poll_one(&mut self, slot: u32) -> (bool, bool) {
        let Some(q) = self.sends.get_mut(slot) else { return (false, false) };
        let qpn = q.qpn.get();
        let before = q.posted;
        match q.notice {
            Notice::None | Notice::Dropped { polls: None } => {}
            Notice::Dropped { polls: Some(polls @ 1..) } => {
                q.notice = Notice::Dropped { polls: Some(polls - 1) };
            }
            Notice::Dropped { polls: Some(0) } => {
                q.notice = Notice::None;
                let record = q.record.send();
                self.announce(slot, record);
            }
            Notice::AwaitRecord { doorbell, polls: 0 } => {
                q.notice = Notice::None;
                let rule = Rule::RecordBehindDoorbell { record: q.record.send(), doorbell };
                self.report(qpn, QueueKind::Send, before, rule);
            }
            Notice::AwaitRecord { doorbell, polls } => {
                self.announce_by_record(slot, doorbell, polls - 1);
            }
        }
        let flushed = self.flush_late_receives(slot);
        let Some(q) = self.sends.get(slot) else { return (false, flushed) };
        let keep = q.notice != Notice::None || q.state == QpState::Err;
        (keep, flushed || q.posted != before)
    }

    /// The send queue in `slot` is announced up to the 16-bit index `found`.
    #[inline]
    pub(crate) fn announce(&mut self, slot: u32, found: u16) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        let before = q.posted;
        match extend(q, found) {
            Announced::Nothing => return,
            Announced::More => {}
            Announced::Broken(rule) => {
                let (qpn, fatal) = (q.qpn.get(), rule.syndrome().is_some());
                if fatal && !q.state.flushes_sends() {
                    // The slots that could be in use are flushed, no more. If all of them were
                    // executed, the error is that of the first WQE beyond.
                    q.posted = (q.reported + q.depth).max(q.next + 1);
                    q.poison = Some(rule);
                    self.enqueue(slot);
                } else {
                    self.report(qpn, QueueKind::Send, before, rule);
                }
                return;
            }
        }
        if self.watch_rewrites {
            remember(q, before);
        }
        self.enqueue(slot);
    }

    /// A QP that only consumes: everything announced is done.
    pub(crate) fn consume(&mut self, slot: u32) -> Advance {
        let Some(q) = self.sends.get_mut(slot) else { return Advance::Nothing };
        let upto = q.posted;
        (q.next, q.retired) = (upto, upto);
        let cqe = Cqe::Requester {
            qpn: q.qpn,
            wqe_counter: (upto - 1) as u16,
            opcode: SendOpcode::RdmaWrite,
            byte_cnt: 0,
        };
        self.complete_send(slot, cqe, upto);
        Advance::Done
    }
}

/// Moves `posted` to the index whose low 16 bits are `found`, if it can be meant.
#[inline]
fn extend(q: &mut SendQueue, found: u16) -> Announced {
    let expected = q.posted as u16;
    let more = found.wrapping_sub(expected);
    if more == 0 {
        return Announced::Nothing;
    }
    if matches!(q.state, QpState::Reset | QpState::Init | QpState::Rtr) {
        return Announced::Broken(Rule::DoorbellState { state: q.state });
    }
    // A ring has at most 2^15 WQEBBs, so a longer way forward is a shorter way back.
    if more > 1 << 15 {
        return Announced::Broken(Rule::Backward { found, expected });
    }
    let posted = q.posted + u64::from(more);
    let outstanding = posted - q.reported;
    if outstanding > q.depth {
        return Announced::Broken(Rule::BeyondRing { posted, outstanding, depth: q.depth });
    }
    q.posted = posted;
    Announced::More
}

/// Keeps copies of the WQEBBs from `before` to `posted`.
fn remember(q: &mut SendQueue, before: u64) {
    let Some(ring) = &q.ring else { return };
    q.snapshot.resize(q.depth as usize, [0; 8]);
    for index in before..q.posted {
        q.snapshot[(index % q.depth) as usize] = ring.load(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use warpverbs_mem::HostBuf;

    #[test]
    fn a_doorbell_that_never_rests_is_heard_once_a_round() {
        let region = HostBuf::region(8 * 8).unwrap();
        let mut bells = Bells::new(DoorbellPage::new(&region, 8).unwrap());
        (0..8).for_each(|slot| bells.clear(slot));
        let mut heard = Vec::new();
        for round in 0..100 {
            // Another value before every look, and a neighbour that rings now and then.
            region.atomic_u64(3 * 8).unwrap().fetch_add(1, Relaxed);
            region.atomic_u64(5 * 8).unwrap().store(round / 10, Relaxed);
            let Some(slot) = bells.scan() else { break };
            bells.take(slot);
            heard.push(slot);
        }
        assert_eq!(heard, [3]);
        region.atomic_u64(5 * 8).unwrap().store(7, Relaxed);
        assert_eq!((bells.scan(), bells.scan(), bells.scan()), (Some(3), Some(5), None));
    }
}
