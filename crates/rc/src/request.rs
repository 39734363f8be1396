//! Work requests of a connection.

use warpverbs_rdma::Op;

/// The user's identifier of a request, returned with everything that concerns it. Unique among
/// those that are posted and not yet completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// A work request. Payload is not part of it: [`crate::Transmit`] and [`crate::Place`] name bytes
/// by request and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The user's identifier.
    pub id: WrId,
    /// The operation.
    pub op: Op,
    /// Bytes of payload, up to [`MAX_MESSAGE`]; atomics have 8, extended ones their operands.
    pub len: u32,
    /// An atomic with masks, on a word of this many bytes, 4 or 8. Its operands are its payload, not
    /// those in `op`: four words of a compare and swap, two of a fetch and add.
    pub extended: Option<u8>,
    /// Begin only when all READs and atomics before it are complete.
    pub fence: bool,
    /// It raises an event at a receiver that waits for solicited completions.
    pub solicited: bool,
}

/// The longest message (vol. 1, 9.7.1).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Bytes of the operands of an extended atomic on a word of `size` bytes.
pub(crate) const fn operands(compare_swap: bool, size: u32) -> u32 {
    if compare_swap { 4 * size } else { 2 * size }
}

/// Why a request was not accepted. The caller's fault, nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// So many are posted and their completions not polled.
    #[error("the send queue is full: {depth} requests are outstanding")]
    Full {
        /// [`crate::Config::send_depth`].
        depth: u32,
    },
    /// Above 2^31 bytes.
    #[error("message of {len} bytes, expected at most {MAX_MESSAGE}")]
    TooLong {
        /// Bytes.
        len: u32,
    },
    /// An atomic of another length than 8, or an extended one with other operands than it needs.
    #[error("atomic of {len} bytes, expected 8, or all operands of an extended one")]
    AtomicLength {
        /// Bytes.
        len: u32,
    },
    /// The connection is [`ReadyToReceive`](crate::State::ReadyToReceive) only.
    #[error("the connection is not started")]
    NotStarted,
    /// A READ or an atomic on a connection that was configured to have none.
    #[error("READ or atomic, but max_rd_atomic is 0")]
    NoRdAtomic,
}

impl Request {
    /// Bytes that an atomic has as payload.
    pub(crate) const fn atomic_len(&self) -> u32 {
        match (self.extended, self.op) {
            (None, _) => 8,
            (Some(size), op) => operands(matches!(op, Op::CompareSwap { .. }), size as u32),
        }
    }
    /// A request without fence and not solicited.
    pub const fn new(id: WrId, op: Op, len: u32) -> Request {
        Request { id, op, len, extended: None, fence: false, solicited: false }
    }
}
