//! Errors of a heap.

use crate::{AllocError, ExportError};
use thiserror::Error;
use warpverbs_gpu::{ArenaError, GpuError, LaunchError};
use warpverbs_rendezvous::WorldError;

/// A call on a heap failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ShmemError {
    /// A call that all ranks make, while some are no members of the world.
    #[error("{step}: ranks {ranks:?} are away, expected all ranks")]
    Away { step: &'static str, ranks: Vec<u32> },
    /// A rank that came back and the others do not reach each other as before.
    #[error(
        "rank {rank} reaches rank {to} by {found}, expected {expected} as before it came back: {why}"
    )]
    Route { rank: u32, to: u32, found: &'static str, expected: &'static str, why: String },
    /// A setting is invalid.
    #[error("{field} is {value:?}, expected {expected}")]
    Config { field: &'static str, value: String, expected: String },
    /// Two ranks do not want the same heap; `rank` is the lowest.
    #[error("{what} differs: rank {rank} has {value}, rank {other} has {other_value}")]
    Unequal { what: &'static str, rank: u32, value: String, other: u32, other_value: String },
    /// Two ranks did not make the same calls; `rank` is the lowest, `call` its first that differs, with
    /// its place in the program.
    #[error("ranks made different calls: rank {rank} {call}; rank {other} {other_call}")]
    Order { rank: u32, call: String, other: u32, other_call: String },
    /// A rank failed, and so did the call on all ranks, none of which keeps anything of it. `rank` is the
    /// lowest one; so many `others` failed in the same step.
    #[error("step {step:?} failed on rank {rank}: {cause}{}", also(*.others))]
    Step { step: &'static str, rank: u32, cause: String, others: usize },
    /// The ranks did not meet in a step. `last` has the last step that each missing rank reached in making
    /// or growing this heap.
    #[error("step {step:?}: {cause}{}", last_steps(.last))]
    Meet { step: &'static str, cause: Box<WorldError>, last: Vec<(u32, String)> },
    /// No such rank.
    #[error("rank {rank} is not in the heap, expected less than {world}")]
    Rank { rank: u32, world: u32 },
    /// A place of another heap.
    #[error("the place at offset {offset:#x} is one of another heap")]
    OtherHeap { offset: u64 },
    /// A place that is not in the heap.
    #[error("{offset:#x}+{len:#x} is outside of what was allocated, {size:#x} bytes")]
    Outside { offset: u64, len: u64, size: u64 },
    /// The heap has its largest size.
    #[error("the heap has {size} bytes and does not grow: {why}")]
    Full { size: u64, why: String },
    /// There are not enough addresses.
    #[error(
        "addresses for {ranks} ranks of this machine with max_size {max_size:#x}: {cause}; try a smaller max_size"
    )]
    Addresses { ranks: u64, max_size: u64, cause: ArenaError },
    /// The system refused what passing descriptors needs.
    #[error("passing descriptors: {0}")]
    Descriptors(std::io::Error),
    /// A kernel on the heap ended with a bad status, and no rank is lost; `health` has the first wait that
    /// failed.
    #[error("{health}")]
    Kernel {
        health: String,
        #[source]
        cause: Box<warpverbs_transport::TransportError>,
    },
    /// A rank is lost, or the store.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A kernel did not end, or not by itself.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// No place.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The tables for kernels could not be made.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Memory could not be placed or shared.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The device refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] warpverbs_transport::TransportError),
}

fn also(others: usize) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and on {n} more)"),
    }
}

fn last_steps(last: &[(u32, String)]) -> String {
    last.iter().map(|(rank, step)| format!("; rank {rank}: {step}")).collect()
}
