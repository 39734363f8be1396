//! The fuzz target's body over its corpus and over random bytes.

use crate::exercise::exercise;
use crate::offsets::built;
use crate::request::request;
use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::ring::Position;

#[test]
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/ionic_parse");
    let entries = std::fs::read_dir(folder).expect("a corpus");
    let inputs = entries.map(|e| std::fs::read(e.expect("entry").path()).expect("readable"));
    let ran = inputs.map(|input| exercise(&input)).count();
    assert!(ran >= 10, "only {ran} inputs");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes(input in vec(any::<u8>(), 0..300)) {
        exercise(&input);
    }

    /// Good WQEs with a few bytes changed get further in than random bytes.
    #[test]
    fn nearly_good(
        request in request(),
        counter in 0..1_u64 << 20,
        place: u8,
        changes in vec((0..64_usize, any::<u8>()), 0..4),
        cut in 0..80_usize,
    ) {
        let at = Position { counter, log_depth: place >> 2 & 0xf };
        let protocol = if place & 1 == 0 { Protocol::V2 } else { Protocol::V1 };
        let mut input = vec![place | 2];
        input.extend(built(&request, at, protocol));
        for (offset, byte) in changes {
            let offset = offset % input.len();
            input[offset] = byte;
        }
        input.truncate(input.len().saturating_sub(cut.saturating_sub(64)));
        exercise(&input);
    }
}
