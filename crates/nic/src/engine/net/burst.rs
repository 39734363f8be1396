//! The short way of [plain WRITEs](crate::engine::plain) from host memory to the connection.
//!
//! It reports no errors: any other WQE is left untouched for the general way
//! ([`post`](super::post)), so the NIC behaves the same without this file.

use super::Connections;
use super::end::{End, Outgoing, Posted};
use crate::engine::plain::{PlainWrite, Source, plain_write};
use crate::engine::tables::Tables;
use crate::format::{MAX_MESSAGE, OfBnxt, OfIonic, OfMlx5, Plain, SendFormat, SendOpcode};
use crate::objects::in_flight::{InFlight, WqeInfo};
use crate::objects::send::SendQueue;
use crate::slots::QpSlot;
use warpverbs_mem::{KeyTable, Kind};
use warpverbs_rc::{Op, Request};

impl Connections {
    /// Posts WQEs of the QP in `slot` as far as they are plain and the connection has room, up to
    /// `budget` of them. How many.
    pub(crate) fn burst(&mut self, tables: &mut Tables, slot: QpSlot, budget: u32) -> u32 {
        let Tables { sends, keys, .. } = tables;
        let end = self.ends.get_mut(slot);
        let (Some(q), Some(end)) = (sends.live_mut(slot), end) else { return 0 };
        // The oldest one that is complete already is retired first.
        if !q.is_plain() || q.progress.in_flight.front().is_some_and(|first| !first.away) {
            return 0;
        }
        let first = q.progress.next;
        let upto = q.progress.posted.min(first + u64::from(budget));
        let before = q.progress.in_flight.len();
        match q.format {
            SendFormat::Mlx5 => post_all::<OfMlx5>(keys, q, end, upto),
            SendFormat::Bnxt(_) => post_all::<OfBnxt>(keys, q, end, upto),
            SendFormat::Ionic(_) => post_all::<OfIonic>(keys, q, end, upto),
        }
        let count = (q.progress.in_flight.len() - before) as u32;
        if count > 0 {
            q.restore_retries();
            self.ends.enqueue(slot);
        }
        count
    }
}

/// Posts WQEs of `q` below `upto` as long as they are plain.
fn post_all<F: Plain>(keys: &KeyTable, q: &mut SendQueue, end: &mut End, upto: u64) {
    while q.progress.next < upto && post::<F>(keys, q, end).is_some() {}
}

/// Posts the next WQE of `q` if it is a plain WRITE.
#[inline]
fn post<F: Plain>(keys: &KeyTable, q: &mut SendQueue, end: &mut End) -> Option<()> {
    let index = q.progress.next;
    let block = F::load(q.ring.wqes.as_ref()?, index);
    let PlainWrite { units, psn, remote, source, len, flags } =
        plain_write::<F>(q, keys, q.place(index), &block, MAX_MESSAGE)?;
    let outgoing = match source {
        Source::Inline(bytes) => Outgoing::Bytes(bytes.into()),
        Source::Memory(sge, span) if span.region.kind() == Kind::Host => Outgoing::One(sge),
        Source::Memory(..) => return None,
    };
    let request = Request {
        id: end.requests.next(),
        op: Op::Write(remote),
        len,
        extended: None,
        fence: flags.fence.waits_for_reads(),
        solicited: flags.solicited,
    };
    end.conn.post(request).ok()?;
    end.requests.push(Posted { index, outgoing, inline: false });
    let (opcode, completion, bytes) = (SendOpcode::RdmaWrite, flags.completion, len.into());
    let info = WqeInfo { index, units, opcode, completion, bytes, brought: 0 };
    q.progress.in_flight.push_back(InFlight { info, away: true, reads: false });
    q.progress.next = index + units;
    F::passed(&mut q.format, psn);
    Some(())
}
