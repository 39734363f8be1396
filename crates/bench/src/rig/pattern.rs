//! Bytes that tell where they belong, and their opposite, so that not one moved byte goes unseen.

use thiserror::Error;

/// Data of buffer `tag`: every 8 bytes depend on tag and offset.
pub(crate) fn pattern(tag: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).flat_map(|i| mix(tag << 40 ^ i).to_le_bytes());
    words.take(len).collect()
}

/// Initial bytes of a destination: each differs from the one that is to come.
pub(crate) fn poison(expected: &[u8]) -> Vec<u8> {
    expected.iter().map(|b| !b).collect()
}

/// The first byte that differs from what was sent.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("queue pair {pair}: byte {offset} of {len} is {actual:#04x}, expected {expected:#04x}{}", hint(*actual, *expected))]
pub(crate) struct Mismatch {
    pub(crate) pair: usize,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) expected: u8,
    pub(crate) actual: u8,
}

fn hint(actual: u8, expected: u8) -> &'static str {
    if actual == !expected { " (never written)" } else { "" }
}

pub(crate) fn compare(pair: usize, expected: &[u8], actual: &[u8]) -> Result<(), Mismatch> {
    let len = expected.len();
    if expected == actual {
        return Ok(());
    }
    let offset =
        expected.iter().zip(actual).position(|(e, a)| e != a).unwrap_or(len.min(actual.len()));
    let at = |bytes: &[u8]| bytes.get(offset).copied().unwrap_or(0);
    Err(Mismatch { pair, offset, len, expected: at(expected), actual: at(actual) })
}

/// Finaliser of SplitMix64: a number that looks like any other.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_differs_everywhere_and_a_gap_is_found() {
        let sent = pattern(3, 1001);
        assert_ne!(sent, pattern(4, 1001));
        let before = poison(&sent);
        assert!(sent.iter().zip(&before).all(|(a, b)| a != b));
        let mut after = sent.clone();
        assert_eq!(compare(0, &sent, &after), Ok(()));
        after[1000] = before[1000];
        let found = compare(7, &sent, &after).unwrap_err();
        assert_eq!((found.pair, found.offset), (7, 1000));
        assert!(found.to_string().ends_with("(never written)"), "{found}");
    }
}
