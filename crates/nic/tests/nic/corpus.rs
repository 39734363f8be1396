//! The bodies of the fuzz targets, over their corpora and over random scripts.

#[path = "../common/exercise.rs"]
mod exercise;
#[path = "../common/ops/mod.rs"]
mod ops;

use proptest::prelude::*;
use std::path::Path;

fn corpus(target: &str) -> impl Iterator<Item = Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    std::fs::read_dir(dir).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
}

#[test]
fn the_corpus_passes() {
    let (mut succeeded, mut failed) = (0, 0);
    for input in corpus("nic_wqe") {
        let outcome = exercise::exercise(&input);
        succeeded += outcome.succeeded;
        failed += outcome.failed;
    }
    // Else the scripts no longer say what they were written to say.
    assert!(succeeded >= 8 && failed >= 4, "{succeeded} succeeded, {failed} failed");
}

#[test]
fn the_corpus_of_operations_passes() {
    let (mut succeeded, mut failed) = (0, 0);
    for input in corpus("nic_ops") {
        let outcome = ops::exercise(&input);
        succeeded += outcome.succeeded;
        failed += outcome.failed;
    }
    // Else the corpus no longer reaches what it was kept for.
    assert!(succeeded >= 8 && failed >= 4, "{succeeded} succeeded, {failed} failed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// The body checks the results.
    #[test]
    fn any_script_keeps_to_registered_memory(script in prop::collection::vec(any::<u8>(), 0..2000)) {
        exercise::exercise(&script);
    }

    /// As above.
    #[test]
    fn any_operations_keep_to_registered_memory(script in prop::collection::vec(any::<u8>(), 0..3000)) {
        ops::exercise(&script);
    }
}
