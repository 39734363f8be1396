//! From announced WQEs to a list of work requests: parsed and checked as every WQE, keys
//! translated, posted together.

use super::Proxy;
use super::bounce::{BounceBuffers, WithBounceBuffers};
use super::end::End;
use super::id::{Id, WorkKind};
use crate::engine::fetch::{read_wqe, rewritten};
use crate::engine::outcome::{Stop, local};
use crate::engine::plain::{PlainWrite, Source, plain_write};
use crate::engine::report::Report;
use crate::engine::tables::Tables;
use crate::format::{Flags, LONGEST, MAX_MESSAGE, OfMlx5, Op, Plain, SendOpcode, Sge};
use crate::objects::in_flight::{InFlight, WqeInfo};
use crate::objects::send::SendQueue;
use crate::proxy_device::{Bounds, InTable, ProxySends};
use crate::slots::{QpSlot, Slot};
use crate::violation::{QueueKind, Rule, Violation};
use warpverbs_mem::{Block, KeyTable, Span};
use warpverbs_rdma as rdma;
use warpverbs_rdma::SendFlags;

/// Why the next WQE is not in the list.
enum Halt {
    /// Its bytes are not a valid WQE.
    Refused {
        units: u64,
        rule: Rule,
    },
    Stopped(WqeInfo, Stop),
    /// It can be posted later, when there is room.
    Later,
}

impl Halt {
    /// A QP that only consumes is not proxied, so this does not happen.
    #[cold]
    fn no_ring() -> Self {
        Self::Refused { units: 1, rule: Rule::NeverWritten { fill: 0 } }
    }
}

impl Proxy {
    /// Posts announced WQEs of the QP in `slot` in one list, as far as device, list and `budget`
    /// go.
    pub(crate) fn submit(
        &mut self,
        tables: &mut Tables,
        long: &mut [Block; LONGEST],
        slot: QpSlot,
        budget: u32,
    ) -> Submitted {
        let Tables { sends, keys, .. } = tables;
        let Some(q) = sends.live_mut(slot) else { return Submitted::Waits };
        let Self { ends, list, bounce_buffers, reports, .. } = self;
        let Some(Some(end)) = ends.get_mut(slot.at()) else { return Submitted::Waits };
        let end: &mut End = end;
        let room = end.room().min(budget);
        if room == 0 || end.stalled {
            return Submitted::Waits;
        }
        list.clear();
        let (mut listed, mut halt, is_plain) = (0, None, q.is_plain());
        while listed < room && q.progress.is_due() {
            // Behind requests that wait for copies, all wait.
            let plain = is_plain
                && end.waiting.parked.is_empty()
                && add_plain(keys, q, end, list).is_some();
            if !plain && let Err(why) = add((keys, bounce_buffers), q, end, long, list, reports) {
                halt = Some(why);
                break;
            }
            listed += 1;
        }
        match halt {
            _ if listed > 0 => self.post_list(q, listed),
            Some(halt) => match *halt {
                Halt::Refused { units, rule } => Submitted::Refused(units, rule),
                Halt::Stopped(info, stop) => Submitted::Stopped(info, stop),
                Halt::Later => Submitted::Waits,
            },
            None => Submitted::Waits,
        }
    }

    /// Posts the list, of the last `listed` WQEs in flight. WQEs that the device does not take go
    /// back into the ring.
    fn post_list(&mut self, q: &mut SendQueue, mut listed: u32) -> Submitted {
        let Self { ends, list, reports, .. } = self;
        let slot = q.slot;
        let Some(Some(end)) = ends.get_mut(slot.at()) else { return Submitted::Waits };
        let (mut rest, mut refused) = (0, None);
        if !list.is_empty() {
            // The end of this list is then always reported.
            list.signal_last();
            let posted = end.proxy_device.post_send(list);
            let taken = posted.count.min(list.len());
            (rest, refused) = (list.len() - taken, posted.refused);
            end.outstanding += taken as u32;
            end.stalled = rest > 0 && refused.is_none();
        }
        while rest > 0
            && let Some(flight) = q.progress.in_flight.pop_back()
        {
            rest -= usize::from(flight.away);
            if end.side_work.back().is_some_and(|(at, _)| *at == flight.info.index)
                && let Some((_, work)) = end.side_work.pop_back()
                && let Some(slots) = end.slots.as_mut().filter(|_| work.slot)
            {
                slots.untake();
            }
            q.progress.next = flight.info.index;
            listed -= 1;
        }
        if let Some(errno) = refused {
            let (index, rule) = (q.progress.next, Rule::DeviceRefused { errno });
            reports.push(Report::Rejected { slot, index, rule });
        }
        self.mark_busy(slot);
        match refused {
            Some(_) => Submitted::Rejected,
            None if listed == 0 => Submitted::Waits,
            None => Submitted::Posted(listed),
        }
    }
}

/// The outcome of announced WQEs.
pub(crate) enum Submitted {
    /// So many are at the device, or will be.
    Posted(u32),
    /// The next one has to wait.
    Waits,
    /// The device refused one, which is reported.
    Rejected,
    /// The next slots hold no valid WQE: the number of units that it announces, and the broken rule.
    Refused(u64, Rule),
    /// The next one cannot be posted.
    Stopped(WqeInfo, Stop),
}

/// The short way of [plain WRITEs](crate::engine::plain) from memory that the device has. Any other WQE
/// is left for [`add`].
#[inline]
fn add_plain(keys: &KeyTable, q: &mut SendQueue, end: &End, list: &mut ProxySends) -> Option<()> {
    let index = q.progress.next;
    let block = OfMlx5::load(q.ring.wqes.as_ref()?, index);
    let PlainWrite { remote, source, len, flags, .. } =
        plain_write::<OfMlx5>(q, keys, q.place(index), &block, MAX_MESSAGE)?;
    let Source::Memory(Sge { addr, .. }, Span { proxy_lkey, .. }) = source else { return None };
    list.add(Sge::new(addr, len, proxy_lkey?.get()));
    let (id, flags_of) = header(end, index, flags);
    list.close(id, rdma::Op::Write(remote), flags_of, 1);
    let (opcode, completion, bytes) = (SendOpcode::RdmaWrite, flags.completion, len.into());
    let info = WqeInfo { index, units: 1, opcode, completion, bytes, brought: 0 };
    q.progress.next = index + 1;
    q.progress.in_flight.push_back(InFlight { info, away: true, reads: false });
    Some(())
}

#[inline]
fn header(end: &End, index: u64, flags: Flags) -> (u64, SendFlags) {
    let id = Id { kind: WorkKind::Send, generation: end.generation, index }.pack();
    (id, flags.send_flags())
}

/// Parses and checks the next WQE, puts its request into the list, and takes the WQE for started.
#[inline]
fn add(
    (keys, bounce_buffers): (&KeyTable, &BounceBuffers),
    q: &mut SendQueue,
    end: &mut End,
    long: &mut [Block; LONGEST],
    list: &mut ProxySends,
    reports: &mut Vec<Report>,
) -> Result<(), Box<Halt>> {
    let index = q.progress.next;
    let Some(ring) = &q.ring.wqes else { return Err(Box::new(Halt::no_ring())) };
    let block = ring.load(index);
    let (raw, wqe) = match read_wqe(q, ring, (index, &block), None, long) {
        Ok(read) => read,
        Err((units, rule)) => {
            return Err(Box::new(Halt::Refused { units, rule }));
        }
    };
    if !q.ring.snapshot.is_empty()
        && let Some(rule) = rewritten(q, index, raw)
    {
        let (qpn, queue) = (q.qpn.get(), QueueKind::Send);
        reports.push(Report::Violation(Violation { qpn, queue, index, rule }));
    }
    let mut info = WqeInfo::of(&wqe, index);
    let fetches = q.attrs.max_rd_atomic.is_some_and(|count| count > 0);
    let bounds = Bounds { limits: &end.takes, fetches };
    let table = InTable { keys, hint: &mut q.local_hint, pd: q.pd };
    let mut memory = WithBounceBuffers::new(table, bounce_buffers);
    let mut away = true;
    match list.translate(&wqe.op, header(end, index, wqe.flags), bounds, &mut memory) {
        Ok(true) => {
            info.brought = match wqe.op {
                Op::Write { .. } | Op::Send { .. } => 0,
                _ => info.bytes as u32,
            };
        }
        Ok(false) => away = false,
        Err(rule) => return Err(Box::new(Halt::Stopped(info, local(*rule)))),
    }
    let pieces = memory.pieces;
    if away && end.needs_more(list, &pieces) {
        let fence = wqe.flags.fence.waits_for_reads();
        let added = end.add_side_work(q, list, &info, fence, pieces);
        added.ok_or_else(|| Box::new(Halt::Later))?;
    }
    q.progress.next = index + info.units;
    q.progress.in_flight.push_back(InFlight { info, away, reads: info.brought > 0 });
    Ok(())
}
