//! Order statistics of measured times.

use serde::Serialize;

/// Summary of a set of samples, in nanoseconds. Percentiles are nearest-rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub samples: usize,
    /// Smallest.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Half of the samples are at most this.
    pub p50_ns: u64,
    /// 90 of 100 samples are at most this.
    pub p90_ns: u64,
    /// 99 of 100 samples are at most this.
    pub p99_ns: u64,
    /// 999 of 1000 samples are at most this.
    pub p99_9_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl Summary {
    /// Of at least one sample; `None` if there is none.
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let (min_ns, max_ns) = (*samples.first()?, *samples.last()?);
        let sum: u128 = samples.iter().map(|&s| u128::from(s)).sum();
        let rank =
            |per_mille: usize| samples[(samples.len() * per_mille).div_ceil(1000).max(1) - 1];
        Some(Self {
            samples: samples.len(),
            min_ns,
            mean_ns: sum as f64 / samples.len() as f64,
            p50_ns: rank(500),
            p90_ns: rank(900),
            p99_ns: rank(990),
            p99_9_ns: rank(999),
            max_ns,
        })
    }
}

/// The middle one of those that are numbers; of an even number, the lower of the two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let summary = Summary::of((1..=200).rev().collect()).unwrap();
        assert_eq!(
            (summary.min_ns, summary.p50_ns, summary.p99_ns, summary.max_ns),
            (1, 100, 198, 200)
        );
        assert_eq!((summary.p90_ns, summary.p99_9_ns), (180, 200));
        assert_eq!((summary.mean_ns, summary.samples), (100.5, 200));
        let summary = Summary::of((1..=10_000).collect()).unwrap();
        assert_eq!((summary.p90_ns, summary.p99_ns, summary.p99_9_ns), (9000, 9900, 9990));
    }

    #[test]
    fn medians_are_of_what_was_measured() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, f64::NAN, 1.0]), 1.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn one_sample_is_all_of_its_percentiles() {
        let summary = Summary::of(vec![7]).unwrap();
        assert_eq!((summary.p50_ns, summary.p99_ns, summary.mean_ns), (7, 7, 7.0));
        assert_eq!(Summary::of(Vec::new()), None);
    }
}
