//! What one measurement does, at both ends.

use super::LIMIT;
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use warpverbs::devmem::transport::{Connection, Operation, RemoteMemory};
use warpverbs::raw::mem::Region;

/// Messages or writes under way in a bandwidth test.
const DEPTH: usize = 4;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Test {
    /// Messages there and back.
    MessageLatency,
    /// Writes of 8 bytes there and back; each end polls its memory.
    WriteLatency,
    /// Messages in one direction.
    MessageBandwidth,
    /// Writes in one direction.
    WriteBandwidth,
}

impl Test {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MessageLatency => "message latency",
            Self::WriteLatency => "write latency",
            Self::MessageBandwidth => "message bandwidth",
            Self::WriteBandwidth => "write bandwidth",
        }
    }

    pub(super) fn is_latency(self) -> bool {
        matches!(self, Self::MessageLatency | Self::WriteLatency)
    }
}

/// One measurement, as the client asks for it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) test: Test,
    pub(super) bytes: u64,
    pub(super) iterations: u64,
    /// The client's memory, for writes to come back.
    pub(super) memory: [u64; 3],
}

/// What the server answers before and after.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) memory: [u64; 3],
    /// CPU time that the server used, seconds.
    pub(super) cpu_s: f64,
}

pub(super) fn numbers(memory: RemoteMemory) -> [u64; 3] {
    [memory.addr, memory.len, memory.key.into()]
}

pub(super) fn remote([addr, len, key]: [u64; 3]) -> RemoteMemory {
    RemoteMemory { addr, len, key: key as u32 }
}

/// Byte `at` of what a test sends.
fn byte(at: usize) -> u8 {
    (at * 7 + at / 251 + 1) as u8
}

pub(super) fn fill(region: &Region) -> Result<()> {
    let bytes: Vec<u8> = (0..region.len()).map(byte).collect();
    Ok(region.write_through(0, &bytes)?)
}

/// Fills a destination with the complement of what will come, which also maps its pages.
pub(super) fn poison(region: &Region) -> Result<()> {
    let bytes: Vec<u8> = (0..region.len()).map(|at| !byte(at)).collect();
    Ok(region.write_through(0, &bytes)?)
}

/// Whether a region holds what [`fill`] wrote elsewhere.
pub(super) fn verify(region: &Region) -> Result<()> {
    let mut bytes = vec![0; region.len()];
    region.read_through(0, &mut bytes)?;
    let wrong = bytes.iter().enumerate().position(|(at, found)| *found != byte(at));
    ensure!(wrong.is_none(), "byte {} is not what was sent", wrong.unwrap_or_default());
    Ok(())
}

/// Keeps up to [`DEPTH`] operations under way until all are complete.
pub(super) fn pipeline(
    connection: &Connection,
    count: u64,
    mut post: impl FnMut() -> Result<Operation>,
) -> Result<()> {
    let mut under_way = VecDeque::with_capacity(DEPTH);
    for _ in 0..count {
        if under_way.len() == DEPTH
            && let Some(first) = under_way.pop_front()
        {
            connection.wait(first, LIMIT)?;
        }
        under_way.push_back(post()?);
    }
    for operation in under_way {
        connection.wait(operation, LIMIT)?;
    }
    Ok(())
}

/// Waits until the peer has written this number to the start of `region`, host memory.
pub(super) fn wait_for(connection: &Connection, region: &Region, number: u64) -> Result<()> {
    let word = region.atomic_u64(0)?;
    Ok(connection.serve(LIMIT, || word.load(Ordering::Acquire) == number)?)
}
