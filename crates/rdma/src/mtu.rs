//! The path MTU.

use core::fmt;

/// A path MTU: the most payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// All five, in ascending order.
    pub const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// The MTU in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// Packets of a message of `len` bytes; one of none has one, too.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        let packets = len.div_ceil(self.bytes() as u32);
        if packets == 0 { 1 } else { packets }
    }

    /// The MTU of exactly this many bytes.
    #[inline]
    pub const fn from_bytes(bytes: usize) -> Option<Mtu> {
        match bytes {
            256 => Some(Mtu::B256),
            512 => Some(Mtu::B512),
            1024 => Some(Mtu::B1024),
            2048 => Some(Mtu::B2048),
            4096 => Some(Mtu::B4096),
            _ => None,
        }
    }

    /// The largest MTU of at most this many bytes; none is below 256.
    pub fn largest_within(bytes: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().rfind(|mtu| mtu.bytes() <= bytes)
    }

    /// The MTU of an encoded value, 1 to 5, as in address paths and queue pair contexts.
    pub const fn from_code(code: u8) -> Option<Mtu> {
        match code {
            1..=5 => Some(Mtu::ALL[code as usize - 1]),
            _ => None,
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_and_bytes_agree() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let mtu = Mtu::from_code(code).unwrap();
            assert_eq!((mtu as u8, mtu.bytes()), (code, bytes));
            assert_eq!(Mtu::from_bytes(bytes), Some(mtu));
        }
        assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
        assert_eq!(Mtu::from_bytes(1500), None);
        assert_eq!([0, 1, 1024, 1025, 3000].map(|len| Mtu::B1024.packets(len)), [1, 1, 1, 2, 3]);
        assert_eq!(Mtu::B256.packets(u32::MAX), 1 << 24);
        assert_eq!(Mtu::largest_within(1500), Some(Mtu::B1024));
        assert_eq!((Mtu::largest_within(256), Mtu::largest_within(255)), (Some(Mtu::B256), None));
    }
}
