//! The upcalls of a connection (`rc::Host`): memory and receives, checked as in loopback.

use super::bounce::Bounce;
use super::end::CurrentReceive;
use crate::engine::access::{self, Spans};
use crate::engine::atomic::{Amo, AtomicGate};
use crate::engine::outcome::Refusal;
use crate::engine::report::Report;
use crate::format::Remote;
use crate::objects::receive::{ReceiveQueue, Receives};
use crate::objects::srq::SharedReceiveQueue;
use crate::slots::{Slots, SrqSlot};
use crate::violation::Rule;
use std::ops::Range;
use warpverbs_mem::{Access, BouncePool, KeyTable, Kind, MemError, Span};
use warpverbs_rc::{Atomic, AtomicOp, Denied, Host, Need, Receive};
use warpverbs_wire::Rkey;

/// The responder's side of a QP, for the time of one call.
pub(super) struct Responder<'a, 's> {
    pub(super) keys: &'a KeyTable,
    pub(super) rq: &'a mut ReceiveQueue,
    pub(super) srqs: &'a mut Slots<SrqSlot, SharedReceiveQueue>,
    pub(super) scratch: &'a mut [u64; 128],
    pub(super) receive_in_use: &'a mut CurrentReceive,
    /// The last refusal that ends the connection.
    pub(super) refusal: &'a mut Option<Refusal>,
    pub(super) bounce: &'a mut Option<Box<Bounce>>,
    pub(super) pool: &'a BouncePool,
    pub(super) atomics: &'a mut AtomicGate,
    pub(super) reports: &'a mut Vec<Report>,
    /// An atomic has no answer yet.
    pub(super) not_yet: bool,
    /// Of the packet, for operands of an atomic.
    pub(super) payload: &'s [u8],
    /// The range that was checked last: where the payload of the packet goes.
    pub(super) checked: &'s mut Spans<'a>,
}

fn right(need: Need) -> Access {
    match need {
        Need::Write => Access::REMOTE_WRITE,
        Need::Read => Access::REMOTE_READ,
        Need::Atomic => Access::REMOTE_ATOMIC,
    }
}

/// The CPU reaches the memory, or bounce buffers make up for it.
#[inline]
fn reach(bounce: &mut Option<Box<Bounce>>, pool: &BouncePool, span: &Span<'_>) -> Result<(), Rule> {
    match span.region.kind() {
        Kind::Host => Ok(()),
        _ => Bounce::admit(bounce, pool, span.region),
    }
}

impl<'a> Responder<'a, '_> {
    fn deny(&mut self, refusal: Refusal) -> Denied {
        *self.refusal = Some(refusal);
        Denied
    }

    /// The range that a peer named, checked.
    #[inline]
    pub(super) fn range(
        &mut self,
        rkey: Rkey,
        va: u64,
        len: u32,
        need: Need,
    ) -> Result<Option<Span<'a>>, Refusal> {
        let remote = Remote { addr: va, rkey };
        let span = access::check_rkey(self.keys, self.rq, remote, len.into(), right(need))?;
        let broken = |rule| Refusal::Operational { rule, receive: None };
        span.as_ref().map_or(Ok(()), |span| reach(self.bounce, self.pool, span)).map_err(broken)?;
        Ok(span)
    }

    /// Checks a range of the receive at hand.
    fn scatter(&mut self, range: Range<u64>) -> Result<(), Refusal> {
        let Self { keys, rq, srqs, receive_in_use, checked, .. } = self;
        let (index, sges) = (receive_in_use.index, receive_in_use.sges.iter().copied());
        checked.clear();
        access::check_scatter(keys, rq, srqs, index, sges, range, checked)?;
        let broken = |rule| Refusal::Operational { rule, receive: Some(index) };
        let Self { checked, bounce, pool, .. } = self;
        checked.iter().try_for_each(|span| reach(bounce, pool, span)).map_err(broken)
    }
}

impl Host for Responder<'_, '_> {
    fn allows(&self, need: Need) -> bool {
        access::check_op_valid(self.rq, right(need)).is_ok()
    }

    fn receive(&mut self) -> Result<Option<Receive>, Denied> {
        match access::check_receive(self.rq, self.srqs, self.scratch) {
            Ok(receive) => {
                let (index, link) = receive.place();
                // A receive has at most 64 segments.
                let sges = receive.sges.iter().take(64).collect();
                let room = receive.sges.byte_len();
                *self.receive_in_use = CurrentReceive { index, link, sges };
                Ok(Some(Receive { id: index, room }))
            }
            Err(Refusal::NotReady { .. }) => {
                self.rq.refuse = self.rq.refuse.saturating_sub(1);
                Ok(None)
            }
            Err(refusal) => Err(self.deny(refusal)),
        }
    }

    fn take_receive(&mut self, _id: u64) {
        let CurrentReceive { index, link, .. } = *self.receive_in_use;
        let limit = access::take(self.rq, self.srqs, index, link);
        self.reports.extend(limit.map(Report::Event));
    }

    fn check_receive(&mut self, _id: u64, offset: u32, len: u32) -> Result<(), Denied> {
        let start = u64::from(offset);
        match self.scatter(start..start + u64::from(len)) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.deny(refusal)),
        }
    }

    fn check_rkey(&mut self, rkey: Rkey, va: u64, len: u32, need: Need) -> Result<(), Denied> {
        match self.range(rkey, va, len, need) {
            Ok(span) => {
                self.checked.clear();
                self.checked.extend(span);
                Ok(())
            }
            Err(refusal) => Err(self.deny(refusal)),
        }
    }

    fn check_invalidate(&mut self, rkey: Rkey) -> Result<(), Denied> {
        let receive = self.receive_in_use.index;
        access::check_invalidate(self.keys, self.rq, rkey, receive)
            .map_err(|refusal| self.deny(refusal))
    }

    /// Those of an SRQ are for all its QPs: none is promised to one.
    fn receives_left(&self) -> Option<u32> {
        match &self.rq.source {
            Receives::Own(own) => own.left(),
            Receives::Shared(_) | Receives::None => None,
        }
    }

    fn atomic(&mut self, atomic: &Atomic) -> Result<Option<u64>, Denied> {
        let (Atomic { va, rkey, op }, size) = (*atomic, atomic.size());
        let span =
            self.range(rkey, va, size, Need::Atomic).map_err(|refusal| self.deny(refusal))?;
        let amo = match op {
            AtomicOp::CompareSwap { compare, swap } => Amo::compare_swap(compare, swap),
            AtomicOp::FetchAdd { add } => Amo::fetch_add(add),
            AtomicOp::Extended { compare_swap, size } => {
                // The connection has checked how many operands there are.
                Amo::from_operands(compare_swap, size, self.payload).ok_or(Denied)?
            }
        };
        // An atomic has bytes, so there is a span.
        let Some(span) = span else { return Err(Denied) };
        let done = match self.bounce {
            None => amo.on_host(span.region, span.offset).map(|old| Some(old.value())),
            Some(bounce) => bounce.atomic((self.rq.slot, self.atomics), (amo, va), span),
        };
        self.not_yet = done == Ok(None);
        done.map_err(|error| match error {
            // The address is aligned, the region may not be.
            MemError::Misaligned { .. } => {
                self.deny(Refusal::Invalid(Rule::AtomicAlignment { addr: va, size }))
            }
            _ => {
                let rule = Rule::CopyFailed { kind: span.region.kind() };
                self.deny(Refusal::Operational { rule, receive: None })
            }
        })
    }
}
