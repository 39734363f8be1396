//! Random calls: no panic, no write elsewhere, no object lost.

use crate::common::script::{Outcome, exercise};
use proptest::prelude::*;
use std::path::Path;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_call_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..6000)) {
        exercise(&bytes);
    }
}

/// The inputs of the corpus do what they were kept for: calls that succeed and objects that live.
#[test]
fn the_corpus_makes_objects() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/uverbs_calls");
    let mut best = Outcome::default();
    for entry in folder.read_dir().unwrap() {
        let outcome = exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        best.done = best.done.max(outcome.done);
        best.most_objects = best.most_objects.max(outcome.most_objects);
    }
    assert!(best.done >= 6 && best.most_objects >= 5, "{best:?}");
}
