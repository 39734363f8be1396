//! Checks of a queue pair at the end of a run.

use crate::scenario::End;
use crate::world::{DONE, ERROR, RECEIVES, SENDS, Shape, World};

impl World {
    pub(crate) fn finish(&self, end: &End<'_>) -> Result<(), String> {
        let reserved = self.index_of(end.value(SENDS.reserved));
        let Shape { fails_at, stops_at, unrung, .. } = self.shape;
        let expect = |what: &str, value: u64, expected: u64| match value == expected {
            true => Ok(()),
            false => Err(format!("at the end {what} is {value}, expected {expected}")),
        };
        expect("ring_token", end.value(SENDS.ring_token), 0)?;
        expect("the poll lock", end.value(SENDS.poll) & 1, 0)?;
        match end.value(ERROR) {
            0 => {}
            _ if fails_at.or(stops_at).is_some() => return Ok(()),
            error => return Err(format!("the error word is {error:#x}")),
        }
        if self.shape.log_rq.is_some() {
            let reserved = end.value(RECEIVES.reserved);
            expect("the receive queue's published", end.value(RECEIVES.published), reserved)?;
            expect("its ring_token", end.value(RECEIVES.ring_token), 0)?;
            expect("its poll lock", end.value(RECEIVES.poll) & 1, 0)?;
            let record = (reserved as u32 & 0xffff).to_be();
            expect("its record", end.value(RECEIVES.record), record.into())?;
        }
        if unrung {
            return Ok(());
        }
        expect("published", end.value(SENDS.published), reserved)?;
        if stops_at.is_none() {
            expect("the NIC's next index (work was left unrung)", end.notes[DONE], reserved)?;
        }
        if !self.is_mlx5() {
            return Ok(());
        }
        expect("the record", end.value(SENDS.record), (reserved as u32 & 0xffff).to_be().into())
    }
}
