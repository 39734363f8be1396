//! ACK extended transport header, 4 bytes, and its syndrome (vol. 1, 9.3.5.1, 9.7.5.2).

use core::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::layout;
use crate::{Msn, U24};

const CODE: u8 = 0x1f;

/// The layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// One reserved bit, the kind (2 bits), and a code of the kind (5 bits).
    pub syndrome: u8,
    /// Message sequence number.
    pub msn: U24,
}

layout!(Header, Aeth, 4);

/// The value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// An acknowledgement, or the reason for none.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed.
    pub msn: Msn,
}

impl Repr {
    /// Reads a header. Nothing is refused: see [`Syndrome::Unknown`].
    pub fn parse(header: &Header) -> Repr {
        Repr {
            syndrome: Syndrome::from_byte(header.syndrome),
            msn: Msn::from_low_bits(header.msn.get()),
        }
    }

    /// Writes a header.
    pub fn emit(&self, out: &mut Header) {
        *out = Header { syndrome: self.syndrome.byte(), msn: U24::from_low_bits(self.msn.get()) };
    }
}

/// The syndrome of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Everything up to the PSN arrived.
    Ack(Credits),
    /// There is no receive WQE for the request at the PSN; try again after this time.
    RnrNak(RnrTimer),
    /// The request at the PSN is refused.
    Nak(NakCode),
    /// The reserved kind, or the reserved top bit is set: the whole byte.
    Unknown(u8),
}

impl Syndrome {
    /// Reads the byte.
    pub const fn from_byte(byte: u8) -> Syndrome {
        let code = byte & CODE;
        match byte >> 5 {
            0b000 => Syndrome::Ack(Credits(code)),
            0b001 => Syndrome::RnrNak(RnrTimer(code)),
            0b011 => Syndrome::Nak(NakCode::from_code(code)),
            _ => Syndrome::Unknown(byte),
        }
    }

    /// The byte.
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack(credits) => credits.0,
            Syndrome::RnrNak(timer) => 0x20 | timer.0,
            Syndrome::Nak(code) => 0x60 | code.code(),
            Syndrome::Unknown(byte) => byte,
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// Packets before this one are missing; send again from the PSN on.
    PsnSequenceError,
    /// Opcode, opcode sequence, length, or a request the endpoint does not allow.
    InvalidRequest,
    /// Rkey, bounds or rights.
    RemoteAccessError,
    /// The responder failed on its own.
    RemoteOperationalError,
    /// Of the reliable datagram service.
    InvalidRdRequest,
    /// Reserved: 5 to 31.
    Unknown(u8),
}

impl NakCode {
    /// The code from the low five bits.
    pub const fn from_code(code: u8) -> NakCode {
        match code & CODE {
            0 => NakCode::PsnSequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccessError,
            3 => NakCode::RemoteOperationalError,
            4 => NakCode::InvalidRdRequest,
            other => NakCode::Unknown(other),
        }
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        match self {
            NakCode::PsnSequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccessError => 2,
            NakCode::RemoteOperationalError => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Unknown(code) => code & CODE,
        }
    }
}

/// How many receive WQEs the responder has left for SENDs and writes with immediate: a code of 5
/// bits, roughly logarithmic (9.7.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// The responder does not count; also what a shared receive queue says.
    pub const UNLIMITED: Credits = Credits(31);

    const COUNTS: [u16; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    ];

    /// The code in the low five bits.
    pub const fn from_code(code: u8) -> Credits {
        Credits(code & CODE)
    }

    /// The largest count that does not promise more than `available`.
    pub fn at_most(available: u32) -> Credits {
        let above = Self::COUNTS.partition_point(|count| u32::from(*count) <= available);
        // COUNTS begins with 0, so at least one entry is not above.
        Credits(above as u8 - 1)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The count, or `None` for [`UNLIMITED`](Self::UNLIMITED).
    pub fn count(self) -> Option<u16> {
        Self::COUNTS.get(usize::from(self.0)).copied()
    }
}

/// How long a requester waits after an RNR NAK: a code of 5 bits; 0 is the longest (9.7.5.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// In units of 10 µs, by code.
    const DELAYS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// The code in the low five bits.
    pub const fn from_code(code: u8) -> RnrTimer {
        RnrTimer(code & CODE)
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The delay, 10 µs to 655.36 ms.
    pub const fn delay(self) -> Duration {
        Duration::from_micros(10 * Self::DELAYS[(self.0 & CODE) as usize] as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn golden_both_ways() {
        let cases = [
            ([0x1f, 0, 0, 1], Syndrome::Ack(Credits::UNLIMITED), 1),
            ([0x0a, 0x12, 0x34, 0x56], Syndrome::Ack(Credits::at_most(33)), 0x12_3456),
            ([0x2e, 0, 0, 2], Syndrome::RnrNak(RnrTimer::from_code(14)), 2),
            ([0x60, 0, 0, 3], Syndrome::Nak(NakCode::PsnSequenceError), 3),
            ([0x62, 0, 0, 4], Syndrome::Nak(NakCode::RemoteAccessError), 4),
            ([0x7f, 0, 0, 5], Syndrome::Nak(NakCode::Unknown(31)), 5),
            ([0x40, 0, 0, 6], Syndrome::Unknown(0x40), 6),
            ([0x80, 0xff, 0xff, 0xff], Syndrome::Unknown(0x80), 0xff_ffff),
        ];
        for (bytes, syndrome, msn) in cases {
            let repr = Repr { syndrome, msn: Msn::from_low_bits(msn) };
            assert_eq!(Repr::parse(Header::view(&bytes).unwrap().0), repr);
            let mut out = [0xa5; 4];
            repr.emit(Header::view_mut(&mut out).unwrap().0);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn every_syndrome_byte_survives() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn credits_never_promise_more_than_there_are() {
        let counts = Credits::COUNTS.map(u32::from);
        assert!(counts.is_sorted_by(|a, b| a < b));
        for available in 0..40_000 {
            let promised = u32::from(Credits::at_most(available).count().unwrap());
            let better = counts.iter().any(|c| *c > promised && *c <= available);
            assert!(promised <= available && !better, "{available}: {promised}");
        }
        assert_eq!(Credits::at_most(u32::MAX).count(), Some(32768));
        assert_eq!(Credits::UNLIMITED.count(), None);
    }

    #[test]
    fn rnr_delays_are_the_spec_s() {
        let micros = |code| RnrTimer::from_code(code).delay().as_micros();
        assert_eq!([0, 1, 12, 14, 31].map(micros), [655_360, 10, 640, 1280, 491_520]);
        assert!((1..31).all(|code| micros(code) < micros(code + 1)) && micros(31) < micros(0));
    }
}
