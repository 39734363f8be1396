//! What client and server of a measurement say to each other: one JSON object per message.

use crate::control::Protocol;
use crate::perf::plan::{Mem, Op};
use serde::{Deserialize, Serialize};

/// Who runs the NIC's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineMode {
    /// The thread that posts and polls: one core at each end.
    Inline,
    /// A thread of its own.
    Thread,
}

/// What holds for the whole measurement.
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
    /// What goes wrong on both ends' links, as [`FaultPlan`](warpverbs::nic::link::FaultPlan) is
    /// written.
    pub(crate) faults: Option<String>,
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

/// What a peer has to know of one queue pair, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// `EndpointHandle`.
    pub(crate) handle: String,
    /// `RemoteRegion` of the memory that the operation is on.
    pub(crate) main: String,
    /// That of the memory for answers, where there is one.
    pub(crate) back: Option<String>,
}

/// What is timed.
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

/// Everything that is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Client: what is to be measured.
    Setup(Setup),
    /// Server: it can be.
    Ready,
    /// Either: its ends of the queue pairs, the client first.
    Group(Group),
    /// Server: it has connected as well.
    Connected,
    /// Client: prepare for this.
    Part(Part),
    /// Server: prepared.
    Go,
    /// Client: the timed part is over, with so many messages on each queue pair.
    Stop(Vec<u64>),
    /// Server: every byte at its end is right.
    Verified,
    /// Client: that was all.
    End,
    /// Either: why it ends.
    Failed(String),
}

impl Protocol for Message {
    const NAME: [u8; 6] = *b"wvperf";
    const VERSION: u16 = 1;
    const COMMAND: &'static str = "perf";

    fn encode(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Setup(_) => "setup",
            Self::Ready => "ready",
            Self::Group(_) => "group",
            Self::Connected => "connected",
            Self::Part(_) => "part",
            Self::Go => "go",
            Self::Stop(_) => "stop",
            Self::Verified => "verified",
            Self::End => "end",
            Self::Failed(_) => "failed",
        }
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            _ => None,
        }
    }
}
