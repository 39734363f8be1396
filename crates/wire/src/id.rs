//! Names of things at the other end.

use core::fmt;

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// `value`, or `None` if it needs more than 24 bits.
    pub const fn new(value: u32) -> Option<Qpn> {
        if value >> 24 == 0 { Some(Qpn(value)) } else { None }
    }

    /// The low 24 bits of `value`.
    pub const fn from_low_bits(value: u32) -> Qpn {
        Qpn(value & 0xff_ffff)
    }

    /// The number, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A partition key: 15 bits and, on top, whether its holder is a full member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full member of the default partition; the only one RoCE uses.
    pub const DEFAULT: Pkey = Pkey(0xffff);

    /// Whether a packet with key `other` may reach an endpoint with this key: the same partition,
    /// which is not number 0, and at least one of the two a full member (vol. 1, 10.9.3).
    pub const fn admits(self, other: Pkey) -> bool {
        let partition = self.0 & 0x7fff;
        partition != 0 && partition == other.0 & 0x7fff && (self.0 | other.0) & 0x8000 != 0
    }
}

impl Default for Pkey {
    fn default() -> Pkey {
        Pkey::DEFAULT
    }
}

impl fmt::Display for Pkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_needs_one_full_member() {
        assert!(Pkey::DEFAULT.admits(Pkey(0xffff)));
        assert!(Pkey::DEFAULT.admits(Pkey(0x7fff)));
        assert!(Pkey(0x7fff).admits(Pkey(0xffff)));
        assert!(!Pkey(0x7fff).admits(Pkey(0x7fff)));
        assert!(!Pkey::DEFAULT.admits(Pkey(0x8001)));
        assert!(!Pkey(0x8000).admits(Pkey(0x8000)));
    }

    #[test]
    fn queue_pair_number_has_24_bits() {
        assert_eq!(Qpn::new(0xff_ffff).map(Qpn::get), Some(0xff_ffff));
        assert_eq!(Qpn::new(0x100_0000), None);
        assert_eq!(Qpn::from_low_bits(0x1200_0034).get(), 0x34);
    }
}
