//! Datagram extended transport header, 8 bytes (vol. 1, 9.3.2).

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;
use crate::{Qpn, U24};

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The receiver's queue key.
    pub qkey: U32,
    /// Reserved.
    pub resv: u8,
    /// The sender's queue pair.
    pub src_qpn: U24,
}

layout!(Header, Deth, 8);

/// The value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The queue key that the receiver's queue pair must have.
    pub qkey: u32,
    /// The queue pair that sent the datagram.
    pub src_qpn: Qpn,
}

impl Repr {
    /// Reads a header; the reserved byte is ignored.
    pub fn parse(header: &Header) -> Repr {
        Repr { qkey: header.qkey.get(), src_qpn: Qpn::from_low_bits(header.src_qpn.get()) }
    }

    /// Writes a header.
    pub fn emit(&self, out: &mut Header) {
        let src_qpn = U24::from_low_bits(self.src_qpn.get());
        *out = Header { qkey: U32::new(self.qkey), resv: 0, src_qpn };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn golden_both_ways() {
        let bytes = [0x11, 0x22, 0x33, 0x44, 0, 0x0a, 0x0b, 0x0c];
        let repr = Repr { qkey: 0x1122_3344, src_qpn: Qpn::from_low_bits(0x0a_0b0c) };
        assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), repr);
        let mut out = [0xa5; 8];
        repr.emit(Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, bytes);
    }
}
