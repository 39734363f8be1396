//! Invalidate extended transport header, 4 bytes (vol. 1, 9.3.7).

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Rkey;
use crate::layout::layout;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The key.
    pub rkey: U32,
}

layout!(Header, Ieth, 4);

/// The value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The key that the responder shall invalidate when the message has arrived.
    pub rkey: Rkey,
}

impl Repr {
    /// Reads a header; every bit pattern has a meaning.
    pub fn parse(header: &Header) -> Repr {
        Repr { rkey: Rkey(header.rkey.get()) }
    }

    /// Writes a header.
    pub fn emit(&self, out: &mut Header) {
        *out = Header { rkey: U32::new(self.rkey.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn golden_both_ways() {
        let bytes = [0xca, 0xfe, 0x01, 0x02];
        let repr = Repr { rkey: Rkey(0xcafe_0102) };
        assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), repr);
        let mut out = [0xa5; 4];
        repr.emit(Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, bytes);
    }
}
