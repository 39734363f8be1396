//! Results of an exploration.

use crate::machine::Choice;
use crate::scenario::{NOTES, SiteUse};
use std::collections::BTreeSet;
use std::fmt;

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which rule, where.
    pub what: String,
    /// Replays the run; see [`crate::replay`].
    pub schedule: String,
    /// Every step, one per line: thread, operation, value, place.
    pub trace: Vec<String>,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), schedule: String::new(), trace: Vec::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "{}\nschedule: {}", self.what, self.schedule)
    }
}

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct Report {
    /// The first run that broke a rule; nothing was explored after it.
    pub failure: Option<Failure>,
    /// Runs, whole or up to a state already known.
    pub runs: u64,
    /// Distinct states at which there was a choice.
    pub states: u64,
    /// Runs given up because a thread paused too often.
    pub cut: u64,
    /// Whether everything within the limits was explored.
    pub complete: bool,
    /// Operations of all threads.
    pub sites: BTreeSet<SiteUse>,
    /// The notes at the end of each run.
    pub outcomes: BTreeSet<[u64; NOTES]>,
}

/// Steps as text: thread, `.way` unless 0, `*count` for repetitions.
pub(crate) fn to_text(schedule: &[Choice]) -> String {
    let words: Vec<String> = schedule
        .chunk_by(|a, b| a == b)
        .map(|same| {
            let Choice { thread, way } = same[0];
            let way = if way == 0 { String::new() } else { format!(".{way}") };
            let times = if same.len() == 1 { String::new() } else { format!("*{}", same.len()) };
            format!("{thread}{way}{times}")
        })
        .collect();
    words.join(" ")
}

/// The inverse of [`to_text`].
pub(crate) fn from_text(text: &str) -> Result<Vec<Choice>, String> {
    let mut schedule = Vec::new();
    for word in text.split_whitespace() {
        let bad = || format!("{word:?} is not a step: expected THREAD[.WAY][*COUNT]");
        let (step, times) = word.split_once('*').unwrap_or((word, "1"));
        let (thread, way) = step.split_once('.').unwrap_or((step, "0"));
        let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
        let choice = Choice { thread: number(thread)?, way: number(way)? };
        schedule.resize(schedule.len() + number(times)?, choice);
    }
    Ok(schedule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_back() {
        let step = |thread, way| Choice { thread, way };
        let schedule = vec![step(0, 0), step(0, 0), step(2, 1), step(0, 0), step(1, 101)];
        assert_eq!(to_text(&schedule), "0*2 2.1 0 1.101");
        assert_eq!(from_text("0*2 2.1 0 1.101").unwrap(), schedule);
        assert!(from_text("0 x").unwrap_err().contains("\"x\" is not a step"));
    }
}
