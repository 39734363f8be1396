//! The fuzz target's body, on its corpus and on random bytes.

use crate::common::script::{Outcome, exercise};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::path::Path;

fn add(sum: &mut Outcome, outcome: Outcome) {
    sum.fragments += outcome.fragments;
    sum.refused += outcome.refused;
    sum.returned += outcome.returned;
}

#[test]
fn random_bytes() {
    let mut sum = Outcome::default();
    for seed in 0..3000 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let data: Vec<u8> = (0..rng.random_range(0..600)).map(|_| rng.random()).collect();
        add(&mut sum, exercise(&data));
    }
    println!("{sum:?}");
    assert!(sum.fragments > 0 && sum.refused > 0);
}

/// The inputs of the corpus do what they were kept for.
#[test]
fn corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/devmem_control");
    let mut sum = Outcome::default();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        add(&mut sum, exercise(&std::fs::read(path).unwrap()));
    }
    println!("{sum:?}");
    assert!(sum.fragments > 0 && sum.refused > 0 && sum.returned > 0);
}
