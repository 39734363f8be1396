//! The rows that are printed at the end.

use crate::interop::case::{Case, Group, named};
use crate::output::{Columns, Row};
use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// The NICs of the side that ran the cases, and of the other.
#[derive(Serialize)]
pub(crate) struct Nics {
    pub(crate) nics: [String; 2],
    pub(crate) lossy: bool,
}

impl Display for Nics {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [own, other] = &self.nics;
        let network = if self.lossy { ", on a network that loses packets" } else { "" };
        write!(f, "{own} and {other}{network}")
    }
}

/// A row: all sizes and path MTUs of one kind of case, asked for by one side.
#[derive(Serialize)]
pub(crate) struct Kind {
    case: String,
    from: String,
    /// How the requester's work must end.
    expected: String,
    pub(crate) tried: Vec<Outcome>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) mtu: u32,
    pub(crate) bytes: u32,
    /// How the requester's work ended: the last of several.
    pub(crate) status: String,
    pub(crate) micros: u64,
    /// Nothing, if all was as it must be.
    pub(crate) problems: Vec<String>,
}

impl Outcome {
    pub(crate) fn is_right(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Adds an outcome to the row of its kind.
pub(crate) fn add(
    kinds: &mut Vec<Kind>,
    from: &str,
    group: &Group,
    (case, outcome): (&Case, Outcome),
) {
    let expected = named(case.expected());
    let case = format!("{case}{}", if group.by_kernel { ", by a kernel" } else { "" });
    match kinds.iter_mut().find(|kind| kind.case == case && kind.from == from) {
        Some(kind) => kind.tried.push(outcome),
        None => kinds.push(Kind { case, from: from.into(), expected, tried: vec![outcome] }),
    }
}

impl Kind {
    /// Lines about the cases that did not end as they must.
    pub(crate) fn wrong(&self) -> impl Iterator<Item = String> {
        self.tried.iter().filter(|one| !one.is_right()).map(|one| {
            let Outcome { mtu, bytes, problems, .. } = one;
            let Self { case, from, .. } = self;
            let problems = problems.join("\n    ");
            format!("WRONG: {case} of {bytes} bytes, {from} asks, MTU {mtu}:\n    {problems}")
        })
    }
}

impl Row for Kind {
    fn columns(&self) -> Columns {
        let (all, right) =
            (self.tried.len(), self.tried.iter().filter(|one| one.is_right()).count());
        let known =
            self.tried.iter().map(|one| &one.status).find(|status| **status != self.expected);
        let ended = match known {
            _ if right < all => format!("WRONG, {right} of {all} ok"),
            Some(status) => format!("{status}, as known"),
            None if all > 1 => format!("ok, {all} sizes and MTUs"),
            None => "ok".to_owned(),
        };
        vec![
            ("case", self.case.clone()),
            ("asked by", self.from.clone()),
            ("must end with", self.expected.clone()),
            ("ended", ended),
        ]
    }
}
