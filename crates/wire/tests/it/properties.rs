//! Laws over random packets and random bytes.

use crate::common::{Sample, robust, sample};
use proptest::prelude::*;
use warpverbs_wire::{Checks, Envelope, Ip, Ipv4, Packet, ParseError, Pkey};

fn checks(sample: &Sample) -> Checks {
    Checks { pkey: Pkey(sample.bth.pkey.0 | 0x8000), ..Checks::STRICT }
}

/// Which bits of a packet routers and switches may change, written down from the standard by
/// offset: a mask for each byte.
fn variant_bits(packet: &[u8]) -> Vec<u8> {
    let mut mask = vec![0; packet.len()];
    let headers = if packet[0] >> 4 == 4 {
        for at in [1, 8, 10, 11] {
            mask[at] = 0xff;
        }
        28
    } else {
        mask[0] = 0x0f;
        for at in [1, 2, 3, 7] {
            mask[at] = 0xff;
        }
        48
    };
    for at in [headers - 2, headers - 1, headers + 4] {
        mask[at] = 0xff;
    }
    mask
}

/// Bit by bit, over the bytes as they are.
fn slow_icrc(packet: &[u8]) -> [u8; 4] {
    let covered = &packet[..packet.len() - 4];
    let masked = covered.iter().zip(variant_bits(packet)).map(|(byte, mask)| byte | mask);
    let mut register = !0u32;
    for byte in [0xff; 8].into_iter().chain(masked) {
        for bit in 0..8 {
            let feedback = (register ^ u32::from(byte >> bit)) & 1;
            register = (register >> 1) ^ (feedback * 0xedb8_8320);
        }
    }
    (!register).to_le_bytes()
}

fn fix_ipv4_checksum(packet: &mut [u8]) {
    use warpverbs_wire::{Layout, ipv4::Header};
    if packet[0] >> 4 == 4 {
        let (header, _) = Header::view_mut(packet).unwrap();
        header.checksum = header.expected_checksum().into();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn emit_then_parse_is_identity(sample in sample()) {
        let bytes = sample.bytes();
        prop_assert_eq!(Packet::parse(&bytes, &checks(&sample)), Ok(sample.packet()));
        prop_assert_eq!(&bytes[bytes.len() - 4..], slow_icrc(&bytes));
        robust::packet(&bytes);
    }

    #[test]
    fn any_identification_is_found(sample in sample(), id: u16) {
        let bytes = sample.bytes();
        let envelope = sample.envelope;
        let ip = match envelope.ip {
            Ip::V4(ip) => Ip::V4(Ipv4 { id, ..ip }),
            v6 => v6,
        };
        let hidden = Envelope { ip, ..envelope };
        let ib = &bytes[envelope.len()..bytes.len() - 4];
        prop_assert_eq!(hidden.open_any_id(&bytes[envelope.len()..]), Ok((ib, envelope)));
    }

    #[test]
    fn random_bytes_are_refused_or_read_back(data in prop::collection::vec(any::<u8>(), 0..300)) {
        robust::packet(&data);
    }

    /// Valid packets with a few bytes changed and a right checksum get past the first doors.
    #[test]
    fn damaged_packets_are_refused_or_read_back(
        sample in sample(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = sample.bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len().min(100));
            bytes[at] = value;
        }
        fix_ipv4_checksum(&mut bytes);
        robust::packet(&bytes);
        robust::packet(&bytes[..cut.index(bytes.len())]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every single bit of a packet: a covered one breaks the packet, and from the BTH on it is the
    /// ICRC that says so; one that is not covered breaks nothing.
    #[test]
    fn every_bit_flip_is_seen_iff_covered(sample in sample()) {
        let bytes = sample.bytes();
        let (mask, headers) = (variant_bits(&bytes), sample.envelope.len());
        let checks = Checks { reserved: false, ..checks(&sample) };
        // All of the headers; of long payloads the start and the ICRC.
        let bits = (0..bytes.len().min(160)).chain(bytes.len().saturating_sub(8)..bytes.len());
        for (at, bit) in bits.flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            let checksum = bytes[0] >> 4 == 4 && (10..12).contains(&at);
            if !checksum {
                fix_ipv4_checksum(&mut flipped);
            }
            let result = Packet::parse(&flipped, &checks);
            let structure = Envelope::parse(&flipped);
            if checksum {
                let named = matches!(result, Err(ParseError::Ipv4Checksum { .. }));
                prop_assert!(named, "byte {at} bit {bit:#x}: {result:?}");
            } else if mask[at] & bit != 0 {
                prop_assert!(result.is_ok(), "byte {at} bit {bit:#x}: {result:?}");
            } else if at >= headers || structure.is_ok() {
                let named = matches!(result, Err(ParseError::Icrc { .. }));
                prop_assert!(named, "byte {at} bit {bit:#x}: {result:?}");
            } else {
                prop_assert_eq!(result.unwrap_err(), structure.unwrap_err());
            }
        }
    }
}
