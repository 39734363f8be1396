//! From announced WQEs to a list of work requests: parsed and checked as every WQE, keys
//! translated, posted together.

use super::bounce::{Shadows, WithShadows};
use super::{End, Id, Proxy, WorkKind};
use crate::engine::Core;
use crate::engine::execute::{Stop, Work, local};
use crate::engine::run::{Advance, Flight, Ticket, read_wqe, rewritten};
use crate::proxy_device::{Bounds, InTable, SendList};
use crate::qp::FirstError;
use crate::qp::send::SendQueue;
use crate::violation::{Log, QueueKind, Rule, Violation};
use warpverbs_mem::{Access, Block, KeyTable, Span};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{Lkey, MAX_MESSAGE, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Op, Payload, Position, Sge, Wqe, parse, peek};
use warpverbs_rdma as rdma;
use warpverbs_rdma::SendFlags;
use zerocopy::{transmute, transmute_ref};

/// Why the next WQE is not in the list.
enum Halt {
    /// Its bytes are none.
    Refused {
        first: [u8; 64],
        wqebbs: u64,
        rule: Rule,
    },
    Stopped(Ticket, Stop),
    /// It can be later, when others have gone on.
    Later,
}

impl Halt {
    /// A QP that only consumes is not proxied, so this does not happen.
    #[cold]
    fn no_ring() -> Self {
        Self::Refused { first: [0; 64], wqebbs: 1, rule: Rule::NeverWritten { fill: 0 } }
    }
}

impl Core {
    /// Posts announced WQEs of a proxied QP in one list, as far as device, list and `budget` go.
    pub(in crate::engine) fn carry(&mut self, slot: u32, budget: u32) -> Advance {
        let Self { sends, keys, proxy, long, log, .. } = self;
        let Some(q) = sends.get_mut(slot) else { return Advance::Nothing };
        let Proxy { ends, list, shadows, .. } = proxy;
        let Some(Some(end)) = ends.get_mut(slot as usize) else { return Advance::Nothing };
        let room = end.room().min(budget);
        if room == 0 || end.stalled {
            return Advance::Moving;
        }
        list.clear();
        let (mut staged, mut halt) = (0, None);
        while staged < room && q.next != q.posted {
            // Behind requests that wait for copies, all wait.
            let plain = end.waiting.parked.is_empty() && stage_plain(keys, q, end, list);
            if !plain && let Err(why) = stage((keys, shadows), q, end, long, list, log) {
                halt = Some(why);
                break;
            }
            staged += 1;
        }
        match halt {
            _ if staged > 0 => self.post_list(slot, staged),
            Some(halt) => match *halt {
                Halt::Refused { first, wqebbs, rule } => self.refuse(slot, &first, wqebbs, rule),
                Halt::Stopped(ticket, stop) => self.stopped(slot, ticket, stop),
                Halt::Later => Advance::Moving,
            },
            None => Advance::Moving,
        }
    }

    /// Posts the list, of the last `staged` WQEs in flight. What the device does not take goes back
    /// into the ring.
    fn post_list(&mut self, slot: u32, mut staged: u32) -> Advance {
        let Self { sends, proxy, .. } = self;
        let Some(q) = sends.get_mut(slot) else { return Advance::Nothing };
        let Proxy { ends, list, .. } = proxy;
        let Some(Some(end)) = ends.get_mut(slot as usize) else { return Advance::Nothing };
        let (mut rest, mut refused) = (0, None);
        if !list.is_empty() {
            // Whatever comes next, the end of this list will be known.
            list.signal_last();
            let posted = end.proxy_device.post_send(list);
            let taken = posted.count.min(list.len());
            (rest, refused) = (list.len() - taken, posted.refused);
            end.outstanding += taken as u32;
            end.stalled = rest > 0 && refused.is_none();
        }
        while rest > 0
            && let Some(flight) = q.flight.pop_back()
        {
            rest -= usize::from(flight.work.is_away());
            if end.asides.back().is_some_and(|(at, _)| *at == flight.ticket.index)
                && let Some((_, aside)) = end.asides.pop_back()
                && let Some(slots) = end.slots.as_mut().filter(|_| aside.slot)
            {
                slots.untake();
            }
            q.next = flight.ticket.index;
            staged -= 1;
        }
        let next = q.next;
        self.proxy.mark_busy(slot);
        if let Some(errno) = refused {
            self.refuse_request(slot, next, errno);
            return Advance::Done;
        }
        if staged == 0 { Advance::Moving } else { Advance::Posted(staged) }
    }

    /// The device refused a request that passed every check: nothing after it can be posted.
    #[cold]
    pub(super) fn refuse_request(&mut self, slot: u32, index: u64, errno: i32) {
        let Some(q) = self.sends.get_mut(slot) else { return };
        let rule = Rule::DeviceRefused { errno };
        let syndrome = rule.syndrome().unwrap_or(Syndrome::LocalQpOp);
        q.stats.errors += 1;
        q.first_error.get_or_insert(FirstError { index, syndrome, rule: Some(rule) });
        self.report_send(slot, index, rule);
        self.end(slot, Some(syndrome));
    }
}

/// The short way for the commonest: a WRITE of one segment, in one WQEBB, that passes every check.
/// Whatever is not plainly fine is left for [`stage`].
#[inline]
fn stage_plain(keys: &KeyTable, q: &mut SendQueue, end: &End, list: &mut SendList) -> bool {
    let (index, Some(ring)) = (q.next, &q.ring) else { return false };
    let block = ring.load(index);
    let raw: &[u8; 64] = transmute_ref!(&block);
    if peek(raw) != 1 || !q.snapshot.is_empty() {
        return false;
    }
    let at = Position { qpn: q.qpn, index: WqeIndex::of(index) };
    let Ok(Wqe { op, flags, .. }) = parse(raw, at) else { return false };
    let Op::Write { remote, payload: Payload::Sges(sges), imm: None } = op else { return false };
    let Some(Sge { addr, len, lkey: Lkey(key) }) = sges.single() else { return false };
    let found = keys.find(&mut q.local_hint, q.pd, key, addr, len, Access::empty());
    let Some(Span { proxy_lkey: Some(lkey), .. }) = found else { return false };
    if u64::from(len) > MAX_MESSAGE {
        return false;
    }
    list.add(Sge::new(addr, len, lkey.get()));
    let (id, flags_of) = header(end, index, flags);
    list.close(id, rdma::Op::Write(remote), flags_of, 1);
    let (opcode, completion, bytes) = (SendOpcode::RdmaWrite, flags.completion, len.into());
    let ticket = Ticket { index, wqebbs: 1, opcode, completion, bytes, brought: 0 };
    q.next = index + 1;
    q.flight.push_back(Flight { ticket, work: Work::Away, delivery: None, reads: false });
    true
}

#[inline]
fn header(end: &End, index: u64, flags: Flags) -> (u64, SendFlags) {
    let id = Id { kind: WorkKind::Send, life: end.life, index }.pack();
    (id, flags.send_flags())
}

/// Parses and checks the next WQE, puts its request into the list, and takes the WQE for started.
#[inline]
fn stage(
    (keys, shadows): (&KeyTable, &Shadows),
    q: &mut SendQueue,
    end: &mut End,
    long: &mut [Block; 16],
    list: &mut SendList,
    log: &mut Log,
) -> Result<(), Box<Halt>> {
    let index = q.next;
    let Some(ring) = &q.ring else { return Err(Box::new(Halt::no_ring())) };
    let block = ring.load(index);
    let (raw, wqe) = match read_wqe(q, ring, &block, index, long) {
        Ok(read) => read,
        Err((wqebbs, rule)) => {
            let first = transmute!(block);
            return Err(Box::new(Halt::Refused { first, wqebbs, rule }));
        }
    };
    if !q.snapshot.is_empty()
        && let Some(rule) = rewritten(q, index, raw)
    {
        log.push(Violation { qpn: q.qpn.get(), queue: QueueKind::Send, index, rule });
    }
    let mut ticket = Ticket::of(&wqe, index);
    let fetches = q.attrs.max_rd_atomic.is_some_and(|count| count > 0);
    let bounds = Bounds { limits: &end.takes, fetches };
    let table = InTable { keys, hint: &mut q.local_hint, pd: q.pd };
    let mut memory = WithShadows::new(table, shadows);
    let mut work = Work::Away;
    match list.translate(&wqe.op, header(end, index, wqe.flags), bounds, &mut memory) {
        Ok(true) => {
            ticket.brought = match wqe.op {
                Op::Write { .. } | Op::Send { .. } => 0,
                _ => ticket.bytes as u32,
            };
        }
        Ok(false) => work = Work::Nothing,
        Err(rule) => return Err(Box::new(Halt::Stopped(ticket, local(*rule)))),
    }
    let pieces = memory.pieces;
    if work.is_away() && end.needs_more(list, &pieces) {
        let fence = wqe.flags.fence.waits_for_reads();
        let set_aside = end.set_aside(q, list, &ticket, fence, pieces);
        set_aside.ok_or_else(|| Box::new(Halt::Later))?;
    }
    q.next = index + ticket.wqebbs;
    q.flight.push_back(Flight { ticket, work, delivery: None, reads: ticket.brought > 0 });
    Ok(())
}
