//! Messages between the two ends.

use super::memory::Mem;
use crate::rig::pattern::{compare, pattern, poison};
use crate::rig::talk::Words;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs::agent::Registration;

/// Any one step is complete by then.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// But for compiling kernels, which takes clang a minute for an AMD GPU on an idle machine.
pub(super) const COMPILE_LIMIT: Duration = Duration::from_secs(600);

/// A message of the connection on which the ends meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// Client: the name of its agent.
    Meet { client: String },
    /// Server: where its agent listens.
    Met { agent: SocketAddr },
    /// Client.
    Request(Request),
    /// Server: the request was carried out.
    Done,
}

impl Words for Message {
    const NAME: [u8; 6] = *b"wvagnt";
    const VERSION: u16 = 3;
    const PROGRAM: &'static str = "warpverbs perf agent";

    fn kind(&self) -> &'static str {
        match self {
            Self::Meet { .. } => "meet",
            Self::Met { .. } => "met",
            Self::Request(_) => "request",
            Self::Done => "done",
        }
    }
}

/// A request of the client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Register memory in place of what was registered.
    Register { mem: Mem, bytes: u64 },
    /// Fill the first bytes.
    Fill { bytes: u64, with: Filling },
    /// Compile the kernels.
    Compile,
    /// Zero the counter and start a kernel.
    Exchange(Exchange),
    /// Wait for the kernel, if there is one, and compare the first bytes with the data.
    Compare { bytes: u64, tag: u64 },
    /// End.
    Finish,
}

/// One end's part.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Exchange {
    /// Of each message.
    pub(super) bytes: u64,
    /// 1, or 32 that make each call together.
    pub(super) threads: u32,
    pub(super) begins: bool,
    pub(super) warmup: u32,
    pub(super) rounds: u32,
}

/// The contents of memory before a row.
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
