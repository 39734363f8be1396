//! Receives go to the device as their doorbell records advance.

use super::Proxy;
use super::bounce::{Pieces, WithBounceBuffers};
use super::end::SharedEnd;
use super::id::{Id, WorkKind};
use crate::AsyncEvent;
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::format;
use crate::objects::receive::Receives;
use crate::proxy_device::{InTable, receive_status, translate_receive};
use crate::slots::{QpSlot, Slot};
use crate::violation::{QueueKind, Rule, Violation};
use arrayvec::ArrayVec;

/// Receives of one list at most.
const LIST: usize = 32;

impl Proxy {
    /// Forwards receives of a QP's own queue. Whether there were any.
    pub(super) fn forward_receives(&mut self, tables: &mut Tables, slot: QpSlot) -> bool {
        if !self.takes_receives(tables, slot) {
            return false;
        }
        let Tables { receives, keys, scratch, .. } = tables;
        let Some(rq) = receives.live_mut(slot) else { return false };
        let Receives::Own(own) = &mut rq.source else { return false };
        let Some(Some(end)) = self.ends.get_mut(slot.at()) else { return false };
        let room = (end.limits.recv_depth - end.receives).min(LIST as u32) as usize;
        let (list, from) = (&mut self.receives, own.taken);
        list.clear();
        let mut fault = None;
        while list.len() < room {
            let index = match own.next() {
                Ok(Some(index)) => index,
                Ok(None) => break,
                Err(rule) => {
                    fault = Some((own.taken, rule, false));
                    break;
                }
            };
            let parsed = format::parse_receive(own.ring.load(index, &mut **scratch));
            let table = InTable { keys, hint: &mut rq.scatter_hint, pd: rq.pd };
            let mut memory = WithBounceBuffers::new(table, &self.bounce_buffers);
            let translated = parsed.and_then(|sges| {
                let max = end.limits.recv_sges;
                translate_receive(sges.iter(), max, &mut memory).map_err(|rule| *rule)
            });
            own.taken = index + 1;
            match translated {
                Ok(sges) => {
                    list.push(
                        Id { kind: WorkKind::Receive, generation: end.generation, index }.pack(),
                        &sges,
                    );
                    if !memory.pieces.is_empty() {
                        end.waiting.landing.insert(index, memory.pieces);
                    }
                }
                Err(rule) => {
                    fault = Some((index, rule, true));
                    break;
                }
            }
        }
        if list.is_empty() && fault.is_none() {
            return false;
        }
        let posted = if list.is_empty() { None } else { Some(end.proxy_device.post_recv(list)) };
        let (count, refused) = posted.map_or((0, None), |p| (p.count.min(list.len()), p.refused));
        end.receives += count as u32;
        rq.open.extend(from..from + count as u64);
        if count < list.len() {
            // The rest is offered again.
            own.taken = from + count as u64;
            end.waiting.landing.retain(|index, _| *index < own.taken);
            fault = refused.map(|errno| (own.taken, Rule::DeviceRefused { errno }, false));
        }
        if let Some((index, rule, consumed)) = fault {
            if consumed {
                rq.open.push_back(index);
                end.broken = Some((index, receive_status(&rule)));
            }
            let (qpn, queue) = (rq.qpn, QueueKind::Receive);
            self.reports.push(Report::Violation(Violation { qpn, queue, index, rule }));
            let status = Some(receive_status(&rule));
            self.reports.push(Report::Ended { slot, status });
        }
        count > 0 || fault.is_some()
    }

    /// Forwards receives of the SRQ whose end is at place `at`. Whether there were any.
    pub(super) fn forward_shared(&mut self, tables: &mut Tables, at: usize) -> bool {
        let Tables { srqs, keys, scratch, .. } = tables;
        let Self { shared, receives: list, bounce_buffers, reports, .. } = self;
        let Some(end) = shared.get_mut(at) else { return false };
        let Some(srq) = srqs.live_mut(end.srq) else { return false };
        let SharedEnd { depth, sges: max, outstanding, .. } = *end;
        let room = (depth - outstanding).min(LIST as u32) as usize;
        list.clear();
        // Links, to go back to what the device does not take.
        let mut heads = ArrayVec::<u16, { LIST + 1 }>::new();
        let mut fault = None;
        while list.len() < room {
            let pd = srq.pd;
            let mut hint = std::mem::take(&mut srq.hint);
            let table = InTable { keys, hint: &mut hint, pd };
            let mut memory = WithBounceBuffers::new(table, bounce_buffers);
            let next = srq.peek(scratch).and_then(|next| match next {
                None => Ok(None),
                Some((number, link, sges)) => {
                    let translated = translate_receive(sges.iter(), max, &mut memory);
                    Ok(Some((number, link, translated.map_err(|rule| *rule)?)))
                }
            });
            let pieces = memory.pieces;
            srq.hint = hint;
            match next {
                Ok(None) => break,
                Ok(Some((number, link, sges))) => {
                    let id = Id { kind: WorkKind::Shared, generation: 0, index: number.into() };
                    list.push(id.pack(), &sges);
                    heads.push(number as u16);
                    if !pieces.is_empty() {
                        end.landing.insert(number.into(), pieces);
                    }
                    srq.take(link);
                }
                Err(rule) => {
                    fault = Some(rule);
                    break;
                }
            }
        }
        let mut count = 0;
        if !list.is_empty() {
            let posted = end.proxy_device.post_recv(list);
            count = posted.count.min(list.len());
            end.outstanding += count as u32;
            if count < list.len() {
                heads[count..].iter().for_each(|&head| drop(end.landing.remove(&head.into())));
                srq.untake(heads[count], (list.len() - count) as u64);
                fault = posted.refused.map(|errno| Rule::DeviceRefused { errno });
            }
        }
        if let Some(rule) = fault {
            let srqn = srq.srqn;
            srq.dead = true;
            let (qpn, queue, index) = (0, QueueKind::Shared, 0);
            reports.push(Report::Violation(Violation { qpn, queue, index, rule }));
            reports.push(Report::Event(AsyncEvent::SrqError { srqn }));
        }
        count > 0 || fault.is_some()
    }

    /// The device has filled or flushed a receive of an SRQ. Which pieces of it lie in bounce
    /// buffers.
    pub(super) fn shared_came_back(
        &mut self,
        tables: &mut Tables,
        slot: QpSlot,
        index: u64,
    ) -> Option<Pieces> {
        let source = tables.receives.live(slot).map(|rq| &rq.source);
        let Some(Receives::Shared(srq)) = source else { return None };
        let end = self.shared.iter_mut().find(|end| end.srq == *srq);
        let srq = tables.srqs.live_mut(*srq)?;
        let mut pieces = None;
        let at_device = end.map_or(0, |end| {
            pieces = end.landing.remove(&index);
            end.outstanding = end.outstanding.saturating_sub(1);
            end.outstanding
        });
        if srq.below_limit_with(at_device) {
            self.reports.push(Report::Event(AsyncEvent::SrqLimit { srqn: srq.srqn }));
        }
        pieces
    }
}
