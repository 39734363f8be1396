//! The handshake: one message of 64 bytes each way on every socket, little endian.
//!
//! The connecting end sends [`Stage::First`] with the listener's secret on socket 0, learns a token
//! from the answer, and sends [`Stage::Join`] with it on each further socket. The answer is
//! [`Stage::Accepted`] or [`Stage::Refused`].

use super::agreed::{Agreed, Framing, LEAST_CHUNK, LEAST_WINDOW, MOST_CHUNK, MOST_SOCKETS};
use std::fmt;
use thiserror::Error;
use warpverbs_meet::HelloError;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Bytes of a handshake message.
pub const HELLO: usize = 64;

/// First bytes of a handshake message. A text conversion on the way would change the line end.
const MAGIC: &[u8; 8] = b"WVDEV\r\n\x1a";

/// Version of handshake and frames. Ends of different versions refuse each other.
pub const VERSION: u16 = 1;

/// How an end receives payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes, Immutable, KnownLayout)]
#[repr(u8)]
pub enum ReceiveWay {
    /// The NIC writes payload into device memory.
    DeviceMemory = 1,
    /// The kernel copies: straight into host memory, or into pinned host memory from which a copy
    /// engine fetches it.
    Host = 3,
}

impl ReceiveWay {
    /// This way and the one that works everywhere, as bits.
    fn ways(self) -> u8 {
        1 << (self as u8) | 1 << (Self::Host as u8)
    }

    fn framing(self) -> Framing {
        match self {
            Self::DeviceMemory => Framing::Separate,
            Self::Host => Framing::Inline,
        }
    }
}

impl fmt::Display for ReceiveWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeviceMemory => "device memory",
            Self::Host => "host memory",
        })
    }
}

/// The kind of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first socket of a new link.
    First,
    /// A further socket of a link.
    Join,
    /// The socket belongs to the link.
    Accepted,
    /// It does not.
    Refused(NotAccepted),
}

/// Why a socket was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, TryFromBytes, Immutable, KnownLayout)]
#[repr(u8)]
pub enum NotAccepted {
    /// The versions differ.
    #[error("the versions differ")]
    Version = 1,
    /// The message breaks the rules of the handshake.
    #[error("the handshake message is malformed")]
    Malformed = 2,
    /// It is neither the listener's secret nor the token of a link that is being set up.
    #[error("neither the listener's secret nor a link being set up has this token")]
    UnknownToken = 3,
    /// The link has this socket.
    #[error("the link has a socket of this number")]
    Duplicate = 4,
    /// Too many links are being set up.
    #[error("too many links are being set up")]
    Busy = 5,
}

/// Errors of a handshake.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer is another program, or another version.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// A field is out of range.
    #[error("{field} is {value}, expected {expected}")]
    BadField {
        /// The field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// The allowed values.
        expected: &'static str,
    },
    /// The message does not belong here.
    #[error("handshake message {found:?}, expected {expected}")]
    Unexpected {
        /// The message.
        found: Stage,
        /// The message expected.
        expected: &'static str,
    },
    /// A first socket without the listener's secret, or a further socket of no link.
    #[error("neither the listener's secret nor a link being set up has the token of this socket")]
    UnknownToken,
    /// A socket whose number is taken.
    #[error("socket {socket} is there twice")]
    Duplicate {
        /// Its number.
        socket: u16,
    },
    /// Too many links are being set up.
    #[error("{most} links are being set up")]
    Busy {
        /// Links at most.
        most: usize,
    },
    /// The peer refused.
    #[error("the peer refused: {0}")]
    Refused(NotAccepted),
}

impl HandshakeError {
    /// The reason that is sent to the peer.
    pub fn reason(&self) -> NotAccepted {
        match self {
            Self::Hello(HelloError::Version { .. }) => NotAccepted::Version,
            Self::UnknownToken => NotAccepted::UnknownToken,
            Self::Duplicate { .. } => NotAccepted::Duplicate,
            Self::Busy { .. } => NotAccepted::Busy,
            _ => NotAccepted::Malformed,
        }
    }
}

/// The offer of one end, as it travels in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Sockets wanted.
    pub sockets: u16,
    /// Bytes of payload in a frame at most.
    pub chunk: u32,
    /// Writes, and reads, under way at most.
    pub open: u32,
    /// Bytes that the peer may have unconsumed here.
    pub window: u64,
    /// How this end receives.
    pub receive: ReceiveWay,
}

impl Default for Offer {
    fn default() -> Self {
        let receive = ReceiveWay::Host;
        Self { sockets: 2, chunk: 1 << 20, open: 1024, window: 16 << 20, receive }
    }
}

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its kind.
    pub stage: Stage,
    /// Number of the socket.
    pub socket: u16,
    /// Names the link; the listener's secret in [`Stage::First`].
    pub token: [u8; 16],
    /// The offer of its sender.
    pub offer: Offer,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U16,
    stage: u8,
    reason: u8,
    socket: U16,
    sockets: U16,
    chunk: U32,
    open: U32,
    window: U64,
    /// The ways in which this end could receive, as bits.
    can: u8,
    receive: u8,
    zero: [u8; 14],
    token: [u8; 16],
}

const _: () = assert!(size_of::<Raw>() == HELLO);

impl Hello {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; HELLO] {
        let (stage, reason) = match self.stage {
            Stage::First => (1, 0),
            Stage::Join => (2, 0),
            Stage::Accepted => (3, 0),
            Stage::Refused(reason) => (4, reason as u8),
        };
        let raw = Raw {
            magic: *MAGIC,
            version: VERSION.into(),
            stage,
            reason,
            socket: self.socket.into(),
            sockets: self.offer.sockets.into(),
            chunk: self.offer.chunk.into(),
            open: self.offer.open.into(),
            window: self.offer.window.into(),
            can: self.offer.receive.ways(),
            receive: self.offer.receive as u8,
            zero: [0; 14],
            token: self.token,
        };
        zerocopy::transmute!(raw)
    }

    /// Reads and checks a handshake message.
    ///
    /// # Errors
    /// Another protocol, another version, a field out of range.
    pub fn decode(bytes: &[u8; HELLO]) -> Result<Self, HandshakeError> {
        warpverbs_meet::Hello { magic: MAGIC, version: VERSION }.check(bytes)?;
        let raw: Raw = zerocopy::transmute!(*bytes);
        let stage = match (raw.stage, raw.reason) {
            (1, 0) => Stage::First,
            (2, 0) => Stage::Join,
            (3, 0) => Stage::Accepted,
            (4, reason) => Stage::Refused(
                NotAccepted::try_read_from_bytes(&[reason])
                    .map_err(|_| bad("the reason of a refusal", reason.into(), "1 to 5"))?,
            ),
            (stage, _) => return Err(bad("the stage", stage.into(), "1 to 4")),
        };
        let offer = Offer {
            sockets: raw.sockets.get(),
            chunk: raw.chunk.get(),
            open: raw.open.get(),
            window: raw.window.get(),
            receive: ReceiveWay::try_read_from_bytes(&[raw.receive])
                .map_err(|_| bad("the receive way", raw.receive.into(), "1 or 3"))?,
        };
        if raw.can != offer.receive.ways() {
            let expected = "the receive way and host memory";
            return Err(bad("the set of receive ways", raw.can.into(), expected));
        }
        let hello = Self { stage, socket: raw.socket.get(), token: raw.token, offer };
        // A refusal says nothing more.
        if !matches!(stage, Stage::Refused(_)) {
            hello.check()?;
        }
        Ok(hello)
    }

    fn check(&self) -> Result<(), HandshakeError> {
        let Offer { sockets, chunk, open, window, receive } = self.offer;
        let least = if receive.framing() == Framing::Separate { 2 } else { 1 };
        let fields = [
            (
                "the number of sockets",
                sockets.into(),
                (least..=MOST_SOCKETS).contains(&sockets),
                "1 to 64, at least 2 for device memory",
            ),
            (
                "the socket",
                self.socket.into(),
                self.socket < sockets,
                "less than the number of sockets",
            ),
            (
                "the chunk",
                chunk.into(),
                (LEAST_CHUNK..=MOST_CHUNK).contains(&chunk),
                "64 KiB to 64 MiB",
            ),
            ("operations under way", open.into(), (1..=1 << 16).contains(&open), "1 to 65536"),
            ("the window", window, (LEAST_WINDOW..=1 << 40).contains(&window), "257 KiB to 1 TiB"),
        ];
        match fields.into_iter().find(|(_, _, right, _)| !right) {
            Some((field, value, _, expected)) => Err(bad(field, value, expected)),
            None => Ok(()),
        }
    }
}

pub(super) fn bad(field: &'static str, value: u64, expected: &'static str) -> HandshakeError {
    HandshakeError::BadField { field, value, expected }
}

impl Offer {
    /// The agreement of this end's offer with that of the peer.
    pub fn agree(&self, peer: &Self) -> Agreed {
        let (receive, send) = (self.receive.framing(), peer.receive.framing());
        // Separate headers need a socket of their own.
        let least = if [receive, send].contains(&Framing::Separate) { 2 } else { 1 };
        Agreed {
            sockets: self.sockets.min(peer.sockets).max(least),
            chunk: self.chunk.min(peer.chunk),
            open: self.open.min(peer.open),
            window: self.window,
            peer_window: peer.window,
            receive,
            send,
        }
    }
}

impl Hello {
    /// The answer to a message of the connecting end.
    ///
    /// # Errors
    /// The bytes are not an answer, or the answer is a refusal.
    pub fn decode_answer(bytes: &[u8; HELLO]) -> Result<Self, HandshakeError> {
        let hello = Self::decode(bytes)?;
        match hello.stage {
            Stage::Accepted => Ok(hello),
            Stage::Refused(reason) => Err(HandshakeError::Refused(reason)),
            found => Err(HandshakeError::Unexpected { found, expected: "an answer" }),
        }
    }
}
