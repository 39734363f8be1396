//! How much payload a packet may carry, and the path MTU that limits it.

use warpverbs_rdma::Mtu;

/// How long the payload of an opcode is (vol. 1, 9.7.4.1.6 and table of packet lengths).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// No payload.
    Absent,
    /// First and middle packets: exactly the path MTU.
    Full,
    /// Last packets: 1 byte to the path MTU.
    NonEmpty,
    /// Only packets: 0 bytes to the path MTU.
    Any,
}

/// A payload that its opcode or the path MTU forbids. A responder answers a request like this with
/// NAK Invalid Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The opcode carries none.
    #[error("payload of {len} bytes, expected none")]
    Unexpected {
        /// Bytes of payload, without pad.
        len: usize,
    },
    /// A last packet without payload.
    #[error("no payload, expected 1 to {mtu} bytes")]
    Missing {
        /// The path MTU.
        mtu: Mtu,
    },
    /// Above the path MTU.
    #[error("payload of {len} bytes, expected at most {mtu}")]
    TooLong {
        /// Bytes of payload, without pad.
        len: usize,
        /// The path MTU.
        mtu: Mtu,
    },
    /// A first or middle packet that is not full.
    #[error("payload of {len} bytes, expected exactly {mtu}")]
    NotFull {
        /// Bytes of payload, without pad.
        len: usize,
        /// The path MTU.
        mtu: Mtu,
    },
    /// A first or middle packet that no path MTU could make.
    #[error("payload of {len} bytes, expected 256, 512, 1024, 2048 or 4096")]
    NotAnMtu {
        /// Bytes of payload, without pad.
        len: usize,
    },
}

impl PayloadRule {
    /// Checks `len` bytes of payload on a path with this MTU.
    ///
    /// # Errors
    /// The rule that is broken.
    #[inline]
    pub const fn check(self, len: usize, mtu: Mtu) -> Result<(), PayloadError> {
        match self {
            PayloadRule::Absent if len != 0 => Err(PayloadError::Unexpected { len }),
            PayloadRule::Full if len != mtu.bytes() => Err(PayloadError::NotFull { len, mtu }),
            PayloadRule::NonEmpty if len == 0 => Err(PayloadError::Missing { mtu }),
            PayloadRule::NonEmpty | PayloadRule::Any if len > mtu.bytes() => {
                Err(PayloadError::TooLong { len, mtu })
            }
            _ => Ok(()),
        }
    }

    /// Checks `len` against all MTUs at once: whether any path could carry it.
    ///
    /// # Errors
    /// The rule that is broken on every path.
    #[inline]
    pub const fn check_any_mtu(self, len: usize) -> Result<(), PayloadError> {
        match self {
            PayloadRule::Full if Mtu::from_bytes(len).is_none() => {
                Err(PayloadError::NotAnMtu { len })
            }
            PayloadRule::Full => Ok(()),
            _ => self.check(len, Mtu::B4096),
        }
    }
}

/// Bytes, 0 to 3, that bring `len` to a multiple of four.
#[inline]
pub const fn pad_count(len: usize) -> u8 {
    (len.wrapping_neg() & 3) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_the_right_edges() {
        use PayloadRule::{Absent, Any, Full, NonEmpty};
        let mtu = Mtu::B1024;
        let accepted =
            |rule: PayloadRule| [0, 1, 1023, 1024, 1025].map(|len| rule.check(len, mtu).is_ok());
        assert_eq!(accepted(Absent), [true, false, false, false, false]);
        assert_eq!(accepted(Full), [false, false, false, true, false]);
        assert_eq!(accepted(NonEmpty), [false, true, true, true, false]);
        assert_eq!(accepted(Any), [true, true, true, true, false]);
        assert_eq!(NonEmpty.check(0, mtu), Err(PayloadError::Missing { mtu }));
        assert_eq!(Any.check(1025, mtu), Err(PayloadError::TooLong { len: 1025, mtu }));
    }

    #[test]
    fn some_mtu_accepts_exactly_what_check_any_mtu_accepts() {
        use PayloadRule::{Absent, Any, Full, NonEmpty};
        for rule in [Absent, Full, NonEmpty, Any] {
            for len in 0..5000 {
                let some = Mtu::ALL.iter().any(|mtu| rule.check(len, *mtu).is_ok());
                assert_eq!(rule.check_any_mtu(len).is_ok(), some, "{rule:?} {len}");
            }
        }
    }

    #[test]
    fn pad_fills_to_four() {
        assert_eq!([0, 1, 2, 3, 4, 4095].map(pad_count), [0, 3, 2, 1, 0, 1]);
    }
}
