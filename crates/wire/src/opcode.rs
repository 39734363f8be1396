//! The one table of opcodes of reliable connection and unreliable datagram (vol. 1, table 38
//! "OpCode field"), and two of the range for manufacturers, which only this project understands.

use core::fmt;

use crate::{HeaderName, PayloadRule};

/// The operation that a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// SEND, with or without immediate data or an rkey to invalidate.
    Send,
    /// RDMA WRITE, with or without immediate data.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// ACK or NAK.
    Acknowledge,
    /// Answer to an atomic.
    AtomicAcknowledge,
    /// Compare and swap, of 8 bytes unless it is an extended one.
    CompareSwap,
    /// Fetch and add, likewise.
    FetchAdd,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Begins a message of several packets.
    First,
    /// Neither first nor last.
    Middle,
    /// Ends a message of several packets.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// First or only.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Last or only.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// The extension headers between BTH and payload, in this order. Closed: no opcode has another set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderSet {
    /// None.
    Empty,
    /// ImmDt.
    Imm,
    /// IETH.
    Ieth,
    /// RETH.
    Reth,
    /// RETH, ImmDt.
    RethImm,
    /// AETH.
    Aeth,
    /// AETH, AtomicAckETH.
    AethAtomicAck,
    /// AtomicETH.
    Atomic,
    /// DETH.
    Deth,
    /// DETH, ImmDt.
    DethImm,
}

impl HeaderSet {
    /// The headers, in the order in which they lie in a packet.
    pub const fn headers(self) -> &'static [HeaderName] {
        match self {
            HeaderSet::Empty => &[],
            HeaderSet::Imm => &[HeaderName::ImmDt],
            HeaderSet::Ieth => &[HeaderName::Ieth],
            HeaderSet::Reth => &[HeaderName::Reth],
            HeaderSet::RethImm => &[HeaderName::Reth, HeaderName::ImmDt],
            HeaderSet::Aeth => &[HeaderName::Aeth],
            HeaderSet::AethAtomicAck => &[HeaderName::Aeth, HeaderName::AtomicAckEth],
            HeaderSet::Atomic => &[HeaderName::AtomicEth],
            HeaderSet::Deth => &[HeaderName::Deth],
            HeaderSet::DethImm => &[HeaderName::Deth, HeaderName::ImmDt],
        }
    }

    /// Their length in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        match self {
            HeaderSet::Empty => 0,
            HeaderSet::Imm | HeaderSet::Ieth | HeaderSet::Aeth => 4,
            HeaderSet::Deth => 8,
            HeaderSet::AethAtomicAck | HeaderSet::DethImm => 12,
            HeaderSet::Reth => 16,
            HeaderSet::RethImm => 20,
            HeaderSet::Atomic => 28,
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        matches!(self, HeaderSet::Empty)
    }
}

impl fmt::Display for HeaderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.headers() else {
            return f.write_str("no extension header");
        };
        fmt::Display::fmt(first, f)?;
        rest.iter().try_for_each(|name| write!(f, " + {name}"))
    }
}

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    operation: Operation,
    position: Position,
    headers: HeaderSet,
    payload: PayloadRule,
}

impl Row {
    const ANY: Self = Self {
        name: "",
        operation: Operation::Send,
        position: Position::Only,
        headers: HeaderSet::Empty,
        payload: PayloadRule::Any,
    };
}

macro_rules! opcodes {
    ($($opcode:ident = $byte:literal, $name:literal, $operation:ident, $position:ident,
       $headers:ident, $payload:ident;)*) => {
        /// An opcode of reliable connection or of unreliable datagram.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = $name] $opcode = $byte,)*
        }

        impl Opcode {
            /// Every opcode, in ascending order.
            pub const ALL: &[Opcode] = &[$(Opcode::$opcode),*];

            /// The opcode of a byte, or `None` if it is reserved or of another service.
            #[inline]
            pub const fn from_byte(byte: u8) -> Option<Opcode> {
                match byte {
                    $($byte => Some(Opcode::$opcode),)*
                    _ => None,
                }
            }

            /// The rows of all opcodes at their bytes; any row elsewhere.
            const ROWS: &[Row; 256] = {
                let mut row = Row::ANY;
                let mut rows = [row; 256];
                $(
                    row.name = $name;
                    row.operation = Operation::$operation;
                    row.position = Position::$position;
                    row.headers = HeaderSet::$headers;
                    row.payload = PayloadRule::$payload;
                    rows[$byte] = row;
                )*
                &{ rows }
            };

            #[inline]
            const fn row(self) -> &'static Row {
                &Self::ROWS[self as usize]
            }
        }
    };
}

opcodes! {
    SendFirst          = 0x00, "SEND First", Send, First, Empty, Full;
    SendMiddle         = 0x01, "SEND Middle", Send, Middle, Empty, Full;
    SendLast           = 0x02, "SEND Last", Send, Last, Empty, NonEmpty;
    SendLastImm        = 0x03, "SEND Last with Immediate", Send, Last, Imm, NonEmpty;
    SendOnly           = 0x04, "SEND Only", Send, Only, Empty, Any;
    SendOnlyImm        = 0x05, "SEND Only with Immediate", Send, Only, Imm, Any;
    WriteFirst         = 0x06, "RDMA WRITE First", Write, First, Reth, Full;
    WriteMiddle        = 0x07, "RDMA WRITE Middle", Write, Middle, Empty, Full;
    WriteLast          = 0x08, "RDMA WRITE Last", Write, Last, Empty, NonEmpty;
    WriteLastImm       = 0x09, "RDMA WRITE Last with Immediate", Write, Last, Imm, NonEmpty;
    WriteOnly          = 0x0a, "RDMA WRITE Only", Write, Only, Reth, Any;
    WriteOnlyImm       = 0x0b, "RDMA WRITE Only with Immediate", Write, Only, RethImm, Any;
    ReadRequest        = 0x0c, "RDMA READ Request", ReadRequest, Only, Reth, Absent;
    ReadResponseFirst  = 0x0d, "RDMA READ Response First", ReadResponse, First, Aeth, Full;
    ReadResponseMiddle = 0x0e, "RDMA READ Response Middle", ReadResponse, Middle, Empty, Full;
    ReadResponseLast   = 0x0f, "RDMA READ Response Last", ReadResponse, Last, Aeth, NonEmpty;
    ReadResponseOnly   = 0x10, "RDMA READ Response Only", ReadResponse, Only, Aeth, Any;
    Acknowledge        = 0x11, "Acknowledge", Acknowledge, Only, Aeth, Absent;
    AtomicAcknowledge  = 0x12, "ATOMIC Acknowledge", AtomicAcknowledge, Only, AethAtomicAck, Absent;
    CompareSwap        = 0x13, "CmpSwap", CompareSwap, Only, Atomic, Absent;
    FetchAdd           = 0x14, "FetchAdd", FetchAdd, Only, Atomic, Absent;
    SendLastInvalidate = 0x16, "SEND Last with Invalidate", Send, Last, Ieth, NonEmpty;
    SendOnlyInvalidate = 0x17, "SEND Only with Invalidate", Send, Only, Ieth, Any;
    DatagramSend       = 0x64, "SEND Only (datagram)", Send, Only, Deth, Any;
    DatagramSendImm    = 0x65, "SEND Only with Immediate (datagram)", Send, Only, DethImm, Any;
    ExtendedCompareSwap = 0xd3, "Extended CmpSwap", CompareSwap, Only, Reth, Any;
    ExtendedFetchAdd   = 0xd4, "Extended FetchAdd", FetchAdd, Only, Reth, Any;
}

impl Opcode {
    /// The byte in the BTH.
    #[inline]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Its name in the specification.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The operation that it is part of.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.row().operation
    }

    /// Where in the message it stands.
    #[inline]
    pub const fn position(self) -> Position {
        self.row().position
    }

    /// The extension headers it carries.
    #[inline]
    pub const fn headers(self) -> HeaderSet {
        self.row().headers
    }

    /// How much payload it carries.
    #[inline]
    pub const fn payload(self) -> PayloadRule {
        self.row().payload
    }

    /// Whether it travels from responder to requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// Whether it carries immediate data.
    #[inline]
    pub const fn has_immediate(self) -> bool {
        matches!(self.headers(), HeaderSet::Imm | HeaderSet::RethImm | HeaderSet::DethImm)
    }

    /// Whether it is of the unreliable datagram service; all others are of reliable connection.
    #[inline]
    pub const fn is_datagram(self) -> bool {
        self.byte() >> 5 == 3
    }
}

impl Opcode {
    /// Whether it is of the range for manufacturers: an atomic on 4 or 8 bytes with masks.
    /// `dma_len` is the size of the word; the payload are its operands, big-endian words of that
    /// size: compare, its mask, swap and its mask, or the summand and the boundary of its fields.
    pub const fn is_extended(self) -> bool {
        self.byte() >> 6 == 3
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_map_one_to_one() {
        let known: Vec<u8> = (0..=255).filter(|b| Opcode::from_byte(*b).is_some()).collect();
        let expected: Vec<u8> =
            [0x00..=0x14, 0x16..=0x17, 0x64..=0x65, 0xd3..=0xd4].into_iter().flatten().collect();
        assert_eq!(known, expected);
        for (opcode, byte) in Opcode::ALL.iter().zip(expected) {
            assert_eq!(opcode.byte(), byte);
            assert_eq!(Opcode::from_byte(byte), Some(*opcode));
        }
    }

    /// Rules that tie the columns of the table to each other, stated apart from it.
    #[test]
    fn columns_agree() {
        for &op in Opcode::ALL {
            let name = op.name();
            let position = match op.position() {
                Position::First => "First",
                Position::Middle => "Middle",
                Position::Last => "Last",
                Position::Only => "",
            };
            assert!(name.contains(position), "{name}");
            assert_eq!(op.has_immediate(), name.contains("Immediate"), "{name}");
            assert_eq!(op.is_datagram(), name.contains("datagram"), "{name}");
            assert_eq!(op.is_extended(), name.contains("Extended"), "{name}");
            let deth = op.headers().headers().contains(&HeaderName::Deth);
            assert_eq!(op.is_datagram(), deth, "{name}");
            assert_eq!(op.headers() == HeaderSet::Ieth, name.contains("Invalidate"), "{name}");
            assert_eq!(
                op.is_response(),
                name.contains("Response") || name.contains("Acknowledge"),
                "{name}"
            );
            match op.payload() {
                PayloadRule::Full => {
                    assert!(matches!(op.position(), Position::First | Position::Middle));
                }
                PayloadRule::NonEmpty => assert_eq!(op.position(), Position::Last, "{name}"),
                PayloadRule::Any | PayloadRule::Absent => {
                    assert_eq!(op.position(), Position::Only, "{name}");
                }
            }
            if op.operation() == Operation::Write {
                let reth = op.headers().headers().contains(&HeaderName::Reth);
                assert_eq!(reth, op.position().begins(), "{name}");
            }
            if op.operation() == Operation::ReadResponse {
                let aeth = op.headers().headers().contains(&HeaderName::Aeth);
                assert_eq!(aeth, op.position() != Position::Middle, "{name}");
            }
        }
    }

    #[test]
    fn header_set_length_is_the_sum_of_its_headers() {
        use crate::{Layout, aeth, atomic, deth, ieth, immdt, reth};
        for op in Opcode::ALL {
            let sum: usize = (op.headers().headers().iter())
                .map(|name| match name {
                    HeaderName::Reth => reth::Header::LEN,
                    HeaderName::Aeth => aeth::Header::LEN,
                    HeaderName::Deth => deth::Header::LEN,
                    HeaderName::AtomicEth => atomic::Header::LEN,
                    HeaderName::AtomicAckEth => atomic::AckHeader::LEN,
                    HeaderName::ImmDt => immdt::Header::LEN,
                    HeaderName::Ieth => ieth::Header::LEN,
                    other => panic!("{other} is not an extension header"),
                })
                .sum();
            assert_eq!(op.headers().len(), sum, "{op}");
        }
    }

    #[test]
    fn header_sets_print_in_order() {
        assert_eq!(HeaderSet::Empty.to_string(), "no extension header");
        assert_eq!(HeaderSet::AethAtomicAck.to_string(), "AETH + AtomicAckETH");
    }
}
