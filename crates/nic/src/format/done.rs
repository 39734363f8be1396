//! Work that has ended, before any format makes a CQE of it.

use super::{DatagramSource, ErrorSide, Qpn, ReceivedKind, SendOpcode};
use warpverbs_rdma::Status;

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
