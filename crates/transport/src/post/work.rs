//! Values around a work request: what it asks for and what comes back.

use std::ops::BitOr;
use warpverbs_mlx5::flags::{Completion, Fence, Flags};

/// How a send work request is to be treated; combine with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_send_flags")]
pub struct SendFlags(u8);

impl SendFlags {
    /// None of them. The work request completes with a later signalled one.
    pub const UNSIGNALED: Self = Self(0);
    /// It completes by itself, so that it can be waited for.
    pub const SIGNALED: Self = Self(1);
    /// It starts only after all earlier READs and atomics of the endpoint.
    pub const FENCE: Self = Self(2);
    /// The receiver is told that this message matters: [`Received::solicited`], and the event for
    /// which a CQ of libibverbs may be armed.
    pub const SOLICITED: Self = Self(4);

    /// Whether all of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The byte in the control segment; `signaled` asks for a CQE whatever the flags say.
    pub(crate) fn to_byte(self, signaled: bool) -> u8 {
        let flags = Flags {
            fence: if self.contains(Self::FENCE) { Fence::FenceAndSmall } else { Fence::None },
            completion: if signaled { Completion::Always } else { Completion::OnError },
            solicited: self.contains(Self::SOLICITED),
        };
        flags.to_byte()
    }
}

impl BitOr for SendFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A posted work request: where it stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posted {
    pub(crate) index: u64,
    pub(crate) end: u64,
    pub(crate) signaled: bool,
}

impl Posted {
    /// Its index: counts WQEBBs (send) or work requests (receive) since the endpoint was made.
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
    /// The sender asked that its receiver be told ([`SendFlags::SOLICITED`]). libibverbs does not say,
    /// so this is false on its devices.
    pub solicited: bool,
    /// The consumed receive, as [`Posted::index`] counted it; with a shared receive queue, the
    /// queue's own number for it.
    pub index: u64,
}

/// How something arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReceivedKind {
    /// SEND.
    Send,
    /// SEND with this immediate.
    SendImm(u32),
    /// SEND that invalidated this key of ours.
    SendInval(u32),
    /// RDMA WRITE with this immediate; the data is where the writer put it.
    WriteImm(u32),
}
