//! Frame headers as bytes and as values. Every field is little endian.

use super::error::PeerError;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Bytes of a frame header.
pub const HEADER: usize = 64;

/// The first byte of each header, so that a stream that lost its place is noticed at once.
const MARK: u8 = 0xd7;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes, Immutable, KnownLayout)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of a two-sided message.
    Message = 1,
    /// Bytes of a one-sided write.
    Write = 2,
    /// Asks for bytes of a registered region. No payload.
    ReadRequest = 3,
    /// Bytes that were asked for.
    ReadReply = 4,
    /// The result of a write. No payload.
    WriteDone = 5,
    /// The refusal of a read. No payload.
    ReadRefused = 6,
    /// A notification.
    Notification = 7,
    /// Carries `posted` and `credit` when no other frame does. No payload.
    Update = 8,
    /// The last frame of a socket; `status` says whether the sender has finished or has found a
    /// fault. No payload.
    Close = 9,
}

impl Kind {
    /// Whether payload follows.
    pub fn has_payload(self) -> bool {
        matches!(self, Self::Message | Self::Write | Self::ReadReply | Self::Notification)
    }
}

/// A frame header. Fields without a meaning for a kind are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its kind.
    pub kind: Kind,
    /// Whether the message is charged to the receiver's window ([`Kind::Message`]).
    pub eager: bool,
    /// The socket on which the payload travels: the one that carries this header, or another one if
    /// headers and payload are separate.
    pub socket: u16,
    /// Bytes of payload.
    pub len: u32,
    /// Number of the message, write, read or notification; each kind and direction counts from 0.
    pub id: u64,
    /// Where the payload begins in the transfer, bytes.
    pub offset: u64,
    /// Bytes of the whole transfer.
    pub total: u64,
    /// First address of the transfer in the remote region ([`Kind::Write`], [`Kind::ReadRequest`]);
    /// how many writes come before a notification ([`Kind::Notification`]).
    pub addr: u64,
    /// Key of the remote region ([`Kind::Write`], [`Kind::ReadRequest`]).
    pub key: u32,
    /// 0, or a refusal ([`Kind::WriteDone`], [`Kind::ReadRefused`], [`Kind::ReadReply`]); the reason
    /// of a goodbye ([`Kind::Close`]).
    pub status: u32,
    /// Receives posted since the link began, as far as they are announced.
    pub posted: u64,
    /// Bytes of the window given back since the link began.
    pub credit: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    mark: u8,
    kind: u8,
    socket: U16,
    len: U32,
    id: U64,
    offset: U64,
    total: U64,
    addr: U64,
    key: U32,
    status: U32,
    posted: U64,
    credit: U64,
}

const _: () = assert!(size_of::<Raw>() == HEADER);

/// Bit of `kind` that stands for [`Header::eager`].
const EAGER: u8 = 0x80;

impl Header {
    /// A header with nothing but a kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            eager: false,
            socket: 0,
            len: 0,
            id: 0,
            offset: 0,
            total: 0,
            addr: 0,
            key: 0,
            status: 0,
            posted: 0,
            credit: 0,
        }
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; HEADER] {
        let raw = Raw {
            mark: MARK,
            kind: self.kind as u8 | if self.eager { EAGER } else { 0 },
            socket: self.socket.into(),
            len: self.len.into(),
            id: self.id.into(),
            offset: self.offset.into(),
            total: self.total.into(),
            addr: self.addr.into(),
            key: self.key.into(),
            status: self.status.into(),
            posted: self.posted.into(),
            credit: self.credit.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The bytes are not a header, or a frame announces payload whose kind has none.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, PeerError> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        if raw.mark != MARK {
            return Err(PeerError::NotAHeader { first: raw.mark });
        }
        let eager = raw.kind & EAGER != 0;
        let kind = Kind::try_read_from_bytes(&[raw.kind & !EAGER])
            .ok()
            .filter(|kind| !eager || *kind == Kind::Message)
            .ok_or(PeerError::UnknownKind { kind: raw.kind })?;
        let len = raw.len.get();
        if len != 0 && !kind.has_payload() {
            return Err(PeerError::UnexpectedPayload { kind, len });
        }
        Ok(Self {
            kind,
            eager,
            socket: raw.socket.get(),
            len,
            id: raw.id.get(),
            offset: raw.offset.get(),
            total: raw.total.get(),
            addr: raw.addr.get(),
            key: raw.key.get(),
            status: raw.status.get(),
            posted: raw.posted.get(),
            credit: raw.credit.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_these_bytes() {
        let header = Header {
            kind: Kind::Message,
            eager: true,
            socket: 0x0102,
            len: 0x0304_0506,
            id: 7,
            offset: 8,
            total: 9,
            addr: 10,
            key: 11,
            status: 12,
            posted: 13,
            credit: 14,
        };
        let mut expected = vec![0xd7, 0x81, 2, 1, 6, 5, 4, 3];
        for long in [7u64, 8, 9, 10] {
            expected.extend(long.to_le_bytes());
        }
        expected.extend([11, 0, 0, 0, 12, 0, 0, 0]);
        expected.extend(13u64.to_le_bytes());
        expected.extend(14u64.to_le_bytes());
        assert_eq!(header.encode().to_vec(), expected);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let good = Header::new(Kind::Update).encode();
        let with = |at: usize, byte| {
            let mut bytes = good;
            bytes[at] = byte;
            Header::decode(&bytes)
        };
        assert_eq!(with(0, 0x16), Err(PeerError::NotAHeader { first: 0x16 }));
        for kind in [0, 10, 0x7f, 0x82, 0x87] {
            assert_eq!(with(1, kind), Err(PeerError::UnknownKind { kind }));
        }
        let refused = PeerError::UnexpectedPayload { kind: Kind::Update, len: 1 };
        assert_eq!(with(4, 1), Err(refused));
    }
}
