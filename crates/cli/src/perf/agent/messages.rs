//! What the two ends say to each other: JSON in notifications of their agents.

use super::exchange::Exchange;
use super::memory::Mem;
use super::{LIMIT, server};
use crate::perf::pattern::{compare, pattern, poison};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use warpverbs::agent::{Agent, Registration};

/// What the client asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Register memory in place of what was registered.
    Register { mem: Mem, bytes: u64 },
    /// Fill the first bytes.
    Fill { bytes: u64, with: Filling },
    /// Zero the counter and start a kernel.
    Exchange(Exchange),
    /// Wait for the kernel, if there is one, and compare the first bytes with the data.
    Compare { bytes: u64, tag: u64 },
    /// End.
    Finish,
}

/// What the server says to each request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Failed(String),
}

/// What memory holds before a row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Filling {
    /// The data of a tag.
    Data(u64),
    /// Bytes that all differ from the data of a tag.
    Poison(u64),
}

impl Filling {
    pub(super) fn bytes(self, len: usize) -> Vec<u8> {
        match self {
            Self::Data(tag) => pattern(tag, len),
            Self::Poison(tag) => poison(&pattern(tag, len)),
        }
    }
}

/// Compares the first bytes of registered memory.
pub(super) fn check(memory: &Registration, expected: &[u8]) -> Result<()> {
    let mut found = vec![0; expected.len()];
    memory.read(0, &mut found)?;
    Ok(compare(0, expected, &found)?)
}

pub(super) fn send(agent: &Agent, peer: &str, message: &impl Serialize) -> Result<()> {
    Ok(agent.notify(peer, &serde_json::to_vec(message)?, LIMIT)?)
}

/// Asks the server, and waits for its answer.
pub(super) fn ask(agent: &Agent, request: &Request) -> Result<()> {
    send(agent, server::NAME, request)?;
    let answer = agent.wait_notification(LIMIT).context("the server's answer")?;
    match serde_json::from_slice(&answer.bytes).context("the server's answer")? {
        Answer::Done => Ok(()),
        Answer::Failed(why) => bail!("the server: {why}"),
    }
}
