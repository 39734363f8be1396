//! The upcalls of a connection while it checks a request of the peer.

use warpverbs_wire::Rkey;

/// The memory operation of a peer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap, fetch and add.
    Atomic,
}

/// A receive that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The user's identifier.
    pub id: u64,
    /// Bytes that it can take.
    pub room: u64,
}

/// An atomic to be done on a word of memory, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Virtual address, a multiple of the word's size, checked.
    pub va: u64,
    /// Key of the region, checked.
    pub rkey: Rkey,
    /// The operation.
    pub op: AtomicOp,
}

/// The operation of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Writes `swap` if the memory holds `compare`.
    CompareSwap {
        /// The value that the memory must hold.
        compare: u64,
        /// The value to write.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd {
        /// The summand.
        add: u64,
    },
    /// With masks. The operands are the payload of the packet, as long as they must be.
    Extended {
        /// Compare and swap; else fetch and add.
        compare_swap: bool,
        /// Bytes of the word, 4 or 8.
        size: u8,
    },
}

impl Atomic {
    /// Bytes of the word.
    pub const fn size(&self) -> u32 {
        match self.op {
            AtomicOp::Extended { size, .. } => size as u32,
            _ => 8,
        }
    }
}

/// The host refuses. It records the reason itself; the peer gets only the kind of NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused by the host")]
pub struct Denied;

/// Keys, rights, receives and atomics of the user. Methods that check have no effect.
pub trait Host {
    /// Whether the connection grants its peer this kind of request at all.
    fn allows(&self, need: Need) -> bool;

    /// The receive that the next message will consume, `None` if there is none.
    ///
    /// # Errors
    /// The receive queue is broken: the peer gets a remote operational error.
    fn receive(&mut self) -> Result<Option<Receive>, Denied>;

    /// The receive just returned by [`receive`](Self::receive) is consumed.
    fn take_receive(&mut self, id: u64);

    /// Whether `len` bytes at `offset` of a receive may be written; called for every piece of a
    /// message.
    ///
    /// # Errors
    /// The receive's own memory forbids it: a remote operational error.
    fn check_receive(&mut self, id: u64, offset: u32, len: u32) -> Result<(), Denied>;

    /// Whether the peer may touch this range; called for a whole message when it begins, and
    /// again for every piece of it just before the piece is written or read.
    ///
    /// # Errors
    /// Key, bounds or rights forbid it: a remote access error.
    fn check_rkey(&mut self, rkey: Rkey, va: u64, len: u32, need: Need) -> Result<(), Denied>;

    /// Whether the peer may invalidate this key.
    ///
    /// # Errors
    /// It may not: the connection fails without an answer.
    fn check_invalidate(&mut self, rkey: Rkey) -> Result<(), Denied>;

    /// Does an atomic and returns what the memory held. Everything placed before it must be in
    /// memory by then. `None`: not yet, since that takes time. Then the packet counts as not
    /// arrived, and is to be handled again, before any later one, when there is an answer.
    ///
    /// # Errors
    /// The memory failed: a remote operational error.
    fn atomic(&mut self, atomic: &Atomic) -> Result<Option<u64>, Denied>;

    /// Receives posted and not taken, which are sent to the peer as credits. `None` sends no
    /// credits: the receives are shared, or not counted.
    fn receives_left(&self) -> Option<u32> {
        None
    }
}
