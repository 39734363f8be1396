//! Checks of a queue pair at the end of a run.

use crate::scenario::End;
use crate::world::{DONE, Shape, World};
use std::mem::offset_of;
use warpverbs_mlx5::export::QueueState;

impl World {
    pub(crate) fn finish(&self, end: &End<'_>) -> Result<(), String> {
        let reserved = end.value(self.reserved());
        let Shape { fails_at, stops_at, unrung, .. } = self.shape;
        let expect = |what: &str, value: u64, expected: u64| match value == expected {
            true => Ok(()),
            false => Err(format!("at the end {what} is {value}, expected {expected}")),
        };
        expect("ring_token", end.value(self.ring_token()), 0)?;
        expect("the poll lock", end.value(self.poll()) & 1, 0)?;
        match end.value(self.error()) {
            0 => {}
            _ if fails_at.or(stops_at).is_some() => return Ok(()),
            error => return Err(format!("the error word is {error:#x}")),
        }
        if self.shape.log_rq.is_some() {
            let value = |offset| end.value(self.recv_counter(offset));
            let reserved = value(offset_of!(QueueState, reserved));
            expect(
                "the receive queue's published",
                value(offset_of!(QueueState, published)),
                reserved,
            )?;
            expect("its ring_token", value(offset_of!(QueueState, ring_token)), 0)?;
            expect("its poll lock", value(offset_of!(QueueState, poll)) & 1, 0)?;
            let record = (reserved as u32 & 0xffff).to_be();
            expect("its record", end.value(self.recv_record()), record.into())?;
        }
        if unrung {
            return Ok(());
        }
        expect("published", end.value(self.published()), reserved)?;
        if stops_at.is_none() {
            expect("the NIC's next index (work was left unrung)", end.notes[DONE], reserved)?;
        }
        expect("the record", end.value(self.record()), (reserved as u32 & 0xffff).to_be().into())
    }
}
