//! Work that has ended, before any format makes a CQE of it.

use super::{DatagramSource, ErrorSide, Qpn, ReceivedKind, SendOpcode};
use warpverbs_rdma::Status;

/// The names of a queue in its CQEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// mlx5's user index, or bnxt_re's handle.
    pub(crate) handle: Option<u64>,
    /// The bits of an index that are its place in the queue.
    pub(crate) mask: u64,
    /// The QP is one of datagrams.
    pub(crate) datagrams: bool,
}

impl Names {
    /// Of a queue without any.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { handle: None, mask: u64::MAX, datagrams: false };
}

/// Work of a QP that has ended and gets a CQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) qpn: Qpn,
    /// Index of the WQE in units of its queue, not masked; of an SRQ's, its number.
    pub(crate) index: u64,
    /// Of a send queue: WQEs that have ended since RESET, this one included.
    pub(crate) ended: u64,
    pub(crate) what: Ended,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    /// A WQE of a send queue is complete; `brought` are the bytes of a READ or an atomic.
    Sent { opcode: SendOpcode, brought: u32 },
    /// A message is in its receive; `srqn` is 0 without an SRQ, `from` the sender of a datagram.
    Received {
        kind: ReceivedKind,
        len: u32,
        srqn: u32,
        solicited: bool,
        from: Option<DatagramSource>,
    },
    /// A WQE of either queue failed, or was flushed; `vendor` is what a device below told beside the status.
    Failed { side: ErrorSide, opcode: SendOpcode, status: Status, vendor: Option<u8>, srqn: u32 },
    /// The QP went to ERR: nothing more of this side will be reported. For formats whose libraries flush by
    /// themselves.
    Queue { side: ErrorSide },
}

impl Done {
    /// It raises an event for consumers that wait for solicited completions.
    #[inline]
    pub(crate) fn is_solicited(&self) -> bool {
        matches!(self.what, Ended::Received { solicited: true, .. } | Ended::Failed { .. })
    }
}
