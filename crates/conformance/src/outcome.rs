//! How a case ended.

use crate::peer::Trouble;
use crate::{Case, Difference, Setup};
use std::fmt;
use std::time::{Duration, Instant};
use warpverbs::gpu::{GpuError, LaunchError};
use warpverbs::transport::{TransportError, UsageError};

/// The verdict of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All was as expected.
    Passed,
    /// Something was not; what.
    Failed(String),
    /// There is nothing here to try it with; why.
    NotSupported(String),
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case.
    pub case: &'static Case,
    /// Its verdict.
    pub verdict: Verdict,
    /// A known difference of the NIC in this case.
    pub known: Option<&'static Difference>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether it is what this NIC should do: a case passes unless it cannot be tried or a
    /// difference is known, and a known difference is there.
    pub fn is_right(&self) -> bool {
        match (&self.verdict, self.known) {
            (Verdict::Passed, known) => known.is_none(),
            (Verdict::Failed(_), known) => known.is_some(),
            (Verdict::NotSupported(_), _) => true,
        }
    }

    /// One word: passed, differs, failed, skipped, or stale for a known difference that is not
    /// there.
    pub fn word(&self) -> &'static str {
        match (&self.verdict, self.known) {
            (Verdict::Passed, None) => "passed",
            (Verdict::Passed, Some(_)) => "stale",
            (Verdict::Failed(_), Some(_)) => "differs",
            (Verdict::Failed(_), None) => "failed",
            (Verdict::NotSupported(_), _) => "skipped",
        }
    }

    /// Why it is not simply passed.
    pub fn detail(&self) -> String {
        match (&self.verdict, self.known) {
            (Verdict::Passed, None) => String::new(),
            (Verdict::Passed, Some(known)) => format!("passes, though listed: {}", known.reason),
            (Verdict::Failed(found), Some(known)) => format!("{} ({found})", known.reason),
            (Verdict::Failed(found), None) => found.clone(),
            (Verdict::NotSupported(why), _) => why.clone(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.case.name, self.case.poster, self.word())?;
        match self.detail() {
            detail if detail.is_empty() => Ok(()),
            detail => write!(f, ": {detail}"),
        }
    }
}

/// Why a case ends before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(String),
    NotSupported(String),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotSupported(why) => Self::NotSupported(why),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Trouble at the peer's is trouble at this side.
macro_rules! as_trouble {
    ($($error:ty)*) => {$(
        impl From<$error> for Stop {
            fn from(error: $error) -> Self {
                Trouble::from(error).into()
            }
        }
    )*};
}

as_trouble!(TransportError UsageError GpuError LaunchError);

/// Ends a case unless the condition holds.
macro_rules! check {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err($crate::outcome::Stop::Failed(format!($($words)+)));
        }
    };
}
pub(crate) use check;

impl Setup {
    /// Runs one case. It ends by itself: every wait in it has a deadline.
    pub fn run(&self, case: &'static Case) -> Outcome {
        let start = Instant::now();
        let verdict = match (case.run)(self) {
            Ok(()) => Verdict::Passed,
            Err(Stop::Failed(found)) => Verdict::Failed(found),
            Err(Stop::NotSupported(why)) => Verdict::NotSupported(why),
        };
        let known = Difference::of(case.name, self);
        Outcome { case, verdict, known, took: start.elapsed() }
    }
}
