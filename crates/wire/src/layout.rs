//! Declared layouts: how a view is reached, and the 24-bit integer.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{HeaderName, ParseError};

/// A header as it lies in a packet: fixed length, alignment 1, every bit pattern allowed.
pub trait Layout: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized {
    /// Its name in errors.
    const NAME: HeaderName;
    /// Its length in bytes.
    const LEN: usize = size_of::<Self>();

    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `bytes` is shorter than the header.
    #[inline]
    fn view(bytes: &[u8]) -> Result<(&Self, &[u8]), ParseError> {
        Self::ref_from_prefix(bytes).map_err(|_| Self::truncated(bytes.len()))
    }

    /// As [`view`](Self::view), for writing.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if `bytes` is shorter than the header.
    #[inline]
    fn view_mut(bytes: &mut [u8]) -> Result<(&mut Self, &mut [u8]), ParseError> {
        let have = bytes.len();
        Self::mut_from_prefix(bytes).map_err(|_| Self::truncated(have))
    }

    #[doc(hidden)]
    #[inline]
    fn truncated(have: usize) -> ParseError {
        ParseError::Truncated { header: Self::NAME, need: Self::LEN, have }
    }
}

/// Declares that a type is the layout of a header of this many bytes.
macro_rules! layout {
    ($header:ty, $name:ident, $len:literal) => {
        const _: () = assert!(size_of::<$header>() == $len);
        impl $crate::Layout for $header {
            const NAME: $crate::HeaderName = $crate::HeaderName::$name;
        }
    };
}
pub(crate) use layout;

/// A big-endian 24-bit field.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// The low 24 bits of `value`.
    #[inline]
    pub const fn from_low_bits(value: u32) -> U24 {
        let [_, a, b, c] = value.to_be_bytes();
        U24([a, b, c])
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}
