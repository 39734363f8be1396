//! Faults that a test switches on, while the NIC runs.

use crate::NicError;
use crate::cq::{Cq, Delay};
use crate::nic::Shared;
use crate::qp::receive::ReceiveQueue;
use crate::qp::send::SendQueue;

/// The faults of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Faults<'n>(pub(crate) &'n Shared);

impl Faults<'_> {
    fn with<T>(
        &self,
        qpn: u32,
        change: impl FnOnce(&mut SendQueue, &mut ReceiveQueue) -> T,
    ) -> Result<T, NicError> {
        let mut core = self.0.lock();
        let tables = &mut core.queues.tables;
        let unknown = NicError::UnknownQp { qpn };
        let slot = *tables.by_qpn.get(&qpn).ok_or(unknown.clone())?;
        let halves = tables.sends.live_mut(slot).zip(tables.receives.live_mut(slot));
        let changed = halves.map(|(q, rq)| change(q, rq)).ok_or(unknown)?;
        core.queues.enqueue(slot);
        Ok(changed)
    }

    /// CQEs of `cq` are written late, in order, until `None` is given.
    pub fn delay_cqes(&self, cq: &Cq, delay: Option<Delay>) {
        if let Some(cq) = self.0.lock().queues.tables.cqs.live_mut(cq.0.slot) {
            cq.delay = delay;
        }
    }

    /// The next `count` doorbells of a QP are lost. Each is recovered from the doorbell record
    /// after so many polls, or never; a later doorbell covers it in any case.
    pub fn lose_doorbells(
        &self,
        qpn: u32,
        count: u32,
        recovery: Option<u32>,
    ) -> Result<(), NicError> {
        self.with(qpn, |q, _| (q.lose, q.lose_recovery) = (count, recovery))
    }

    /// A key stops working, or works again.
    pub fn revoke(&self, key: u32, revoked: bool) -> Result<(), NicError> {
        Ok(self.0.lock().queues.tables.keys.set_revoked(key, revoked)?)
    }

    /// The next `count` messages to a QP meet "receiver not ready", whatever is posted.
    pub fn receiver_not_ready(&self, qpn: u32, count: u32) -> Result<(), NicError> {
        self.with(qpn, |_, rq| rq.refuse = count)
    }

    /// A QP starts no WQE, or starts them again.
    pub fn stick(&self, qpn: u32, stuck: bool) -> Result<(), NicError> {
        self.with(qpn, |q, _| q.stuck = stuck)
    }
}
