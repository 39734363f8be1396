//! Requests that are posted once their payload is in the bounce buffer.

use super::bounce::Pieces;
use super::end::End;
use super::waiting::{Parked, SideWork, Waiting};
use super::{LIST, Proxy};
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::objects::in_flight::WqeInfo;
use crate::objects::send::SendQueue;
use crate::proxy_device::ProxySends;
use crate::slots::{QpSlot, Slot};
use crate::violation::Rule;
use warpverbs_rdma::{QpState, Status};

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
    pub(super) fn needs_more(&self, list: &ProxySends, pieces: &Pieces) -> bool {
        let inline = list.last_inline().map_or(0, <[u8]>::len);
        let plain = pieces.is_empty() && self.waiting.parked.is_empty();
        !plain || inline > self.limits.inline_bytes as usize
    }

    /// Gives the last request of the list the copies and the slot that it needs. `None`: it cannot
    /// be now, and is no longer in the list.
    #[cold]
    pub(super) fn add_side_work(
        &mut self,
        q: &SendQueue,
        list: &mut ProxySends,
        info: &WqeInfo,
        fence: bool,
        pieces: Pieces,
    ) -> Option<()> {
        let mut request = list.split_last();
        let gathers = !pieces.is_empty() && info.brought == 0;
        // The list is posted first. A fenced request may send what a READ brings: the device waits
        // for the READ, but the copy into the bounce buffer would not.
        if gathers
            && (!list.is_empty() || fence && q.progress.in_flight.iter().any(|flight| flight.reads))
        {
            return None;
        }
        let most = self.limits.inline_bytes as usize;
        let mut slot = None;
        if let Some(bytes) = request.last_inline().filter(|bytes| bytes.len() > most) {
            slot = Some(self.slots.as_mut()?.take(bytes)?);
        }
        slot.into_iter().for_each(|sge| request.outline_last(sge));
        let (upto, back) = match gathers {
            true => (pieces.gather(&mut self.waiting.copies), Pieces::default()),
            false => (0, pieces),
        };
        if gathers || !self.waiting.parked.is_empty() {
            self.waiting.parked.push(upto, Parked { index: info.index, request });
        } else {
            request.iter().for_each(|request| list.push(request));
        }
        if slot.is_some() || !back.is_empty() {
            self.side_work.push_back((info.index, SideWork::new(slot.is_some(), back)));
        }
        Some(())
    }
}

impl Proxy {
    /// Posts parked requests from the first on, as far as their bytes are there.
    pub(super) fn post_parked(&mut self, tables: &Tables, slot: QpSlot) {
        let Some(q) = tables.sends.live(slot) else { return };
        let Self { ends, list, reports, .. } = self;
        let Some(Some(end)) = ends.get_mut(slot.at()) else { return };
        if !matches!(q.state, QpState::Rts | QpState::Sqd) {
            return;
        }
        list.clear();
        let room = (end.limits.send_depth - end.outstanding).min(LIST) as usize;
        let mut failed = None;
        let Waiting { copies, parked, .. } = &end.waiting;
        for (upto, parked) in parked.iter().take(room) {
            match copies.outcome(upto) {
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
            if q.progress.in_flight.front().is_some_and(|first| first.info.index == index) {
                tracing::warn!(%error, %slot, "payload to be sent could not be copied");
                let status = Status::LocalProtection;
                reports.push(Report::SendFailed { slot, index, status, vendor: None });
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
        end.waiting.parked.forget(taken);
        let next = end.waiting.parked.first().map(|parked| parked.index);
        if let (Some(errno), Some(index)) = (posted.refused, next) {
            reports.push(Report::Rejected { slot, index, rule: Rule::DeviceRefused { errno } });
            return;
        }
        // Later ones may have waited for room.
        reports.push(Report::Ready { slot });
    }
}
