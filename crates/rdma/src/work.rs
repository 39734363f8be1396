//! Send work requests.

use crate::{Remote, Rkey, Sge};
use bitflags::bitflags;

/// Operation of a send work request. Immediate data are the number whose big-endian bytes are on
/// the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates a key of the receiver.
    SendInvalidate(Rkey),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE that consumes a receive and delivers immediate data.
    WriteImm(Remote, u32),
    /// RDMA READ.
    Read(Remote),
    /// Compare and swap of 8 bytes; the old value comes back.
    CompareSwap {
        /// The word, 8-byte aligned.
        remote: Remote,
        /// Value to compare with, in the CPU's byte order.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// Fetch and add of 8 bytes; the old value comes back.
    FetchAdd {
        /// The word, 8-byte aligned.
        remote: Remote,
        /// The summand, in the CPU's byte order.
        add: u64,
    },
}

impl Op {
    /// Whether it counts against the limit of outstanding READs and atomics: only a response of
    /// its own completes it.
    #[inline]
    pub const fn is_rd_atomic(self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it is an atomic.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it consumes a receive of the peer.
    #[inline]
    pub const fn needs_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm(_) | Self::SendInvalidate(_) | Self::WriteImm(..))
    }
}

bitflags! {
    /// How a send work request is posted: the values of `enum ibv_send_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_send_flags")]
    pub struct SendFlags: u32 {
        /// It starts only after all earlier READs and atomics of the QP are complete.
        const FENCE = 1;
        /// Its success is reported too, so that it can be waited for.
        const SIGNALED = 1 << 1;
        /// It raises an event at a receiver that waits for solicited completions.
        const SOLICITED = 1 << 2;
    }
}

impl SendFlags {
    /// No flag: the request completes with a later signaled one.
    pub const UNSIGNALED: Self = Self::empty();
}

/// The local side of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Bytes that are copied when the request is posted.
    Inline(&'a [u8]),
    /// Registered memory that the device reads, or writes if the request is a READ or an atomic.
    Sges(&'a [Sge]),
}

/// A send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest<'a> {
    /// Returned with its completion.
    pub id: u64,
    /// The operation.
    pub op: Op,
    /// The data to send, or the place for the response.
    pub data: Data<'a>,
    /// How it is posted; inline data need no flag.
    pub flags: SendFlags,
}
