//! The invariant CRC: CRC-32 over everything a router or switch may not change (vol. 1, 7.8.1 and
//! annex A17 "RoCEv2", ICRC).
//!
//! It begins with eight bytes of ones in the place of an InfiniBand local route header, then runs
//! from the IP header to the last pad byte, with these fields read as ones:
//!
//! | header | fields |
//! |---|---|
//! | IPv4 | type of service, time to live, header checksum |
//! | IPv6 | traffic class, flow label, hop limit |
//! | UDP | checksum |
//! | BTH | FECN, BECN, resv6a |
//!
//! It is sent as the least significant byte first.

use crc32fast::Hasher;

use crate::envelope::lengths;
use crate::{Envelope, HeaderName, Ip, Layout, ParseError, bth, ipv4, ipv6, udp};

/// Bytes of the ICRC.
pub const LEN: usize = 4;

const ROUTE_HEADER: usize = 8;
const MAX_PREFIX: usize = ROUTE_HEADER + ipv6::Header::LEN + udp::Header::LEN + bth::Header::LEN;
/// Of `resv8a` in the BTH.
const RESV8A: usize = 4;
/// Bytes from behind the IPv4 identification to the end of the UDP header.
const BEHIND_IPV4_ID: usize = ipv4::Header::LEN - 6 + udp::Header::LEN;

impl Envelope {
    /// The ICRC of `ib` in this envelope. `ib` is BTH to pad, all that the ICRC stands behind.
    ///
    /// # Errors
    /// [`ParseError::Length`] if no IP packet can be that long.
    pub fn icrc(&self, ib: &[u8]) -> Result<u32, ParseError> {
        let mut prefix = [0xff; MAX_PREFIX];
        let headers = self.len();
        self.emit_masked(ib.len() + LEN, &mut prefix[ROUTE_HEADER..])?;
        let at = ROUTE_HEADER + headers;
        let bth = &ib[..ib.len().min(bth::Header::LEN)];
        prefix[at..at + bth.len()].copy_from_slice(bth);
        if bth.len() > RESV8A {
            prefix[at + RESV8A] = 0xff;
        }
        let mut hasher = Hasher::new();
        hasher.update(&prefix[..at + bth.len()]);
        hasher.update(&ib[bth.len()..]);
        Ok(hasher.finalize())
    }

    /// Writes the ICRC into the last four bytes of `datagram`, which already holds BTH to pad.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] below four bytes, [`ParseError::Length`] beyond what IP carries.
    pub fn seal(&self, datagram: &mut [u8]) -> Result<(), ParseError> {
        let have = datagram.len();
        let (ib, trailer) = datagram.split_last_chunk_mut::<LEN>().ok_or(truncated(have))?;
        *trailer = self.icrc(ib)?.to_le_bytes();
        Ok(())
    }

    /// Checks and takes off the ICRC: BTH to pad.
    ///
    /// # Errors
    /// [`ParseError::Icrc`] if it is wrong, [`ParseError::Truncated`] below four bytes,
    /// [`ParseError::Length`] beyond what IP carries.
    pub fn open<'a>(&self, datagram: &'a [u8]) -> Result<&'a [u8], ParseError> {
        let (ib, found) = split(datagram)?;
        let expected = self.icrc(ib)?;
        if found != expected {
            return Err(ParseError::Icrc { found, expected });
        }
        Ok(ib)
    }

    /// As [`open`](Self::open) where the receiver cannot see the IPv4 identification: behind a UDP
    /// socket. If `self.ip` carries another one than the sender's, the only identification that
    /// explains the ICRC is worked out (a CRC is linear, so there is at most one) and put into
    /// the envelope that is returned.
    ///
    /// This leaves 16 of the 32 check bits: of random corruption one in 65536 passes instead of
    /// one in 2^32. Over IPv6 nothing is hidden, and this is `open`.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`ParseError::Icrc`] then holds what the given identification
    /// would have required.
    pub fn open_any_id<'a>(&self, datagram: &'a [u8]) -> Result<(&'a [u8], Envelope), ParseError> {
        let (ib, found) = split(datagram)?;
        let expected = self.icrc(ib)?;
        if found == expected {
            return Ok((ib, *self));
        }
        let mismatch = ParseError::Icrc { found, expected };
        let Ip::V4(ip) = self.ip else { return Err(mismatch) };
        // The value that a changed identification adds to the CRC, moved back over all bytes behind
        // it, is the change itself: its first byte in the lowest bits.
        let change = backwards(found ^ expected, 2 + BEHIND_IPV4_ID + ib.len());
        let [first, second, 0, 0] = change.to_le_bytes() else { return Err(mismatch) };
        let id = ip.id ^ u16::from_be_bytes([first, second]);
        Ok((ib, Envelope { ip: Ip::V4(ipv4::Repr { id, ..ip }), ..*self }))
    }

    /// Both headers at the start of `out`, with ones in the fields that the ICRC leaves out.
    fn emit_masked(&self, datagram_len: usize, out: &mut [u8]) -> Result<(), ParseError> {
        let (datagram_len, segment_len) = lengths(datagram_len)?;
        let rest = match self.ip {
            Ip::V4(ip) => {
                let (header, rest) = ipv4::Header::view_mut(out)?;
                *header = ipv4::Repr { tos: 0xff, ttl: 0xff, ..ip }.without_checksum(segment_len);
                header.checksum = 0xffff.into();
                rest
            }
            Ip::V6(ip) => {
                let (header, rest) = ipv6::Header::view_mut(out)?;
                let ones =
                    ipv6::Repr { traffic_class: 0xff, flow_label: !0, hop_limit: 0xff, ..ip };
                ones.emit(segment_len, header);
                rest
            }
        };
        let (header, _) = udp::Header::view_mut(rest)?;
        self.udp.emit(datagram_len, header);
        header.checksum = 0xffff.into();
        Ok(())
    }
}

/// Separates BTH to pad from the ICRC, which is not checked.
///
/// # Errors
/// [`ParseError::Truncated`] below four bytes.
#[inline]
pub fn split(datagram: &[u8]) -> Result<(&[u8], u32), ParseError> {
    let (ib, trailer) = datagram.split_last_chunk::<LEN>().ok_or(truncated(datagram.len()))?;
    Ok((ib, u32::from_le_bytes(*trailer)))
}

fn truncated(have: usize) -> ParseError {
    ParseError::Truncated { header: HeaderName::Icrc, need: LEN, have }
}

/// The polynomial with the term of highest degree in the lowest bit, as the CRC register has it.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Times x.
const fn forth(a: u32) -> u32 {
    a >> 1 ^ POLYNOMIAL & (a & 1).wrapping_neg()
}

/// Divided by x: undoes [`forth`], whose result has its top bit set only through the polynomial.
const fn back(a: u32) -> u32 {
    if a & ONE == 0 { a << 1 } else { (a ^ POLYNOMIAL) << 1 | 1 }
}

/// Product of two residues. Without branches: which terms there are is never foreseen.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = forth(b);
    }
    product
}

/// The first powers of `base`, from the zeroth on.
const fn powers(base: u32) -> [u32; 512] {
    let mut powers = [ONE; 512];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = multiply(powers[k - 1], base);
        k += 1;
    }
    powers
}

/// x to the power of −8 · k.
static BACK_BYTES: [u32; 512] = {
    let (mut byte, mut bit) = (ONE, 0);
    while bit < 8 {
        byte = back(byte);
        bit += 1;
    }
    powers(byte)
};

/// x to the power of −8 · 256 · k.
static BACK_PAGES: [u32; 512] = powers(BACK_BYTES[256]);

/// A CRC register as it was `bytes` zero bytes earlier; `bytes` below 2^17.
fn backwards(register: u32, bytes: usize) -> u32 {
    multiply(BACK_PAGES[bytes >> 8], multiply(BACK_BYTES[bytes & 0xff], register))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_undoes_forth() {
        for a in (0..32).map(|bit| 1u32 << bit).chain([0, !0, 0x1234_5678]) {
            assert_eq!(back(forth(a)), a);
            assert_eq!(multiply(ONE, a), a);
        }
    }

    #[test]
    fn backwards_undoes_zero_bytes() {
        for bytes in [0, 1, 2, 7, 64, 255, 256, 1000, 65535, 65536, (1 << 17) - 1] {
            let mut register = 0xdead_beef;
            (0..bytes * 8).for_each(|_| register = forth(register));
            assert_eq!(backwards(register, bytes), 0xdead_beef, "{bytes}");
        }
    }
}
