//! The end of a proxied QP: the device returns its work, then the rest is flushed.

use super::Proxy;
use super::waiting::Waiting;
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::slots::QpSlot;
use std::time::Duration;
use warpverbs_rdma::QpState;
use warpverbs_rdma::Status;

/// How long a device may take to flush. After this, work that it did not return is flushed here.
const TIMEOUT: Duration = Duration::from_secs(2);

impl Proxy {
    /// The QP in `slot` is in ERR: so is its device's.
    pub(crate) fn fail(&mut self, slot: QpSlot, now: u64) {
        let Some(end) = self.end_mut(slot) else { return };
        if !end.gone {
            end.proxy_device.fail();
        }
        let until = now.saturating_add(crate::clock::nanos(TIMEOUT));
        (end.flushing, end.stalled) = (Some(until), false);
        self.mark_busy(slot);
    }

    /// The device is gone: no work at the device will complete.
    #[cold]
    pub(super) fn lose_device(&mut self, tables: &Tables, slot: QpSlot) {
        let Some(end) = self.end_mut(slot) else { return };
        end.gone = true;
        let Some(q) = tables.sends.live(slot) else { return };
        if matches!(q.state, QpState::Err | QpState::Reset) {
            return;
        }
        tracing::warn!(qpn = q.qpn.get(), "the device that executes the QP's work is gone");
        let status = Status::Fatal;
        let oldest = q.progress.in_flight.front().map(|flight| flight.info.index);
        // Work that the device has done already completes when its bytes are in place.
        let copies = end.side_work.front().is_some_and(|(at, work)| {
            Some(*at) == oldest && work.is_under_way(&end.waiting.copies)
        });
        let report = match oldest.filter(|_| !copies) {
            Some(index) => {
                if end.side_work_of(index).is_some() {
                    end.side_work.pop_front();
                }
                Report::SendFailed { slot, index, status, vendor: None }
            }
            None => Report::Ended { slot, status: Some(status) },
        };
        self.reports.push(report);
    }

    /// Ends the flush of the QP in `slot`, once the device has returned all work. Whether it has.
    pub(crate) fn end_flush(&mut self, slot: QpSlot, now: u64) -> bool {
        let Some(end) = self.end_mut(slot) else { return false };
        let Some(until) = end.flushing else { return false };
        // Copies under way go on, and their requests complete.
        if !end.waiting.is_over() {
            return false;
        }
        let empty = end.outstanding == 0 && end.receives == 0;
        if !empty && !end.gone && now < until {
            return false;
        }
        if !empty && !end.gone {
            tracing::warn!(%slot, "the device did not flush its queues in {TIMEOUT:?}");
        }
        (end.flushing, end.outstanding, end.receives) = (None, 0, 0);
        end.waiting = Waiting::default();
        end.side_work.clear();
        let broken = end.broken.take();
        self.reports.push(Report::Flushed { slot, broken });
        true
    }

    /// Whether the QP in `slot` is executed by another device, by which it has failed.
    pub(crate) fn has_failed(&self, slot: QpSlot) -> bool {
        self.end(slot).is_some_and(|end| end.proxy_device.has_failed())
    }
}
