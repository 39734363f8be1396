//! Values around a work request: what it asks for and what comes back.

use warpverbs_mlx5::flags::Flags;
use warpverbs_rdma::{ReceivedKind, SendFlags};

/// The byte in the control segment; `signaled` asks for a CQE whatever the flags say.
pub(crate) fn control_byte(mut flags: SendFlags, signaled: bool) -> u8 {
    flags.set(SendFlags::SIGNALED, signaled);
    Flags::of(flags).to_byte()
}

/// A posted work request: where it stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posted {
    pub(crate) index: u64,
    pub(crate) end: u64,
    pub(crate) signaled: bool,
}

impl Posted {
    /// Its index: counts WQEBBs of a ring's sends, else work requests, since the endpoint was made.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// One past it: it is complete once the queue's `completed` has come this far.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// A message or immediate that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Bytes that arrived.
    pub byte_len: u32,
    /// How.
    pub kind: ReceivedKind,
    /// The sender set [`SendFlags::SOLICITED`]. libibverbs does not report it, so this is false on its
    /// devices.
    pub solicited: bool,
    /// The consumed receive, as [`Posted::index`] counted it; with a shared receive queue, the
    /// queue's own number for it.
    pub index: u64,
}

/// A receive that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Low 16 bits of its index; with an SRQ, the queue's number for it.
    pub(crate) number: u16,
    /// The message, unless the receive failed.
    pub(crate) received: Option<Received>,
}
