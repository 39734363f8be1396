//! The body of the fuzz target, over its corpus and over random scripts.

#[path = "common/exercise.rs"]
mod exercise;

use proptest::prelude::*;
use std::path::Path;

#[test]
fn the_corpus_passes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nic_wqe");
    let (mut succeeded, mut failed) = (0, 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let outcome = exercise::exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        succeeded += outcome.succeeded;
        failed += outcome.failed;
    }
    // Else the scripts no longer say what they were written to say.
    assert!(succeeded >= 8 && failed >= 4, "{succeeded} succeeded, {failed} failed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_script_is_survived(script in prop::collection::vec(any::<u8>(), 0..2000)) {
        exercise::exercise(&script);
    }
}
