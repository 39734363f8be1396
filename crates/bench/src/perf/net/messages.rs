//! Messages between client and server of a measurement.

use crate::rig::plan::{Mem, Op};
use crate::rig::talk::Words;
use serde::{Deserialize, Serialize};

/// The thread that runs the NIC's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineMode {
    /// The thread that posts and polls: one core at each end.
    Inline,
    /// A thread of its own.
    Thread,
}

/// Settings of the whole measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) op: Op,
    pub(crate) engine: EngineMode,
    /// Where payload lies at an end that has a GPU.
    pub(crate) mem: Mem,
    /// Bytes of the path MTU at most.
    pub(crate) mtu: Option<u32>,
    /// Messages of a queue pair that may be under way.
    pub(crate) tx_depth: u32,
    /// Faults on both ends' links, as [`FaultPlan`](warpverbs::raw::nic::link::FaultPlan) is
    /// written.
    pub(crate) faults: Option<String>,
    /// The link to the peer, as [`LinkKind`](warpverbs::raw::nic::LinkKind) is written; without it,
    /// each end's own choice.
    pub(crate) link: Option<String>,
    /// Seconds after which a row is given up.
    pub(crate) row_limit_s: u64,
}

/// Queue pairs that are made together, and used for one row after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) qps: u32,
    /// Bytes of the largest message.
    pub(crate) max_bytes: u64,
    /// One end of each queue pair.
    pub(crate) ends: Vec<End>,
}

/// Everything a peer has to know of one queue pair, as bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// `EndpointHandle`.
    pub(crate) handle: Vec<u8>,
    /// `RemoteRegion` of the memory that the operation is on.
    pub(crate) main: Vec<u8>,
    /// `RemoteRegion` of the memory for answers, where there is one.
    pub(crate) back: Option<Vec<u8>>,
}

/// The quantity that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    /// One operation at a time, on the first queue pair.
    Latency,
    /// All queue pairs, as many messages under way as they may have.
    Bandwidth,
}

/// One timed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) measure: Measure,
    /// Number of the part: its data differ from all others'.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
}

/// The messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Client: what is to be measured.
    Setup(Setup),
    /// Server: it can be.
    Ready,
    /// Either: its ends of the queue pairs, the client first.
    Group(Group),
    /// Client: prepare for this.
    Part(Part),
    /// Server: prepared.
    Go,
    /// Client: the timed part is over, with this many messages on each queue pair.
    Stop(Vec<u64>),
    /// Server: every byte at its end is right.
    Verified,
    /// Client: the end.
    End,
}

impl Words for Message {
    const NAME: [u8; 6] = *b"wvperf";
    const VERSION: u16 = 3;
    const PROGRAM: &'static str = "warpverbs perf";

    fn kind(&self) -> &'static str {
        match self {
            Self::Setup(_) => "setup",
            Self::Ready => "ready",
            Self::Group(_) => "group",
            Self::Part(_) => "part",
            Self::Go => "go",
            Self::Stop(_) => "stop",
            Self::Verified => "verified",
            Self::End => "end",
        }
    }
}
