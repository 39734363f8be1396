//! Requests of the side that posts, and its peer's replies: plain data, which a connection between
//! two processes carries.

use super::{Shape, Trouble};
use serde::{Deserialize, Serialize};
use warpverbs::transport::{LocalRegion, Received, ReceivedKind, RemoteRegion, Rkey};

/// Raised with every change of [`Request`], [`Reply`] or anything in them.
pub const VERSION: u16 = 2;

/// The longest region that is made for a peer, in bytes.
pub const LONGEST_REGION: u64 = 2 << 20;

/// One thing for a peer to do. Objects have the numbers that were given when they were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as the parameters of the calls they stand for")]
pub enum Request {
    /// The NIC, and where kernels run beside it.
    About,
    /// Zeroed, registered memory; `foreign` in another protection domain than endpoints.
    Region { len: u64, access: u32, foreign: bool },
    /// Bytes into a region, by the CPU.
    Store { region: u32, at: u64, data: Vec<u8> },
    /// Bytes out of a region, by the CPU.
    Load { region: u32, at: u64, len: u64 },
    /// A shared receive queue.
    Queue { depth: u32, sges: u32 },
    /// A receive for a shared queue.
    Offer { queue: u32, to: Vec<Piece> },
    /// An endpoint.
    Endpoint { shape: Shape },
    /// Connects one, to a handle's bytes.
    Connect { endpoint: u32, to: Vec<u8> },
    /// Resets one.
    Reset { endpoint: u32 },
    /// Moves one to the error state.
    Fail { endpoint: u32 },
    /// The health of one.
    Health { endpoint: u32 },
    /// Posts a receive.
    Receive { endpoint: u32, to: Vec<Piece> },
    /// Posts an unsignalled WRITE.
    Write { endpoint: u32, from: Piece, to: Piece },
    /// The same, inline.
    WriteInline { endpoint: u32, data: Vec<u8>, to: Piece },
    /// Waits for all that was posted.
    Quiet { endpoint: u32 },
    /// Takes a message, if need be by waiting for it.
    Arrived { endpoint: u32, wait: bool },
    /// Starts a kernel that takes messages. An earlier one is ended first.
    Take(Take),
    /// Waits for its end.
    Taken,
    /// Lets go of an object.
    Drop { object: u32 },
}

/// The reply to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as the requests' are")]
pub enum Reply {
    /// It is done, and there is nothing more to say.
    Done,
    /// The NIC, and where kernels run beside it.
    About(About),
    /// A region.
    Region { object: u32, addr: u64, lkey: u32, rkey: u32 },
    /// Bytes.
    Data(Vec<u8>),
    /// A shared receive queue.
    Queue { object: u32 },
    /// An endpoint, with its handle's bytes.
    Endpoint { object: u32, handle: Vec<u8> },
    /// The index of the posted work.
    Posted { index: u64 },
    /// The next message, if one has arrived.
    Arrived(Option<Arrival>),
    /// The error of an endpoint, if any.
    Health(Option<String>),
    /// Messages that the kernel took.
    Taken(Taken),
    /// It is not done.
    Trouble(Trouble),
}

/// A NIC, and where kernels run beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Of the transport: `soft` or `verbs`.
    pub provider: String,
    /// The NIC's name.
    pub nic: String,
    /// One line about it.
    pub description: String,
    /// Its identity.
    pub id: [u8; 16],
    /// The device that runs kernels, if any.
    pub gpu: Option<String>,
}

/// A part of memory under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    addr: u64,
    len: u64,
    key: u32,
}

impl From<LocalRegion> for Piece {
    fn from(part: LocalRegion) -> Self {
        Self { addr: part.addr(), len: part.len(), key: part.lkey() }
    }
}

impl From<RemoteRegion> for Piece {
    fn from(part: RemoteRegion) -> Self {
        Self { addr: part.addr(), len: part.len(), key: part.rkey() }
    }
}

impl From<Piece> for LocalRegion {
    fn from(piece: Piece) -> Self {
        Self::new(piece.addr, piece.len, piece.key)
    }
}

impl From<Piece> for RemoteRegion {
    fn from(piece: Piece) -> Self {
        Self::new(piece.addr, piece.len, piece.key)
    }
}

/// [`Received`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    byte_len: u32,
    index: u64,
    solicited: bool,
    kind: ArrivalKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ArrivalKind {
    Send,
    SendImm(u32),
    SendInval(u32),
    WriteImm(u32),
}

impl From<Received> for Arrival {
    fn from(got: Received) -> Self {
        let kind = match got.kind {
            ReceivedKind::Send => ArrivalKind::Send,
            ReceivedKind::SendImm(imm) => ArrivalKind::SendImm(imm),
            ReceivedKind::SendInvalidate(key) => ArrivalKind::SendInval(key.0),
            ReceivedKind::WriteImm(imm) => ArrivalKind::WriteImm(imm),
        };
        Self { byte_len: got.byte_len, index: got.index, solicited: got.solicited, kind }
    }
}

impl From<Arrival> for Received {
    fn from(Arrival { byte_len, index, solicited, kind }: Arrival) -> Self {
        let kind = match kind {
            ArrivalKind::Send => ReceivedKind::Send,
            ArrivalKind::SendImm(imm) => ReceivedKind::SendImm(imm),
            ArrivalKind::SendInval(key) => ReceivedKind::SendInvalidate(Rkey(key)),
            ArrivalKind::WriteImm(imm) => ReceivedKind::WriteImm(imm),
        };
        Self { byte_len, kind, index, solicited }
    }
}

/// Messages that a kernel is to take, each into `room` bytes of a region, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// On this endpoint.
    pub(crate) endpoint: u32,
    /// Into this region, from its first byte on.
    pub(crate) region: u32,
    /// Bytes of a receive.
    pub(crate) room: u32,
    /// Messages.
    pub(crate) count: u32,
    /// Receives that may be open at a time; 0 if others offer them.
    pub(crate) window: u32,
}

/// Messages that a kernel took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The first bad `wv::Status`, 0 if there was none.
    pub(crate) status: u32,
    /// Bytes, immediate and CQE opcode of each message.
    pub(crate) messages: Vec<[u32; 3]>,
}
