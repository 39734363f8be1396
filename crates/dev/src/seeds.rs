//! Seeds and numbers of runs of randomised tests, which the environment may set.

/// A number of the environment, decimal, or hexadecimal after `0x`.
///
/// # Panics
/// It is something else.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{variable} is {text:?}, expected a number")))
}

/// So many runs, or as many as `WARPVERBS_RUNS` says.
pub fn runs(count: u64) -> u64 {
    number("WARPVERBS_RUNS").unwrap_or(count)
}

/// A seed at random, or that of `WARPVERBS_SEED`. It is printed.
pub fn seed() -> u64 {
    let seed = number("WARPVERBS_SEED").unwrap_or_else(rand::random);
    println!("WARPVERBS_SEED={seed}");
    seed
}

/// As many seeds as [`runs`] says, or that of `WARPVERBS_SEED`. Each is printed in its turn.
pub fn seeds(count: u64) -> impl ExactSizeIterator<Item = u64> {
    seeds_of("WARPVERBS_SEED", 0, count)
}

/// As [`seeds`], of the scheduler of SIMT devices: from `first` on, or that of `WARPVERBS_SIMT_SEED`.
pub fn simt_seeds(first: u64, count: u64) -> impl ExactSizeIterator<Item = u64> {
    seeds_of("WARPVERBS_SIMT_SEED", first, count)
}

fn seeds_of(variable: &'static str, first: u64, count: u64) -> impl ExactSizeIterator<Item = u64> {
    let all: Vec<u64> = match number(variable) {
        Some(seed) => vec![seed],
        None => (first..first + runs(count)).collect(),
    };
    all.into_iter().inspect(move |seed| println!("{variable}={seed}"))
}
