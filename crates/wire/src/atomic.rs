//! Atomic extended transport header, 28 bytes, and atomic ACK extended transport header, 8 bytes
//! (vol. 1, 9.3.4 and 9.3.5.3).

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Rkey;
use crate::layout::layout;

/// The layout of the request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Virtual address at the responder.
    pub va: U64,
    /// Remote key.
    pub rkey: U32,
    /// The value to swap in, or to add.
    pub swap_add: U64,
    /// The value to compare with.
    pub compare: U64,
}

layout!(Header, AtomicEth, 28);

/// The value of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Virtual address at the responder; the responder requires a multiple of 8.
    pub va: u64,
    /// Remote key of the region.
    pub rkey: Rkey,
    /// The value to swap in (compare and swap), or to add (fetch and add).
    pub swap_add: u64,
    /// The value to compare with; fetch and add ignores it and sends 0.
    pub compare: u64,
}

impl Repr {
    /// Reads a header; every bit pattern has a meaning.
    pub fn parse(header: &Header) -> Repr {
        Repr {
            va: header.va.get(),
            rkey: Rkey(header.rkey.get()),
            swap_add: header.swap_add.get(),
            compare: header.compare.get(),
        }
    }

    /// Writes a header.
    pub fn emit(&self, out: &mut Header) {
        *out = Header {
            va: U64::new(self.va),
            rkey: U32::new(self.rkey.0),
            swap_add: U64::new(self.swap_add),
            compare: U64::new(self.compare),
        };
    }
}

/// The layout of the answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AckHeader {
    /// The memory's old value.
    pub original: U64,
}

layout!(AckHeader, AtomicAckEth, 8);

/// The value of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRepr {
    /// The memory's old value.
    pub original: u64,
}

impl AckRepr {
    /// Reads a header; every bit pattern has a meaning.
    pub fn parse(header: &AckHeader) -> AckRepr {
        AckRepr { original: header.original.get() }
    }

    /// Writes a header.
    pub fn emit(&self, out: &mut AckHeader) {
        *out = AckHeader { original: U64::new(self.original) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn request_golden_both_ways() {
        let bytes = [
            0, 0, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x98, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7,
            8, 9, 10, 11, 12, 13, 14, 15, 16,
        ];
        let repr = Repr {
            va: 0x7f12_3456_7898,
            rkey: Rkey(0xdead_beef),
            swap_add: 0x0102_0304_0506_0708,
            compare: 0x090a_0b0c_0d0e_0f10,
        };
        assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), repr);
        let mut out = [0xa5; 28];
        repr.emit(Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, bytes);
    }

    #[test]
    fn answer_golden_both_ways() {
        let bytes = [0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88];
        let repr = AckRepr { original: 0xffee_ddcc_bbaa_9988 };
        assert_eq!(AckRepr::parse(AckHeader::view(&bytes).unwrap().0), repr);
        let mut out = [0xa5; 8];
        repr.emit(AckHeader::view_mut(&mut out).unwrap().0);
        assert_eq!(out, bytes);
    }
}
