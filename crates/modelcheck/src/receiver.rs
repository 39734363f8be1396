//! The receiving side of a NIC: takes posted receives for messages that a peer sends, one access at
//! a time.

use crate::host::{knows, load, note, pause, read, require, store, write};
use crate::op::Order::{Acquire, Relaxed, Release};
use crate::world::{ARRIVED, RECEIVES, World};

/// The content of the message that takes the receive at `index`.
pub(crate) fn message(index: u64) -> u64 {
    0x200 + index
}

#[derive(Clone, Copy)]
pub(crate) struct Receiver {
    world: World,
    /// Everything below has been taken.
    taken: u64,
}

impl Receiver {
    pub(crate) fn new(world: World) -> Self {
        Self { world, taken: world.shape.start }
    }

    pub(crate) fn run(mut self) {
        note(ARRIVED, self.taken);
        let end = self.taken + self.world.shape.messages;
        let depth = 1u16 << self.world.shape.log_rq.unwrap_or(0);
        while self.taken < end {
            knows(self.taken);
            // Acquire, pairs with the combiner's release of the record.
            let record = (load(RECEIVES.record, 4, Acquire) as u32).swap_bytes() as u16;
            let posted = record.wrapping_sub(self.taken as u16);
            require(posted <= depth, "the record is not ahead by more than the ring");
            if posted == 0 {
                pause();
            } else {
                self.take();
            }
        }
    }

    fn take(&mut self) {
        let (world, index) = (self.world, self.taken);
        let wqe = world.recv_wqe(index);
        let byte_count = (read(wqe) as u32).swap_bytes();
        require(byte_count == 8, "the slot holds a receive of 8 bytes");
        write(read(wqe + 8).swap_bytes(), message(index));
        // Acquire, pairs with the poller's release of SET_CI: it has read the entry.
        let returned = (load(RECEIVES.cq_record, 4, Acquire) as u32).swap_bytes();
        let in_use = (index as u32).wrapping_sub(returned) & 0xff_ffff;
        let log_size = world.shape.log_rq.unwrap_or(0);
        require(in_use < 1 << log_size, "the receive CQ has room");
        let cqe = world.recv_cqe(index);
        store(cqe + 44, 4, u64::from(8u32.swap_bytes()), Relaxed);
        self.taken += 1;
        note(ARRIVED, self.taken);
        // RESP_SEND; body first, the last 8 bytes with release.
        let op_own = 2 << 4 | index >> log_size & 1;
        let counter = u64::from((index as u16).swap_bytes()) << 32;
        store(cqe + 56, 8, op_own << 56 | counter, Release);
    }
}
