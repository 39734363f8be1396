//! The report on a heap, as text and as JSON.

use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpverbs_peer::{Decision, Reason};

/// How one rank's heap is reached.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PeerReport {
    /// The rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process number, in its own PID namespace.
    pub pid: u32,
    /// Its device.
    pub gpu: String,
    /// The route, and why in no better way.
    pub route: Decision,
    /// Whether fetching atomics on it go by RDMA, because some rank reaches it so.
    pub shared_atomics: bool,
    /// Whether it was marked as lost.
    pub lost: bool,
}

/// A heap, as one rank sees it. Prints as a few lines; serialises to JSON.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct HeapReport {
    /// The own rank.
    pub rank: u32,
    /// Identity of the heap, the same on all ranks.
    pub heap: u64,
    /// Bytes of each rank's heap.
    pub bytes: u64,
    /// Bytes it may grow to.
    pub max_bytes: u64,
    /// Bytes that are not allocated.
    pub free_bytes: u64,
    /// Places that are allocated.
    pub allocations: usize,
    /// Segments of each rank.
    pub segments: usize,
    /// First address of the own heap.
    pub base: u64,
    /// Address space reserved for all ranks of this machine, bytes.
    pub reserved: u64,
    /// Why the own memory is not shared with other ranks of this machine, if it is not.
    pub plain: Option<Reason>,
    /// Which routes may be taken.
    pub routes: String,
    /// Settings that came from the environment.
    pub overrides: Vec<String>,
    /// The NIC and how it reaches the own memory, where there is RDMA.
    pub nic: Option<String>,
    /// Every rank, in order.
    pub peers: Vec<PeerReport>,
    /// How long each step took since the heap was begun, in the order of steps.
    pub steps: Vec<(&'static str, Duration)>,
}

impl HeapReport {
    /// As JSON, one line.
    pub fn to_json(&self) -> String {
        // Nothing in it has a form that JSON lacks.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for HeapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, heap, bytes, max_bytes, segments, base, reserved, .. } = self;
        writeln!(
            f,
            "heap {heap:016x}, rank {rank} of {}: {bytes} bytes at {base:#x} in {segments} segments, \
             at most {max_bytes}; {} allocations, {} bytes free; {reserved:#x} bytes of addresses",
            self.peers.len(),
            self.allocations,
            self.free_bytes,
        )?;
        if let Some(why) = &self.plain {
            writeln!(f, "reached by RDMA alone, and does not grow: {why}")?;
        }
        writeln!(f, "routes: {}", self.routes)?;
        for set in &self.overrides {
            writeln!(f, "from the environment: {set}")?;
        }
        if let Some(nic) = &self.nic {
            writeln!(f, "NIC: {nic}")?;
        }
        for peer in &self.peers {
            let atomics = if peer.shared_atomics { ", fetching atomics by rdma" } else { "" };
            let lost = if peer.lost { ", given up" } else { "" };
            let PeerReport { rank, host, pid, gpu, route, .. } = peer;
            let route = route.explain();
            writeln!(f, "rank {rank} ({host}, process {pid}, {gpu}): {route}{atomics}{lost}")?;
        }
        let steps: Vec<_> =
            self.steps.iter().map(|(step, time)| format!("{step} {time:.1?}")).collect();
        write!(f, "steps: {}", steps.join(", "))
    }
}
