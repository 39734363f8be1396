//! RDMA extended transport header, 16 bytes (vol. 1, 9.3.3).

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Rkey;
use crate::layout::layout;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Virtual address at the responder.
    pub va: U64,
    /// Remote key.
    pub rkey: U32,
    /// Bytes of the whole message.
    pub dma_len: U32,
}

layout!(Header, Reth, 16);

/// The value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key of the region.
    pub rkey: Rkey,
    /// Bytes of the whole message, over all its packets; up to 2^31.
    pub dma_len: u32,
}

impl Repr {
    /// Reads a header; every bit pattern has a meaning.
    #[inline]
    pub fn parse(header: &Header) -> Repr {
        Repr { va: header.va.get(), rkey: Rkey(header.rkey.get()), dma_len: header.dma_len.get() }
    }

    /// Writes a header.
    #[inline]
    pub fn emit(&self, out: &mut Header) {
        *out = Header {
            va: U64::new(self.va),
            rkey: U32::new(self.rkey.0),
            dma_len: U32::new(self.dma_len),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn golden_both_ways() {
        let bytes = [0, 0, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3];
        let repr = Repr { va: 0x7f12_3456_789a, rkey: Rkey(0xdead_beef), dma_len: 0x1_0203 };
        assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), repr);
        let mut out = [0xa5; 16];
        repr.emit(Header::view_mut(&mut out).unwrap().0);
        assert_eq!(out, bytes);
    }
}
