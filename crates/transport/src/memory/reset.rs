//! Back to zero, for an endpoint that is reset.

use super::plan::Part;
use super::{CQ_CI, Memory, SCRATCH_FREE};
use crate::TransportError;
use crate::post::{Consumed, CqFormat};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Release;
use warpverbs_mlx5::export::{CqMode, PostState};

impl Memory {
    /// Restores the state of a new endpoint, for a QP in RESET without posters. Ring CQs
    /// go on where the NIC goes on: what is left in them is thrown away.
    /// `cqns`: of its send and receive CQ.
    pub(crate) fn reset(&self, cqns: [u32; 2]) -> Result<(), TransportError> {
        let (r, shape) = (&self.rings, &self.shape);
        let sq = offset_of!(PostState, sq);
        let rq = offset_of!(PostState, rq);
        let send_ci = match shape.send_cq_mode {
            CqMode::Ring => {
                let of = (shape.log_send_cq, cqns[0]);
                self.skip_stale(sq, r.send_cq, r.send_cq_record, of)?
            }
            CqMode::Collapsed => {
                self.write(&self.ring_buf, r.send_cq.at, &vec![0xff; r.send_cq.len])?;
                0
            }
        };
        let recv_ci =
            self.skip_stale(rq, r.recv_cq, r.recv_cq_record, (shape.log_recv_cq, cqns[1]))?;
        self.write(&self.state_buf, 0, &vec![0; self.state.qp.at as usize])?;
        self.write_state(SCRATCH_FREE, &u64::MAX.to_le_bytes())?;
        self.write_state(sq + CQ_CI, &send_ci.to_le_bytes())?;
        self.write_state(rq + CQ_CI, &recv_ci.to_le_bytes())?;
        self.write(&self.ring_buf, r.record.at, &[0; 8])?;
        self.write(&self.ring_buf, r.abort.at, &[0; 4])
    }

    /// Consumes what is left in a ring CQ whose queue has its state at `queue`.
    fn skip_stale(
        &self,
        queue: usize,
        cq: Part,
        record: Part,
        (log, cqn): (u8, u32),
    ) -> Result<u64, TransportError> {
        let format = CqFormat(self.shape.format);
        let mut word = [0; 8];
        self.read_state(queue + CQ_CI, &mut word)?;
        let mut ci = u64::from_le_bytes(word);
        loop {
            let entry = cq.at + (ci & ((1 << log) - 1)) * format.cqe_bytes() as u64;
            self.read(&self.ring_buf, entry + format.cqe_bytes() as u64 - 8, &mut word)?;
            if !format.is_new(u64::from_ne_bytes(word), ci, log) {
                break;
            }
            ci += 1;
        }
        match format.consumed(cqn, ci, log) {
            Consumed::Record(word) => self.write(&self.ring_buf, record.at, &word.to_ne_bytes())?,
            Consumed::Doorbell(word) => match &self.told_at {
                // One store: it is a doorbell.
                Some([_, cqs]) => cqs.atomic_u64(0)?.store(word, Release),
                None => self.write(&self.ring_buf, record.at, &word.to_ne_bytes())?,
            },
        }
        Ok(ci)
    }
}
