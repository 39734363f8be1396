//! Base transport header, 12 bytes (vol. 1, 9.2).

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;
use crate::{Opcode, ParseError, Pkey, Psn, Qpn, U24};

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

/// The layout. Bits that share a byte are read through methods.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Transport service (3 bits) and operation (5).
    pub opcode: u8,
    /// Solicited event, migration state, pad count (2 bits), transport version (4).
    pub flags: u8,
    /// Partition key.
    pub pkey: U16,
    /// FECN, BECN and six reserved bits. Switches may change it: not covered by the ICRC.
    pub resv8a: u8,
    /// Destination queue pair.
    pub dest_qpn: U24,
    /// Acknowledge request and seven reserved bits.
    pub ack_resv7: u8,
    /// Packet sequence number.
    pub psn: U24,
}

layout!(Header, Bth, 12);

impl Header {
    /// The pad count, 0 to 3.
    #[inline]
    pub const fn pad_count(&self) -> u8 {
        self.flags >> 4 & 3
    }

    /// The transport header version.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.flags & 0xf
    }

    /// The six reserved bits behind FECN and BECN.
    pub const fn resv6a(&self) -> u8 {
        self.resv8a & 0x3f
    }

    /// The seven reserved bits behind the acknowledge request.
    pub const fn resv7(&self) -> u8 {
        self.ack_resv7 & 0x7f
    }
}

/// The value. Pad count and version are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The packet's opcode.
    pub opcode: Opcode,
    /// The receiver should be woken when this message completes.
    pub solicited: bool,
    /// Migration state "migrated", which is how endpoints without path migration send.
    pub migrated: bool,
    /// Partition.
    pub pkey: Pkey,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// The queue pair it is for.
    pub dest_qpn: Qpn,
    /// The responder shall acknowledge this packet.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Repr {
    /// A header with the default partition, migrated, and every other flag clear.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: Qpn, psn: Psn) -> Repr {
        Repr {
            opcode,
            solicited: false,
            migrated: true,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_request: false,
            psn,
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// A transport version other than 0, or an opcode that is not in the table.
    #[inline]
    pub fn parse(header: &Header) -> Result<Repr, ParseError> {
        if header.version() != 0 {
            return Err(ParseError::Version { found: header.version() });
        }
        let opcode =
            Opcode::from_byte(header.opcode).ok_or(ParseError::Opcode { found: header.opcode })?;
        // As words, each loaded at once; the cast to 24 bits drops the byte before the number.
        let [_, qpn, psn]: [U32; 3] = zerocopy::transmute!(*header);
        Ok(Repr {
            opcode,
            solicited: header.flags & SOLICITED != 0,
            migrated: header.flags & MIGRATED != 0,
            pkey: Pkey(header.pkey.get()),
            fecn: header.resv8a & FECN != 0,
            becn: header.resv8a & BECN != 0,
            dest_qpn: Qpn::from_low_bits(qpn.get()),
            ack_request: header.ack_resv7 & ACK_REQUEST != 0,
            psn: Psn::from_low_bits(psn.get()),
        })
    }

    /// Writes a header for a payload of `payload_len` bytes.
    #[inline]
    pub fn emit(&self, payload_len: usize, out: &mut Header) {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let pad = crate::payload::pad_count(payload_len);
        let flags = bit(self.solicited, SOLICITED) | bit(self.migrated, MIGRATED) | pad << 4;
        let congestion = bit(self.fecn, FECN) | bit(self.becn, BECN);
        let top = |byte: u8| u32::from(byte) << 24;
        // As words, each stored at once.
        let words = [
            top(self.opcode.byte()) | u32::from(flags) << 16 | u32::from(self.pkey.0),
            top(congestion) | self.dest_qpn.get(),
            top(bit(self.ack_request, ACK_REQUEST)) | self.psn.get(),
        ];
        *out = zerocopy::transmute!(words.map(U32::new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    const BYTES: [u8; 12] =
        [0x0a, 0xb0, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef];

    fn repr() -> Repr {
        Repr {
            opcode: Opcode::WriteOnly,
            solicited: true,
            migrated: false,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: true,
            dest_qpn: Qpn::from_low_bits(0x12_3456),
            ack_request: true,
            psn: Psn::from_low_bits(0xab_cdef),
        }
    }

    #[test]
    fn golden_both_ways() {
        let (header, _) = Header::view(&BYTES).unwrap();
        assert_eq!((Repr::parse(header), header.pad_count()), (Ok(repr()), 3));
        let mut out = [0xa5; 12];
        repr().emit(5, Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn every_flag_has_its_own_bit() {
        let plain =
            Repr { migrated: false, ..Repr::new(Opcode::SendOnly, Qpn::default(), Psn::default()) };
        let cases = [
            (Repr { solicited: true, ..plain }, 1, 0x80),
            (Repr { migrated: true, ..plain }, 1, 0x40),
            (Repr { fecn: true, ..plain }, 4, 0x80),
            (Repr { becn: true, ..plain }, 4, 0x40),
            (Repr { ack_request: true, ..plain }, 8, 0x80),
        ];
        for (repr, at, bit) in cases {
            let mut expected = [0x04, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
            expected[at] = bit;
            let mut out = [0xa5; 12];
            repr.emit(0, Header::view_mut(&mut out).unwrap().0);
            assert_eq!(out, expected);
            assert_eq!(Repr::parse(Header::view(&out).unwrap().0), Ok(repr));
        }
    }

    #[test]
    fn each_bad_field_is_named() {
        let (header, _) = Header::view(&BYTES).unwrap();
        let newer = Header { flags: 0x01, ..*header };
        assert_eq!(Repr::parse(&newer), Err(ParseError::Version { found: 1 }));
        for found in [0x15, 0x18, 0x66, 0x81] {
            let other = Header { opcode: found, ..*header };
            assert_eq!(Repr::parse(&other), Err(ParseError::Opcode { found }));
        }
        let error = ParseError::Truncated { header: crate::HeaderName::Bth, need: 12, have: 11 };
        assert_eq!(Header::view(&BYTES[..11]).unwrap_err(), error);
    }
}
