//! Faults of a kernel that no GPU would forgive, named.

use super::abi::Site;
use std::fmt;
use thiserror::Error;
use warpverbs_mem::MemError;

/// A lane of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneName {
    /// Block in the grid.
    pub block: u32,
    /// Warp in the block.
    pub warp: u32,
    /// Lane in the warp.
    pub lane: u32,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} warp {} lane {}", self.block, self.warp, self.lane)
    }
}

/// A warp collective, as `wv::host::collective`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Collective {
    /// `sync_warp`.
    Sync,
    /// `shfl`.
    Shfl,
    /// `ballot`.
    Ballot,
    /// `match_any`.
    MatchAny,
    /// A number that this device does not know.
    Unknown(u32),
}

impl From<u32> for Collective {
    fn from(op: u32) -> Self {
        match op {
            0 => Self::Sync,
            1 => Self::Shfl,
            2 => Self::Ballot,
            3 => Self::MatchAny,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync_warp"),
            Self::Shfl => f.write_str("shfl"),
            Self::Ballot => f.write_str("ballot"),
            Self::MatchAny => f.write_str("match_any"),
            Self::Unknown(op) => write!(f, "collective {op}"),
        }
    }
}

/// Why the SIMT device ended a launch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum SimtFault {
    /// A lane called a collective over a mask without itself.
    #[error("{lane} calls {what} at {site} over mask {mask:#010x}, which leaves it out")]
    OutsideMask { lane: LaneName, what: Collective, mask: u64, site: Site },
    /// A collective waits for lanes that have ended or lie beyond the block.
    #[error(
        "{lane} calls {what} at {site} over mask {mask:#010x}, of which {absent:#010x} are gone"
    )]
    AbsentLanes { lane: LaneName, what: Collective, mask: u64, absent: u64, site: Site },
    /// Two lanes of a warp wait for each other in different collectives; `other` called first.
    #[error(
        "{lane} calls {what} over {mask:#010x} at {site}, but lane {other} waits for it in \
         {other_what} over {other_mask:#010x} at {other_site}"
    )]
    Mismatch {
        lane: LaneName,
        what: Collective,
        mask: u64,
        site: Site,
        other: u32,
        other_what: Collective,
        other_mask: u64,
        other_site: Site,
    },
    /// `shfl` from a lane that does not take part.
    #[error("{lane} calls shfl at {site} from lane {source_lane}, not in mask {mask:#010x}")]
    ShuffleSource { lane: LaneName, source_lane: u32, mask: u64, site: Site },
    /// A collective of a number that this device does not know.
    #[error("{lane} calls {what} at {site}, which does not exist")]
    UnknownCollective { lane: LaneName, what: Collective, site: Site },
    /// A block wants more shared memory than there is, or with an alignment above 4096.
    #[error(
        "{lane} wants {size} bytes of shared memory aligned to {align}; {used} of {limit} are used"
    )]
    SharedMemory { lane: LaneName, size: u64, align: u64, used: u64, limit: u64 },
    /// A lane called `wv::trap`.
    #[error("{lane} trapped at {site}")]
    Trap { lane: LaneName, site: Site },
    /// Every lane waits for another one.
    #[error("every lane waits in a barrier or collective that cannot complete\n{report}")]
    Deadlock { report: String },
    /// Stacks or shared memory could not be mapped.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// The scheduler itself failed; a defect of this crate.
    #[error("the SIMT scheduler panicked: {what}")]
    Scheduler { what: String },
}
