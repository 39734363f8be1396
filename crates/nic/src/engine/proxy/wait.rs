//! What of a proxied QP waits for copies. Its order is that of the queue: a request is posted after
//! those before it, and completes after them, whoever's bytes take longer.

use super::bounce::{Copies, Pieces};
use super::{End, LIST, Proxy};
use crate::engine::flight::WqeInfo;
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::engine::transfer::Fault;
use crate::proxy_device::{SendList, Staging};
use crate::qp::QpState;
use crate::qp::send::SendQueue;
use crate::slots::{QpSlot, Slot};
use crate::violation::Rule;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::{Completion, Sge, Status};

/// What is done for a WQE besides handing it to the device.
#[derive(Debug)]
pub(super) struct Aside {
    /// Its inline data is in a slot.
    pub(super) slot: bool,
    /// Where its answer goes to from the shadow.
    back: Pieces,
    /// On the way there.
    copies: Option<Copies>,
}

impl Aside {
    pub(super) fn new(slot: bool, back: Pieces) -> Self {
        Self { slot, back, copies: None }
    }

    /// The device is done with it: whether the answer is where it belongs.
    pub(super) fn bring_back(&mut self) -> Result<bool, Fault> {
        let copies = self.copies.get_or_insert_with(|| self.back.bring_back(u64::MAX));
        copies.landed()
    }

    /// Its answer is on the way.
    pub(super) fn is_under_way(&mut self) -> bool {
        self.copies.as_mut().is_some_and(|copies| !copies.are_over())
    }
}

/// A request that is posted when its bytes are where the device reads them, and when all before it
/// are posted.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) index: u64,
    /// A list of one.
    pub(super) request: SendList,
    pub(super) copies: Copies,
}

/// A receive that the device has filled, or an error behind one.
#[derive(Debug)]
struct Arrival {
    index: u64,
    completion: Completion,
    copies: Copies,
}

/// Work of a QP that waits for copies, in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(super) parked: VecDeque<Parked>,
    /// Completions of the send queue behind an answer that is on its way.
    settling: VecDeque<(u64, Completion)>,
    arrivals: VecDeque<Arrival>,
    /// Receives of the QP's own queue at the device with a shadow, by index.
    pub(super) landing: FxHashMap<u64, Pieces>,
    /// Those of the QP when it was reset: they may have copies under way.
    pub(super) asides: VecDeque<(u64, Aside)>,
}

impl Waiting {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.settling.is_empty() && self.arrivals.is_empty()
    }

    #[inline]
    pub(super) fn is_settling(&self) -> bool {
        !self.settling.is_empty()
    }

    /// Nothing is left but requests that nothing is copied for any more.
    pub(super) fn is_over(&mut self) -> bool {
        let parked = self.parked.iter_mut().all(|parked| parked.copies.are_over());
        parked && self.settling.is_empty() && self.arrivals.is_empty()
    }
}

/// Slots for inline data beyond what the device takes, used and given back in turn.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) staging: Staging,
    count: u64,
    next: u64,
    used: u64,
}

impl Slots {
    pub(super) fn new(staging: Staging) -> Self {
        let count = staging.memory.len() as u64 / u64::from(staging.slot.max(1));
        Self { staging, count, next: 0, used: 0 }
    }

    /// Copies `bytes` into the next slot, if it is free: where they lie.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Sge> {
        if self.used == self.count {
            return None;
        }
        let offset = self.next % self.count * u64::from(self.staging.slot);
        self.staging.memory.write(offset, bytes).ok()?;
        (self.next, self.used) = (self.next + 1, self.used + 1);
        let (addr, len) = (self.staging.memory.addr() + offset, bytes.len() as u32);
        Some(Sge { addr, len, lkey: self.staging.lkey })
    }

    /// The one that was taken first is free.
    pub(super) fn give(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// The one that was taken last was not needed.
    pub(super) fn untake(&mut self) {
        (self.next, self.used) = (self.next - 1, self.used - 1);
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }
}

impl End {
    /// Requests that can be handed over, or parked, now.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        let parked = self.waiting.parked.len() as u32;
        let room = self.limits.send_depth - self.outstanding;
        room.min(LIST).saturating_sub(parked)
    }

    /// The last request of the list is not just to be posted with the others.
    #[inline]
    pub(super) fn needs_more(&self, list: &SendList, pieces: &Pieces) -> bool {
        let inline = list.last_inline().map_or(0, <[u8]>::len);
        let plain = pieces.is_empty() && self.waiting.parked.is_empty();
        !plain || inline > self.limits.inline_bytes as usize
    }

    /// Gives the last request of the list the copies and the slot that it needs. `None`: it cannot be
    /// now, and is no longer in the list.
    #[cold]
    pub(super) fn set_aside(
        &mut self,
        q: &SendQueue,
        list: &mut SendList,
        info: &WqeInfo,
        fence: bool,
        pieces: Pieces,
    ) -> Option<()> {
        let mut request = list.split_last();
        let gathers = !pieces.is_empty() && info.brought == 0;
        // What is in the list is posted first. And what a READ brings may be what is to be sent: the
        // device waits for it by itself, the copy of it does not.
        if gathers && (!list.is_empty() || fence && q.flight.iter().any(|flight| flight.reads)) {
            return None;
        }
        let most = self.limits.inline_bytes as usize;
        let mut slot = None;
        if let Some(bytes) = request.last_inline().filter(|bytes| bytes.len() > most) {
            slot = Some(self.slots.as_mut()?.take(bytes)?);
        }
        slot.into_iter().for_each(|sge| request.outline_last(sge));
        let (copies, back) = match gathers {
            true => (pieces.gather(), Pieces::default()),
            false => (Copies::NONE, pieces),
        };
        if gathers || !self.waiting.parked.is_empty() {
            self.waiting.parked.push_back(Parked { index: info.index, request, copies });
        } else {
            request.iter().for_each(|request| list.push(request));
        }
        if slot.is_some() || !back.is_empty() {
            self.asides.push_back((info.index, Aside::new(slot.is_some(), back)));
        }
        Some(())
    }
}

impl Proxy {
    /// Lets everything go on whose copies have landed. Whether anything waits.
    pub(super) fn serve_waiting(&mut self, tables: &mut Tables, slot: QpSlot) -> bool {
        match self.end(slot) {
            Some(end) if !end.waiting.is_empty() => {}
            _ => return false,
        }
        self.settle_waiting(slot);
        self.deliver_waiting(tables, slot);
        self.post_parked(tables, slot);
        true
    }

    /// Posts parked requests from the first on, as far as their bytes are there.
    fn post_parked(&mut self, tables: &Tables, slot: QpSlot) {
        let Some(q) = tables.sends.live(slot) else { return };
        let Self { ends, list, reports, .. } = self;
        let Some(Some(end)) = ends.get_mut(slot.at()) else { return };
        if !matches!(q.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        list.clear();
        let room = (end.limits.send_depth - end.outstanding).min(LIST) as usize;
        let mut failed = None;
        for parked in end.waiting.parked.iter_mut().take(room) {
            match parked.copies.landed() {
                Ok(true) => parked.request.iter().for_each(|request| list.push(request)),
                Ok(false) => break,
                Err(error) => {
                    failed = list.is_empty().then_some((parked.index, error));
                    break;
                }
            }
        }
        if let Some((index, error)) = failed {
            // It fails when it is the oldest.
            if q.flight.front().is_some_and(|first| first.info.index == index) {
                tracing::warn!(%error, %slot, "what is to be sent could not be copied");
                let syndrome = Syndrome::LocalProt;
                let vendor = syndrome.usual_vendor();
                reports.push(Report::SendFailed { slot, index, syndrome, vendor });
            }
            return;
        }
        if list.is_empty() {
            return;
        }
        list.signal_last();
        let posted = end.proxy_device.post_send(list);
        let taken = posted.count.min(list.len());
        end.outstanding += taken as u32;
        end.waiting.parked.drain(..taken);
        let next = end.waiting.parked.front().map(|parked| parked.index);
        if let (Some(errno), Some(index)) = (posted.refused, next) {
            reports.push(Report::Rejected { slot, index, rule: Rule::DeviceRefused { errno } });
            return;
        }
        // Later ones may have waited for room.
        reports.push(Report::Ready { slot });
    }

    /// A completion of the send queue that has to wait for those before it.
    pub(super) fn settle_later(&mut self, slot: QpSlot, index: u64, completion: &Completion) {
        if let Some(end) = self.end_mut(slot) {
            end.waiting.settling.push_back((index, *completion));
        }
        self.mark_busy(slot);
        // Their copies start now, whoever waits for whom.
        let Some(end) = self.end_mut(slot) else { return };
        let fails = completion.status != Status::Success;
        for (at, aside) in &mut end.asides {
            if *at > index || (fails && *at == index) {
                break;
            }
            // The outcome is looked at when the WQE is the oldest.
            let _ = aside.bring_back();
        }
    }

    fn settle_waiting(&mut self, slot: QpSlot) {
        while let Some(&(index, completion)) =
            self.end(slot).and_then(|end| end.waiting.settling.front())
        {
            if !self.settle_upto(slot, index, &completion) {
                return;
            }
            if let Some(end) = self.end_mut(slot) {
                end.waiting.settling.pop_front();
            }
        }
    }

    /// A receive came back from the device; `pieces` of it lie in shadows.
    pub(super) fn receive_came_back(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        index: u64,
        completion: &Completion,
        pieces: Option<Pieces>,
    ) {
        let Some(end) = self.end_mut(slot) else { return };
        let brings = completion.status == Status::Success && completion.kind.fills_receive();
        let copies = match pieces.filter(|_| brings) {
            Some(pieces) => pieces.bring_back(completion.byte_len.into()),
            None if end.waiting.arrivals.is_empty() => {
                return self.settle_receive(tables, slot, index, completion);
            }
            None => Copies::NONE,
        };
        end.waiting.arrivals.push_back(Arrival { index, completion: *completion, copies });
        self.mark_busy(slot);
    }

    fn deliver_waiting(&mut self, tables: &mut Tables, slot: QpSlot) {
        while let Some(end) = self.end_mut(slot) {
            let Some(first) = end.waiting.arrivals.front_mut() else { return };
            let copied = first.copies.landed();
            if copied == Ok(false) {
                return;
            }
            let Some(Arrival { index, mut completion, .. }) = end.waiting.arrivals.pop_front()
            else {
                return;
            };
            if let Err(error) = copied {
                tracing::warn!(%error, %slot, "what has arrived could not be copied");
                completion.status = Status::LocalProtection;
            }
            self.settle_receive(tables, slot, index, &completion);
        }
    }
}
