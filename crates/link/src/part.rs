//! QP numbers in equal parts. NICs that share a port have one part each, so that the number in a
//! packet says whose it is.

use std::ops::Range;

/// Bits of a QP number below its part.
const BITS: u32 = 18;
/// Where the destination's QP number is in a packet (IBTA 9.2).
const DEST_QPN: Range<usize> = 5..8;

/// One of 64 parts of the QP numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpnPart(u8);

impl QpnPart {
    /// How many there are.
    pub const COUNT: usize = 1 << (24 - BITS);

    /// Part `index`, counted from the lowest numbers, modulo their count.
    pub fn new(index: usize) -> Self {
        Self((index % Self::COUNT) as u8)
    }

    /// The part with the number `qpn`, of which 24 bits count.
    #[inline]
    pub fn of(qpn: u32) -> Self {
        Self::new((qpn >> BITS) as usize)
    }

    /// The part of the QP that a packet, which begins with its BTH, is for.
    #[inline]
    pub fn of_packet(packet: &[u8]) -> Self {
        Self::of(
            packet.get(DEST_QPN).map_or(0, |qpn| u32::from_be_bytes([0, qpn[0], qpn[1], qpn[2]])),
        )
    }

    /// Which one it is.
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// The QP numbers of this part that QPs may have: 0 and 1 are management QPs, 0xffffff is
    /// multicast.
    pub fn numbers(self) -> Range<u32> {
        let first = u32::from(self.0) << BITS;
        first.max(2)..(first + (1 << BITS)).min(0xff_ffff)
    }
}

/// The first bit that tells parts apart, and the bits' count, in the second word of a packet: what
/// a port's filter needs.
#[cfg(feature = "udp")]
pub(super) const WORD: (u32, u32) = (4, BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_its_part_alone() {
        let mut next = 2;
        for part in (0..QpnPart::COUNT).map(QpnPart::new) {
            let numbers = part.numbers();
            assert_eq!(numbers.start, next);
            assert_eq!((QpnPart::of(numbers.start), QpnPart::of(numbers.end - 1)), (part, part));
            next = numbers.end;
        }
        assert_eq!(next, 0xff_ffff);
    }

    #[test]
    fn a_packet_names_its_part() {
        let packet = [0x2a, 0, 0xff, 0xff, 0xff, 0xfe, 0, 1, 0];
        assert_eq!(QpnPart::of_packet(&packet), QpnPart::of(0xfe_0001));
        assert_eq!(QpnPart::of_packet(&packet[..7]), QpnPart::new(0));
    }
}
