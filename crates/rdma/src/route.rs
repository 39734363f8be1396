//! How memory is reached, and why not in a better way.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// How a peer's memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// It is the own memory.
    Own,
    /// By loads and stores.
    Direct,
    /// Through queue pairs.
    Rdma,
    /// Not at all.
    None,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Direct => "direct",
            Self::Rdma => "rdma",
            Self::None => "none",
        })
    }
}

/// Something that was tried or wanted, and why it is not so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The attempt.
    pub what: String,
    /// Reason why it failed.
    pub why: String,
}

impl Reason {
    /// `what` was tried; `why` it failed.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }

    /// All of them in one line.
    pub fn list(reasons: &[Self]) -> String {
        let lines: Vec<_> = reasons.iter().map(ToString::to_string).collect();
        lines.join("; ")
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// A route, and what kept it from being a better one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision<R = Route> {
    /// The route.
    pub route: R,
    /// How it came about, such as the way that a descriptor took; may be empty.
    pub by: String,
    /// Attempts without success, in their order.
    pub not_better: Vec<Reason>,
}

impl<R> Decision<R> {
    /// Nothing better was tried.
    pub fn best(route: R) -> Self {
        Self { route, by: String::new(), not_better: Vec::new() }
    }
}

impl<R: fmt::Display> Decision<R> {
    /// One line for people: the route, how, and why in no better way.
    pub fn explain(&self) -> String {
        let by = if self.by.is_empty() { String::new() } else { format!(" by {}", self.by) };
        match self.not_better.len() {
            0 => format!("{}{by}", self.route),
            _ => format!("{}{by} ({})", self.route, Reason::list(&self.not_better)),
        }
    }
}
