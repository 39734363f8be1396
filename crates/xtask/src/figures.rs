//! Parts of all comparisons of contenders: medians of rounds, bounds, tables.

use std::fmt;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};

/// A bound of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Within {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

impl Within {
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
        }
    }

    /// In a word.
    pub(crate) fn verdict(self, ratio: f64) -> &'static str {
        if self.is_met(ratio) { "met" } else { "missed" }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

/// The middle one; of an even number, the lower of the two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// The smallest and the largest.
pub(crate) fn spread(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    format!("{low:.2} to {high:.2}")
}

/// Programs that wanted a core in the minute before anything was started, if the system reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load(pub(crate) Option<f64>);

impl Load {
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/loadavg").ok();
        Self(text.and_then(|text| text.split_whitespace().next()?.parse().ok()))
    }

    /// A warning about figures from a busy machine.
    pub(crate) fn warning(self) -> Option<String> {
        let load = self.0.filter(|load| *load > 0.5)?;
        Some(format!(
            "BUSY: {load} programs wanted a core in the minute before. Absolute figures say \
             nothing, and a missed bound little."
        ))
    }
}

pub(crate) fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut builder = Builder::default();
    builder.push_record(heads.iter().copied());
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table.with(Style::rounded());
    table.modify(Columns::new(1..), Alignment::right());
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_rounds() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 1.0);
        assert!(median(&[]).is_nan());
    }
}
