//! One measurement at both ends.

use crate::rig::pattern::{compare, pattern, poison};
use crate::rig::talk::{Talk, Words};
use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use warpverbs::gpu::{Gpu, Place};
use warpverbs::raw::mem::Region;
use warpverbs::tcp::{self, Link};

/// Any one step of a measurement is complete by then.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// Messages or writes under way in a bandwidth test.
const DEPTH: usize = 4;
/// Between two looks at a link and a connection on which nothing happens.
const LOOK: Duration = Duration::from_millis(1);

/// The kind of a measurement.
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

/// A message of the connection on which the ends meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// Server: where the link that is measured begins, and the secret that it needs.
    Met { at: SocketAddr, secret: [u8; 16] },
    /// Client: one measurement.
    Request(Request),
    /// Server: before it, and after it.
    Answer(Answer),
    /// Client: the end.
    End,
}

impl Words for Message {
    const NAME: [u8; 6] = *b"wvtcpx";
    const VERSION: u16 = 1;
    const PROGRAM: &'static str = "warpverbs perf tcp";

    fn kind(&self) -> &'static str {
        match self {
            Self::Met { .. } => "met",
            Self::Request(_) => "request",
            Self::Answer(_) => "answer",
            Self::End => "end",
        }
    }
}

/// One measurement, as the client asks for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) test: Test,
    pub(super) bytes: u64,
    pub(super) iterations: u64,
    /// The client's memory, for writes to come back: a [`RemoteKey`](warpverbs::tcp::RemoteKey)'s bytes.
    pub(super) memory: Vec<u8>,
}

/// The server's answer before and after.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// As the request's.
    pub(super) memory: Vec<u8>,
    /// CPU time that the server used, seconds.
    pub(super) cpu_s: f64,
}

/// Waits for a message of the other end while the link serves its writes.
pub(super) fn next(
    talk: &mut Talk<Message>,
    link: &Link,
    awaited: &'static str,
    limit: Duration,
) -> Result<Message> {
    let message = talk.wait(awaited, limit, || {
        // If the link is over, the other end says why.
        if !link.progress().unwrap_or(false) {
            thread::sleep(LOOK);
        }
    });
    Ok(message?)
}

pub(super) fn fill(region: &Region) -> Result<()> {
    Ok(region.write_through(0, &pattern(0, region.len()))?)
}

/// Fills a destination with the complement of what will come, which also maps its pages.
pub(super) fn poisoned(region: &Region) -> Result<()> {
    Ok(region.write_through(0, &poison(&pattern(0, region.len())))?)
}

/// Whether a region holds what [`fill`] wrote elsewhere.
pub(super) fn verify(region: &Region) -> Result<()> {
    let mut bytes = vec![0; region.len()];
    region.read_through(0, &mut bytes)?;
    Ok(compare(0, &pattern(0, region.len()), &bytes)?)
}

/// Memory of the device for the bytes of a test.
pub(super) fn memory(gpu: &dyn Gpu, len: u64) -> Result<Region> {
    Ok(gpu.alloc(len as usize, Place::Device)?.region().clone())
}

/// Keeps up to [`DEPTH`] operations under way until all are complete.
pub(super) fn pipeline(
    connection: &Link,
    count: u64,
    mut post: impl FnMut() -> Result<tcp::Request>,
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
pub(super) fn wait_for(connection: &Link, region: &Region, number: u64) -> Result<()> {
    let word = region.atomic_u64(0)?;
    Ok(connection.serve(LIMIT, || word.load(Ordering::Acquire) == number)?)
}

/// Seconds that this process has used, in user and system mode.
pub(super) fn cpu_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0.0 };
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
