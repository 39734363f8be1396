//! The bodies of the fuzz targets, over their corpora and over random scripts.

#[path = "../common/exercise.rs"]
mod exercise;
#[path = "../common/ops/mod.rs"]
mod ops;

use proptest::prelude::*;
use std::path::Path;
use warpverbs_dev::QueueFormat;

/// Runs a target's corpus, whose inputs begin with a format; `exercise` returns how many completions
/// succeeded, and how many failed.
fn passes(target: &str, exercise: impl Fn(&[u8]) -> (u32, u32)) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut of = [(0, 0); QueueFormat::ALL.len()];
    for entry in std::fs::read_dir(dir).unwrap() {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        let at = usize::from(input[0]) % of.len();
        let (succeeded, failed) = exercise(&input);
        of[at] = (of[at].0 + succeeded, of[at].1 + failed);
    }
    // Else the inputs no longer reach what they were kept for.
    for (format, (succeeded, failed)) in QueueFormat::ALL.iter().zip(of) {
        let reached = succeeded >= 8 && failed >= 4;
        assert!(reached, "{format:?}: {succeeded} succeeded, {failed} failed");
    }
}

#[test]
fn the_corpus_of_wqes_passes() {
    passes("nic_wqe", |input| {
        let exercise::Outcome { succeeded, failed } = exercise::exercise(input);
        (succeeded, failed)
    });
}

#[test]
fn the_corpus_of_operations_passes() {
    passes("nic_ops", |input| {
        let ops::Outcome { succeeded, failed } = ops::exercise(input);
        (succeeded, failed)
    });
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
