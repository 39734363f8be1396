//! Faults that a test switches on, while the NIC runs.

use crate::NicError;
use crate::cq::Cq;
use crate::engine::{monitor, registry};
use crate::objects::cq::Delay;
use crate::shared::Shared;

/// The faults of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct Faults<'n>(pub(crate) &'n Shared);

impl Faults<'_> {
    /// CQEs of `cq` are written late, in order, until `None` is given.
    pub fn delay_cqes(&self, cq: &Cq, delay: Option<Delay>) {
        monitor::delay_cqes(&mut self.0.lock(), cq.0.slot, delay);
    }

    /// The next `count` doorbells of a QP are lost. Each is recovered from the doorbell record
    /// after this many polls, or never; a later doorbell covers it in any case.
    ///
    /// # Errors
    /// There is no such QP, or the record is to be read without
    /// [`Config::loses_doorbells`](crate::Config::loses_doorbells).
    pub fn lose_doorbells(
        &self,
        qpn: u32,
        count: u32,
        recovery: Option<u32>,
    ) -> Result<(), NicError> {
        if recovery.is_some() && !self.0.config().reads_record() {
            return Err(NicError::RecordNotRead);
        }
        monitor::change_qp(&mut self.0.lock(), qpn, |q, _| {
            (q.doorbell.lose, q.doorbell.lose_recovery) = (count, recovery)
        })
    }

    /// Revokes a key, or restores it.
    pub fn revoke(&self, key: u32, revoked: bool) -> Result<(), NicError> {
        registry::set_revoked(&mut self.0.lock(), key, revoked)
    }

    /// The next `count` messages to a QP meet "receiver not ready", whatever is posted.
    pub fn receiver_not_ready(&self, qpn: u32, count: u32) -> Result<(), NicError> {
        monitor::change_qp(&mut self.0.lock(), qpn, |_, rq| rq.refuse = count)
    }

    /// A QP starts no WQE, or starts them again.
    pub fn stick(&self, qpn: u32, stuck: bool) -> Result<(), NicError> {
        monitor::change_qp(&mut self.0.lock(), qpn, |q, _| q.turn.stuck = stuck)
    }
}
