//! Errors in bytes that arrived, and in values that were to be sent.

use core::fmt;

use crate::{HeaderSet, Opcode, PayloadError, Pkey};

/// A header, or the trailer, of a RoCEv2 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderName {
    /// IPv4 header, 20 bytes.
    Ipv4,
    /// IPv6 header, 40 bytes.
    Ipv6,
    /// UDP header, 8 bytes.
    Udp,
    /// Base transport header, 12 bytes.
    Bth,
    /// RDMA extended transport header, 16 bytes.
    Reth,
    /// Datagram extended transport header, 8 bytes.
    Deth,
    /// ACK extended transport header, 4 bytes.
    Aeth,
    /// Atomic extended transport header, 28 bytes.
    AtomicEth,
    /// Atomic ACK extended transport header, 8 bytes.
    AtomicAckEth,
    /// Immediate data, 4 bytes.
    ImmDt,
    /// Invalidate extended transport header, 4 bytes.
    Ieth,
    /// Invariant CRC, the last 4 bytes.
    Icrc,
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeaderName::Ipv4 => "IPv4",
            HeaderName::Ipv6 => "IPv6",
            HeaderName::Udp => "UDP",
            HeaderName::Bth => "BTH",
            HeaderName::Reth => "RETH",
            HeaderName::Deth => "DETH",
            HeaderName::Aeth => "AETH",
            HeaderName::AtomicEth => "AtomicETH",
            HeaderName::AtomicAckEth => "AtomicAckETH",
            HeaderName::ImmDt => "ImmDt",
            HeaderName::Ieth => "IETH",
            HeaderName::Icrc => "ICRC",
        })
    }
}

/// A field that is sent as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservedField {
    /// The six bits after FECN and BECN in the BTH (`resv6a`).
    Bth6,
    /// The seven bits after AckReq in the BTH (`resv7`).
    Bth7,
    /// The bytes that pad the payload to a multiple of four.
    Pad,
}

impl fmt::Display for ReservedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReservedField::Bth6 => "BTH resv6a",
            ReservedField::Bth7 => "BTH resv7",
            ReservedField::Pad => "pad bytes",
        })
    }
}

/// Why bytes are not a RoCEv2 packet that this end may look at. All of these mean: discard in
/// silence. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The buffer ends inside a header.
    #[error("{header} needs {need} bytes, {have} are left")]
    Truncated {
        /// The header that does not fit.
        header: HeaderName,
        /// Its length.
        need: usize,
        /// Bytes that the buffer has at that place.
        have: usize,
    },
    /// The first four bits of the packet are neither 4 nor 6, or not what the view was made for.
    #[error("IP version {found}, expected 4 or 6")]
    IpVersion {
        /// The version field.
        found: u8,
    },
    /// IPv4 options; RoCEv2 has none.
    #[error("IPv4 header of {found} words, expected 5")]
    Ipv4HeaderWords {
        /// The IHL field, in units of 4 bytes.
        found: u8,
    },
    /// A fragment, or the reserved flag is set.
    #[error("IPv4 flags and fragment offset {found:#06x}, expected 0 or 0x4000 (don't fragment)")]
    Ipv4Fragment {
        /// The flags and offset field.
        found: u16,
    },
    /// The IPv4 header checksum is wrong.
    #[error("IPv4 header checksum {found:#06x}, expected {expected:#06x}")]
    Ipv4Checksum {
        /// The field.
        found: u16,
        /// The value that the other fields require.
        expected: u16,
    },
    /// The IP payload is not UDP.
    #[error("IP protocol {found}, expected 17 (UDP)")]
    Protocol {
        /// The protocol or next-header field.
        found: u8,
    },
    /// A length field contradicts the bytes that are there.
    #[error("{header} length field {found}, expected {expected}")]
    Length {
        /// The header with the field.
        header: HeaderName,
        /// The field.
        found: usize,
        /// The number of bytes there are.
        expected: usize,
    },
    /// Not for RoCEv2.
    #[error("UDP destination port {found}, expected 4791")]
    Port {
        /// The destination port.
        found: u16,
    },
    /// Bytes covered by the ICRC were changed on the way.
    #[error("ICRC {found:#010x}, expected {expected:#010x}")]
    Icrc {
        /// The last four bytes, as the CRC-32 value they encode.
        found: u32,
        /// The CRC-32 of what arrived.
        expected: u32,
    },
    /// Not a known operation of the reliable connection service. Opcodes 0x15 and 0x18 to 0x1f are
    /// reserved there and deserve a NAK; the rest belongs to other services.
    #[error("opcode {found:#04x} is not one of reliable connection")]
    Opcode {
        /// The opcode byte.
        found: u8,
    },
    /// The transport header version is not 0.
    #[error("transport header version {found}, expected 0")]
    Version {
        /// The TVer field.
        found: u8,
    },
    /// Another partition.
    #[error("partition key {found}, which {expected} does not admit")]
    Pkey {
        /// The field.
        found: Pkey,
        /// The key of this end.
        expected: Pkey,
    },
    /// Payload and pad together are not a multiple of four bytes.
    #[error("payload with pad is {found} bytes, expected a multiple of 4")]
    Alignment {
        /// Their length.
        found: usize,
    },
    /// More pad than payload.
    #[error("pad count {pad} exceeds the {have} bytes after the headers")]
    Pad {
        /// The pad count, 0 to 3.
        pad: u8,
        /// Bytes after the headers.
        have: usize,
    },
    /// A reserved field is not zero; reported only under [`crate::Checks::STRICT`].
    #[error("{field} is {found:#x}, expected 0")]
    Reserved {
        /// The field.
        field: ReservedField,
        /// Its value.
        found: u32,
    },
}

/// Why a value cannot become bytes. Always the caller's mistake; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer has another length than the packet.
    #[error("buffer of {have} bytes, expected exactly {need}")]
    Buffer {
        /// Length of the packet.
        need: usize,
        /// Length of the buffer.
        have: usize,
    },
    /// The extension headers are not those of the opcode.
    #[error("{opcode} carries {expected}, got {found}")]
    Headers {
        /// The opcode.
        opcode: Opcode,
        /// The headers that the value has.
        found: HeaderSet,
        /// The headers that the opcode requires.
        expected: HeaderSet,
    },
    /// No path MTU permits a payload of this length with this opcode.
    #[error("{opcode}: {cause}")]
    Payload {
        /// The opcode.
        opcode: Opcode,
        /// The reason.
        cause: PayloadError,
    },
}
