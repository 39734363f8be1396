//! Immediate data, 4 bytes (vol. 1, 9.3.6).

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The data.
    pub data: U32,
}

layout!(Header, ImmDt, 4);

/// The value: the integer whose big-endian bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The data, in native order.
    pub data: u32,
}

impl Repr {
    /// Reads a header; every bit pattern has a meaning.
    pub fn parse(header: &Header) -> Repr {
        Repr { data: header.data.get() }
    }

    /// Writes a header.
    pub fn emit(&self, out: &mut Header) {
        *out = Header { data: U32::new(self.data) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn golden_both_ways() {
        let bytes = [0x12, 0x34, 0x56, 0x78];
        let repr = Repr { data: 0x1234_5678 };
        assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), repr);
        let mut out = [0xa5; 4];
        repr.emit(Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, bytes);
    }
}
