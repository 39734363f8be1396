//! The NIC's objects by number: queues, keys, and QPs by their QP number.

use super::atomic::AtomicGate;
use crate::NicError;
use crate::objects::address::{self, Address};
use crate::objects::cq::CompletionQueue;
use crate::objects::in_flight::WqeInfo;
use crate::objects::receive::{ReceiveQueue, Receives};
use crate::objects::send::{Executor, SendQueue};
use crate::objects::srq::SharedReceiveQueue;
use crate::slots::{AhSlot, CqSlot, QpSlot, Slots, SrqSlot};
use rand::{Rng, RngExt};
use rustc_hash::FxHashMap;
use warpverbs_link::QpnPart;
use warpverbs_mem::KeyTable;

/// All objects of a NIC that work requests name or use.
pub(crate) struct Tables {
    pub(crate) keys: KeyTable,
    /// The requester's half of each QP.
    pub(crate) sends: Slots<QpSlot, SendQueue>,
    /// The responder's half, in the same slot.
    pub(crate) receives: Slots<QpSlot, ReceiveQueue>,
    pub(crate) cqs: Slots<CqSlot, CompletionQueue>,
    pub(crate) srqs: Slots<SrqSlot, SharedReceiveQueue>,
    pub(crate) addresses: Slots<AhSlot, Address>,
    /// Slot of each QP, by QP number.
    pub(crate) by_qpn: FxHashMap<u32, QpSlot>,
    /// The part of the QP numbers from which numbers are drawn, so that packets to this NIC may travel
    /// together.
    pub(crate) part: QpnPart,
    pub(super) atomics: AtomicGate,
    /// The receive WQE that is being read.
    pub(crate) scratch: Box<[u64; 128]>,
}

impl Tables {
    pub(crate) fn new(keys: KeyTable, max_qps: u32, part: QpnPart) -> Self {
        Self {
            keys,
            sends: Slots::new(max_qps),
            receives: Slots::new(max_qps),
            cqs: Slots::new(1 << 23),
            srqs: Slots::new(1 << 23),
            addresses: Slots::new(address::MAX),
            by_qpn: FxHashMap::default(),
            part,
            atomics: AtomicGate::default(),
            scratch: Box::new([0; 128]),
        }
    }

    /// A free QP number, drawn at random so that the number of a removed QP is not reused soon.
    pub(crate) fn draw_qpn(&self, rng: &mut impl Rng) -> u32 {
        loop {
            let qpn = rng.random_range(self.part.numbers());
            if !self.by_qpn.contains_key(&qpn) {
                return qpn;
            }
        }
    }

    /// The number of a QP of another device, if no QP has it.
    pub(crate) fn claim_qpn(&self, qpn: u32) -> Result<u32, NicError> {
        if !(2..0xff_ffff).contains(&qpn) {
            let (value, min, max) = (u64::from(qpn), 2, 0xff_fffe);
            let what = "QP number of a proxy device";
            return Err(NicError::OutOfRange { what, value, min, max });
        }
        match self.by_qpn.contains_key(&qpn) {
            true => Err(NicError::QpnTaken { qpn }),
            false => Ok(qpn),
        }
    }

    /// Adds a QP. Both halves get the same slot, which is the number of its doorbell.
    pub(crate) fn insert_qp(
        &mut self,
        send: SendQueue,
        receive: ReceiveQueue,
        max: u32,
    ) -> Result<QpSlot, NicError> {
        let exhausted = NicError::Exhausted { what: "QPs", max: u64::from(max) };
        let qpn = send.qpn.get();
        let slot = self.sends.insert(send).ok_or(exhausted.clone())?;
        let twin = self.receives.insert(receive).ok_or(exhausted)?;
        debug_assert_eq!(slot, twin);
        if let Some(q) = self.sends.live_mut(slot) {
            q.slot = slot;
        }
        if let Some(rq) = self.receives.live_mut(slot) {
            rq.slot = slot;
        }
        self.by_qpn.insert(qpn, slot);
        Ok(slot)
    }

    /// Takes a QP out.
    pub(crate) fn remove_qp(
        &mut self,
        slot: QpSlot,
    ) -> Option<(Box<SendQueue>, Box<ReceiveQueue>)> {
        let halves = self.sends.remove(slot).zip(self.receives.remove(slot));
        if let Some((q, _)) = &halves {
            self.by_qpn.remove(&q.qpn.get());
        }
        halves
    }

    /// The number of the QP in `slot`.
    pub(crate) fn qpn_of(&self, slot: QpSlot) -> u32 {
        self.receives.live(slot).map_or(0, |rq| rq.qpn)
    }

    /// Bytes that the QP in `slot` has moved so far.
    pub(crate) fn bytes_moved(&self, slot: QpSlot) -> u64 {
        self.sends.live(slot).map_or(0, |q| q.stats.bytes)
    }

    /// Which backend executes the work of the QP in `slot`.
    pub(crate) fn executor(&self, slot: QpSlot) -> Executor {
        self.sends.live(slot).map_or(Executor::Loopback, |q| q.executor)
    }

    /// The WQE counts as started.
    pub(crate) fn pass(&mut self, slot: QpSlot, info: &WqeInfo) {
        if let Some(q) = self.sends.live_mut(slot) {
            q.progress.next = info.index + info.units;
        }
    }

    /// The receive that a refused message fails: the one that it has `taken`, or else the next.
    pub(crate) fn receive_of_refused(&mut self, peer: QpSlot, taken: Option<u64>) -> Option<u64> {
        match taken {
            Some(index) => self.receives.live_mut(peer)?.close(index).then_some(index),
            None => self.consume_receive(peer),
        }
    }

    /// Takes the next receive of the QP in `slot`, valid or not.
    fn consume_receive(&mut self, slot: QpSlot) -> Option<u64> {
        let Self { receives, srqs, scratch, .. } = self;
        match &mut receives.live_mut(slot)?.source {
            Receives::None => None,
            Receives::Own(own) => own.take_next().ok()?,
            Receives::Shared(srq) => {
                let srq = srqs.live_mut(*srq)?;
                let (number, link, _) = srq.peek(scratch).ok()??;
                srq.take(link);
                Some(u64::from(number))
            }
        }
    }

    /// Look-ups of removed objects; each is a fault of this crate.
    pub(crate) fn stale(&self) -> u64 {
        self.sends.stale() + self.receives.stale() + self.cqs.stale() + self.srqs.stale()
    }
}
