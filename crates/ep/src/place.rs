//! Where a channel lies in the heap.

use crate::{Ep, EpError, Regions};
use warpverbs_gpu::Buffer;
use warpverbs_shmem::{Heap, Sym};

impl Ep {
    /// A channel's memory in the heap, of which `raw::ep::Regions` says what lies where.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn place(&self, channel: usize) -> Result<&Sym<u64>, EpError> {
        let channels = self.channels.len();
        self.places.get(channel).ok_or(EpError::Channel { channel, channels })
    }

    /// Where the rows of a combine lie with [`in_place`](crate::EpConfig::in_place) in rank-major layout.
    ///
    /// # Errors
    /// There is no such channel, or its rows lie elsewhere.
    pub fn outputs(&self, heap: &Heap, channel: usize) -> Result<Buffer, EpError> {
        let place = self.place(channel)?;
        let rows = Regions::new(&self.config, self.ways(), 0).outputs;
        if rows.is_empty() {
            let expected = "true, in rank-major layout".to_owned();
            return Err(EpError::Config { field: "in_place", value: "false".to_owned(), expected });
        }
        Ok(heap.local(&place.slice(rows.start / 8, (rows.end - rows.start) / 8)?)?)
    }
}
