//! Whether all ranks have made the same calls in the same order.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::panic::Location;

/// Calls that are kept by name since the last agreement; of earlier ones there is the hash.
const MOST_CALLS: usize = 1024;

/// A call that every rank makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Its number, from 0.
    number: u64,
    /// The function and its arguments.
    what: String,
    /// Where in the program.
    site: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what, self.site)
    }
}

/// The calls of one rank, as it sends them to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    /// How many.
    calls: u64,
    /// Running hash over all of them.
    hash: [u8; 32],
    /// The last ones.
    recent: Vec<Call>,
}

impl History {
    /// One more call.
    pub(crate) fn add(&mut self, what: String, site: &Location<'_>) {
        let site = format!("{}:{}", site.file(), site.line());
        let call = Call { number: self.calls, what, site };
        let mut hasher = Sha256::new();
        hasher.update(self.hash);
        hasher.update(format!("{} {call}", call.number));
        self.hash = hasher.finalize().into();
        self.calls += 1;
        if self.recent.len() == MOST_CALLS {
            self.recent.remove(0);
        }
        self.recent.push(call);
    }

    /// Agreed: what was before is not compared again.
    pub(crate) fn agreed(&mut self) {
        self.recent.clear();
    }

    /// The first difference between two ranks' calls, as one text for each; None if there is none.
    pub(crate) fn difference(&self, other: &Self) -> Option<[String; 2]> {
        if (self.calls, self.hash) == (other.calls, other.hash) {
            return None;
        }
        let first = self.recent.iter().chain(&other.recent).map(|call| call.number).min();
        let last = self.calls.max(other.calls);
        let find = |history: &Self, number| {
            history.recent.iter().find(|call| call.number == number).cloned()
        };
        let differs = (first.unwrap_or(last)..last)
            .map(|number| (find(self, number), find(other, number)))
            .find(|(ours, theirs)| ours != theirs);
        let (ours, theirs) = differs.unwrap_or_default();
        let text = |call: Option<Call>, calls| match call {
            Some(call) => format!("call {}: {call}", call.number),
            None => format!("{calls} calls in all"),
        };
        Some([text(ours, self.calls), text(theirs, other.calls)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(calls: &[&str]) -> History {
        let mut history = History::default();
        calls.iter().for_each(|call| history.add((*call).to_owned(), Location::caller()));
        history
    }

    #[test]
    fn the_first_difference_is_named_by_both_sites() {
        let ours = history(&["alloc 1", "alloc 2", "free 0"]);
        assert_eq!(ours.difference(&history(&["alloc 1", "alloc 2", "free 0"])), None);
        let [a, b] = ours.difference(&history(&["alloc 1", "alloc 3", "free 0"])).unwrap();
        assert!(a.starts_with("call 1: alloc 2 at ") && a.contains("agreement.rs:"), "{a}");
        assert!(b.starts_with("call 1: alloc 3 at "), "{b}");
        let [a, b] = ours.difference(&history(&["alloc 1", "alloc 2"])).unwrap();
        assert!(a.starts_with("call 2: free 0 at "), "{a}");
        assert_eq!(b, "2 calls in all");
    }

    #[test]
    fn a_difference_before_the_last_agreement_is_still_one() {
        let (mut ours, mut theirs) = (history(&["alloc 1"]), history(&["alloc 2"]));
        ours.agreed();
        theirs.agreed();
        assert!(ours.difference(&theirs).is_some());
        for history in [&mut ours, &mut theirs] {
            for _ in 0..2 * MOST_CALLS {
                history.add("alloc 3".to_owned(), Location::caller());
            }
            assert_eq!(history.recent.len(), MOST_CALLS);
        }
        assert!(ours.difference(&theirs).is_some());
    }
}
