//! The fuzz target's body over its corpus and over random bytes.

use crate::exercise::exercise;
use crate::offsets::built;
use crate::request::request;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/bnxt_parse");
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
        changes in vec((0..64_usize, any::<u8>()), 0..4),
        cut in 0..80_usize,
    ) {
        let mut input = built(&request);
        for (offset, byte) in changes {
            let offset = offset % input.len();
            input[offset] = byte;
        }
        input.truncate(input.len().saturating_sub(cut.saturating_sub(64)));
        exercise(&input);
    }
}
