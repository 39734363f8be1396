//! Packet numbers of send WQEs, which the poster writes into a table behind the send queue, so that the
//! device can find the WQE of a packet that was lost. There are three forms of entries.

use warpverbs_rdma::Mtu;
use zerocopy::byteorder::{LE, U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes, Unaligned};

/// Packet numbers have 24 bits.
const PSN: u32 = 0xff_ffff;

warpverbs_layout::layout! {
    /// Entry before chip 57500.
    pub struct PsnEntry[8]: Default, PartialEq, Eq, Unaligned {
        /// First packet number in bits 23..0; an opcode in 31..24, which differs between versions of the
        /// library and which no device can look at.
        pub first: U32<LE>,
        /// Next WQE's first packet number in bits 23..0; zero above.
        pub next: U32<LE>,
    }

    /// Entry of chips from 57500 on, without MSN table.
    pub struct PsnExtEntry[16]: Default, PartialEq, Eq, Unaligned {
        /// As in [`PsnEntry`].
        pub first: U32<LE>,
        /// As in [`PsnEntry`].
        pub next: U32<LE>,
        /// Where the WQE begins: in slots by early versions of the library, in the ring's unit by later
        /// ones.
        pub start: U16<LE>,
        /// Zero.
        pub reserved: [u8; 6],
    }

    /// Entry of an MSN table, as of chip 57608: [`Msn`].
    pub struct MsnEntry[8]: Default, PartialEq, Eq, Unaligned {
        /// See [`Msn`].
        pub word: U64<LE>,
    }

    /// The word of an [`MsnEntry`].
    pub word Msn[raw: u64] {
        /// First packet number.
        first: u32 = 0..24,
        /// Next WQE's first packet number.
        next: u32 = 24..48,
        /// Where the WQE begins, in the ring's unit.
        start: u16 = 48..64,
    }
}

/// The form of a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// [`PsnEntry`].
    Psn,
    /// [`PsnExtEntry`].
    PsnExt,
    /// [`MsnEntry`].
    Msn,
}

impl Table {
    /// Bytes of an entry.
    pub const fn entry(self) -> usize {
        match self {
            Self::Psn => size_of::<PsnEntry>(),
            Self::PsnExt => size_of::<PsnExtEntry>(),
            Self::Msn => size_of::<MsnEntry>(),
        }
    }
}

/// The packet numbers of a send WQE, 24 bits each, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// The first.
    pub first: u32,
    /// The first of the next WQE.
    pub next: u32,
    /// Where the WQE begins, modulo the ring; `None` in tables that do not tell, or not reliably.
    pub start: Option<u16>,
}

/// Why an entry of the table does not fit its WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketsViolation {
    /// The bytes are not an entry.
    #[error("entry of {available} bytes, expected {expected}")]
    Size {
        /// Bytes given.
        available: usize,
        /// Bytes of an entry.
        expected: usize,
    },
    /// The first packet number is not the connection's.
    #[error(
        "entry.first is {value:#08x}, expected {expected:#08x}, the connection's next packet number"
    )]
    First {
        /// In the entry.
        value: u32,
        /// Of the connection.
        expected: u32,
    },
    /// The WQE has another number of packets.
    #[error("entry.next is {value:#08x}, expected {expected:#08x}: {packets} packets")]
    Next {
        /// In the entry.
        value: u32,
        /// By the length and the path MTU.
        expected: u32,
        /// Packets of the WQE.
        packets: u32,
    },
    /// The WQE begins elsewhere.
    #[error("entry.start is {value}, expected {expected}, the WQE's place in the ring")]
    Start {
        /// In the entry.
        value: u16,
        /// Of the WQE.
        expected: u16,
    },
}

impl PacketsViolation {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Size { .. } => "bytes",
            Self::First { .. } => "entry.first",
            Self::Next { .. } => "entry.next",
            Self::Start { .. } => "entry.start",
        }
    }
}

impl Packets {
    /// Of a WQE that begins at `start` and carries `len` bytes either way: a READ takes the packets of
    /// its response, and an atomic or an empty message takes one.
    pub const fn of(first: u32, len: u32, mtu: Mtu, start: u16) -> Self {
        let next = first.wrapping_add(mtu.packets(len)) & PSN;
        Self { first: first & PSN, next, start: Some(start) }
    }

    /// Decodes an entry, whose opcode and flags are not looked at.
    pub fn read(table: Table, entry: &[u8]) -> Result<Self, PacketsViolation> {
        let size = PacketsViolation::Size { available: entry.len(), expected: table.entry() };
        match table {
            Table::Psn => {
                let entry = PsnEntry::ref_from_bytes(entry).map_err(|_| size)?;
                let (first, next) = (entry.first.get() & PSN, entry.next.get() & PSN);
                Ok(Self { first, next, start: None })
            }
            Table::PsnExt => {
                let entry = PsnExtEntry::ref_from_bytes(entry).map_err(|_| size)?;
                let (first, next) = (entry.first.get() & PSN, entry.next.get() & PSN);
                Ok(Self { first, next, start: None })
            }
            Table::Msn => {
                let entry = MsnEntry::ref_from_bytes(entry).map_err(|_| size)?;
                let word = Msn(entry.word.get());
                Ok(Self { first: word.first(), next: word.next(), start: Some(word.start()) })
            }
        }
    }

    /// Writes an entry; `opcode` goes where the form has room for it.
    pub fn write(self, table: Table, opcode: u8, entry: &mut [u8]) -> Result<(), PacketsViolation> {
        let (available, expected) = (entry.len(), table.entry());
        if available != expected {
            return Err(PacketsViolation::Size { available, expected });
        }
        let first = (self.first & PSN | u32::from(opcode) << 24).into();
        let next = (self.next & PSN).into();
        let start = self.start.unwrap_or(0);
        let msn = Msn::new(self.first & PSN, self.next & PSN, start);
        match table {
            Table::Psn => entry.copy_from_slice(PsnEntry { first, next }.as_bytes()),
            Table::PsnExt => {
                let start = start.into();
                let ext = PsnExtEntry { first, next, start, reserved: [0; 6] };
                entry.copy_from_slice(ext.as_bytes());
            }
            Table::Msn => entry.copy_from_slice(MsnEntry { word: msn.0.into() }.as_bytes()),
        }
        Ok(())
    }

    /// Compares what an entry says with what its connection expects.
    pub const fn check(self, expected: Self) -> Result<(), PacketsViolation> {
        if self.first != expected.first {
            let (value, expected) = (self.first, expected.first);
            return Err(PacketsViolation::First { value, expected });
        }
        if self.next != expected.next {
            let packets = expected.next.wrapping_sub(expected.first) & PSN;
            let (value, expected) = (self.next, expected.next);
            return Err(PacketsViolation::Next { value, expected, packets });
        }
        match (self.start, expected.start) {
            (Some(value), Some(expected)) if value != expected => {
                Err(PacketsViolation::Start { value, expected })
            }
            _ => Ok(()),
        }
    }
}
