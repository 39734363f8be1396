//! Random sequences of calls.

use crate::bed::seeded;
use crate::calls::{Outcome, exercise};
use rand::{Rng, RngExt};
use std::path::Path;

/// Scripts of a run of the tests; more with `WARPVERBS_RUNS`.
const SCRIPTS: u64 = 200;

#[test]
fn no_sequence_of_calls_does_harm() {
    let mut rng = seeded();
    let mut all = Outcome::default();
    for script in 0..warpverbs_dev::runs(SCRIPTS) {
        let mut bytes = vec![0; rng.random_range(0..3000)];
        rng.fill_bytes(&mut bytes);
        let outcome = std::panic::catch_unwind(|| exercise(&bytes));
        let outcome = outcome.unwrap_or_else(|_| panic!("script {script}"));
        all.calls += outcome.calls;
        all.made += outcome.made;
        all.done += outcome.done;
        all.notified += outcome.notified;
    }
    println!("{all:?}");
}

/// The inputs of the corpus do what they were kept for: transfers that are done, and notifications that arrive.
#[test]
fn the_corpus_moves_bytes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nixl_calls");
    let mut best = Outcome::default();
    for entry in folder.read_dir().unwrap() {
        let outcome = exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        best.done = best.done.max(outcome.done);
        best.made = best.made.max(outcome.made);
        best.notified = best.notified.max(outcome.notified);
    }
    assert!(best.made >= 3 && best.done >= 3 && best.notified >= 2, "{best:?}");
}
