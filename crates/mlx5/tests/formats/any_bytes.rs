//! The fuzz target's body over its corpus, the golden vectors and random bytes.

use crate::exercise::exercise;
use crate::golden::{repository, vectors};
use crate::strategies::{flags, position, request};
use proptest::collection::vec;
use proptest::prelude::*;

const KINDS: &[&str] = &["send_wqe", "recv_wqe", "srq_wqe", "cqe", "doorbell", "cq_arm"];

#[test]
fn corpus() {
    let entries = std::fs::read_dir(repository().join("fuzz/corpus/wqe_parse")).expect("a corpus");
    let inputs = entries.map(|e| std::fs::read(e.expect("entry").path()).expect("readable"));
    let ran = inputs.map(|input| exercise(&input)).count();
    assert!(ran >= KINDS.len(), "only {ran} inputs");
}

#[test]
fn golden_vectors() {
    for v in vectors(KINDS) {
        for place in [0, 1] {
            exercise(&[&[place], v.bytes.as_slice()].concat());
        }
    }
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
        at in position(),
        flags in flags(),
        changes in vec((0..96usize, any::<u8>()), 0..4),
        cut in 0..80usize,
    ) {
        let mut input = vec![1];
        input.extend(request.build(at, flags));
        for (offset, byte) in changes {
            let offset = offset % input.len();
            input[offset] = byte;
        }
        input.truncate(input.len().saturating_sub(cut.saturating_sub(64)));
        exercise(&input);
    }
}
