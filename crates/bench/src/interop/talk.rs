//! Messages of the two programs over their control connection, one each way a step, so that
//! neither runs ahead.

use crate::interop::case::Group;
use crate::interop::side::Address;
use crate::rig::talk::{self, Words, only};
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest wait for the other program.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A program's description of its NIC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) nic: String,
    /// Its ability as a responder, see [`Traits`](crate::interop::case::Traits).
    pub(crate) invalidates: bool,
    pub(crate) rxe: bool,
    pub(crate) kernels: bool,
}

/// The next group, and whether the program that gets this posts the work; `None` is the end.
pub(crate) type Next = Option<(bool, Group)>;

/// A side's part in a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Where a peer reaches the queue pair that was made.
    pub(crate) address: Option<Address>,
    /// Statuses of work, or problems.
    pub(crate) words: Vec<String>,
}

impl From<Vec<String>> for Part {
    fn from(words: Vec<String>) -> Self {
        Self { words, address: None }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Item {
    Hello(Hello),
    Next(Next),
    /// A step of the sender, or why it failed.
    Step(Result<Part, String>),
}

impl Words for Item {
    const NAME: [u8; 6] = *b"wvintr";
    const VERSION: u16 = 5;
    const PROGRAM: &'static str = "warpverbs-interop";

    fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Next(_) => "group",
            Self::Step(_) => "step",
        }
    }
}

pub(crate) type Talk = talk::Talk<Item>;

/// Both sides bring what they have done, or why they have not; an error of either is one of both, and
/// leaves them in step. The outer error ends the connection.
pub(crate) fn step(talk: &mut Talk, own: Result<Part>) -> Result<Result<(Part, Part)>> {
    let said = own.as_ref().map(Part::clone).map_err(|error| format!("{error:#}"));
    talk.send(Item::Step(said))?;
    let found = talk.recv("step", LIMIT)?;
    let theirs = only!(talk, found, "step", Item::Step(part) => part);
    Ok(own.and_then(|own| Ok((own, theirs.map_err(|text| anyhow!("the other side: {text}"))?))))
}
