//! Back to zero, for an endpoint that is reset.

use super::plan::Part;
use super::{CQ_CI, Memory, SCRATCH_FREE};
use crate::TransportError;
use std::mem::offset_of;
use warpverbs_mlx5::cqe::{CQE, CqeTail, TAIL_OFFSET, owned_by_software};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_mlx5::export::{CqMode, PostState};

impl Memory {
    /// Restores the state of a new endpoint, for a QP in RESET without posters. Ring CQs
    /// go on where the NIC goes on: what is left in them is thrown away.
    pub(crate) fn reset(&self) -> Result<(), TransportError> {
        let (r, shape) = (&self.rings, &self.shape);
        let sq = offset_of!(PostState, sq);
        let rq = offset_of!(PostState, rq);
        let send_ci = match shape.send_cq_mode {
            CqMode::Ring => self.skip_stale(sq, r.send_cq, r.send_cq_record, shape.log_send_cq)?,
            CqMode::Collapsed => {
                self.write(&self.ring_buf, r.send_cq.at, &vec![0xff; r.send_cq.len])?;
                0
            }
        };
        let recv_ci = self.skip_stale(rq, r.recv_cq, r.recv_cq_record, shape.log_recv_cq)?;
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
        log: u8,
    ) -> Result<u64, TransportError> {
        let mut word = [0; 8];
        self.read_state(queue + CQ_CI, &mut word)?;
        let mut ci = u64::from_le_bytes(word);
        loop {
            let entry = cq.at + (ci & ((1 << log) - 1)) * CQE as u64;
            self.read(&self.ring_buf, entry + TAIL_OFFSET as u64, &mut word)?;
            if !owned_by_software(CqeTail::from_ne(u64::from_ne_bytes(word)), ci, log) {
                break;
            }
            ci += 1;
        }
        self.write(&self.ring_buf, record.at, &set_ci_word(ci).to_ne_bytes())?;
        Ok(ci)
    }
}
