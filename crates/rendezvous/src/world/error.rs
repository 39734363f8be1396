//! Why ranks did not meet.

use std::time::Duration;

use super::Loss;
use crate::client::Listed;
use crate::job::JOB_NAME;
use crate::{BindError, ClientError, ConnectError};

/// Why ranks did not meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum WorldError {
    /// No such rank.
    #[error(
        "rank {rank} of {world_size}: expected a rank below the world size, and at most 65536 ranks"
    )]
    Rank { rank: u32, world_size: u32 },
    /// No name for a job.
    #[error("job {job:?}: expected {JOB_NAME}")]
    Job { job: String },
    /// This rank was to run the store.
    #[error("store of rank 0: {0}")]
    Bind(BindError),
    /// No store.
    #[error("store of the job: {0}")]
    Connect(ConnectError),
    /// The store ended with the rank that ran it, and no member has run another at its address.
    #[error(
        "rank {rank} is gone, and the store with it; within {waited:.1?} no member on its machine has run another: {cause}. \
         Start the job again, with a store that no rank runs (`Host::Elsewhere`) if it is to outlive any machine of the ranks"
    )]
    StoreGone { rank: u32, waited: Duration, cause: ConnectError },
    /// A call on the store failed, and no rank is known to be lost.
    #[error(transparent)]
    Client(ClientError),
    /// No random numbers.
    #[error("the operating system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// Ranks that did not come.
    #[error("{call} {name:?}: waited {waited:.1?} for {} of {world_size} ranks: {}", ranks.len(), Listed(ranks))]
    Missing { call: &'static str, name: String, ranks: Vec<u32>, world_size: u32, waited: Duration },
    /// A rank that had joined is not there any more.
    #[error("rank {rank} {loss}")]
    Lost { rank: u32, loss: Loss },
    /// While the ranks were joining, one was not let in.
    #[error("a rank could not join: {cause}")]
    Refused { cause: String },
    /// Somebody else is this rank.
    #[error(
        "rank {rank} of job {job:?}, generation {generation}, has joined already; a restart at the \
         same store needs a higher generation"
    )]
    RankTaken { rank: u32, job: String, generation: u64 },
    /// The other members go on without this rank.
    #[error("rank {rank} is excluded: the members are {}", Listed(members))]
    Excluded { rank: u32, members: Vec<u32> },
    /// The members did not regroup with this rank.
    #[error("rank {rank} has waited {waited:.1?} for the members to regroup with it")]
    NotLetIn { rank: u32, waited: Duration },
    /// Members that cannot be read.
    #[error("members {found:?}, expected ranks")]
    View { found: String },
    /// No thread.
    #[error("a thread that watches the store")]
    Thread(std::io::Error),
    /// The ranks do not agree how many they are.
    #[error(
        "rank {rank} was started for a world of {ours} ranks, another rank for one of {theirs}"
    )]
    Size { rank: u32, ours: u32, theirs: u32 },
    /// Ranks of different versions.
    #[error("the job's keys are of layout {theirs:?}, this rank's of {ours:?}: mixed versions")]
    Layout { ours: String, theirs: String },
    /// A name that cannot be a key.
    #[error("name of {size} bytes, expected 1 to {limit}")]
    Name { size: usize, limit: usize },
    /// Names that are never used again would add up.
    #[error("{limit} different names are in use; use the same name again")]
    TooManyNames { limit: usize },
    /// A broadcast from nobody or from two.
    #[error(
        "broadcast from rank {root} of {world_size}: rank {rank} gave {}; the root gives bytes and \
         the others none", if *given { "bytes" } else { "none" }
    )]
    Root { root: u32, rank: u32, world_size: u32, given: bool },
}

impl WorldError {
    pub(super) fn silent(rank: u32, silence: Duration) -> Self {
        Self::Lost { rank, loss: Loss::Silent(silence) }
    }
}
