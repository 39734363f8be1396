//! Errors of a heap.

use crate::{AllocError, ExportError};
use thiserror::Error;
use warpverbs_gpu::{ArenaError, GpuError, LaunchError};
use warpverbs_rendezvous::WorldError;

/// A call on a heap failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShmemError {
    /// A setting is invalid.
    #[error("{field} is {value:?}, expected {expected}")]
    Config {
        /// Which setting.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// A description of right values.
        expected: String,
    },
    /// Two ranks do not want the same heap.
    #[error("{what} differs: rank {rank} has {value}, rank {other} has {other_value}")]
    Unequal {
        /// The quantity that differs.
        what: &'static str,
        /// The lowest rank.
        rank: u32,
        /// Its value.
        value: String,
        /// Another rank.
        other: u32,
        /// The value of that rank.
        other_value: String,
    },
    /// Two ranks did not make the same calls.
    #[error("ranks made different calls: rank {rank} {call}; rank {other} {other_call}")]
    Order {
        /// The lowest rank.
        rank: u32,
        /// Its first call that differs, with its place in the program.
        call: String,
        /// Another rank.
        other: u32,
        /// The call of that rank.
        other_call: String,
    },
    /// A rank failed, and so did the call on all ranks, none of which keeps anything of it.
    #[error("step {step:?} failed on rank {rank}: {cause}{}", also(*.others))]
    Step {
        /// The step.
        step: &'static str,
        /// The lowest rank that failed.
        rank: u32,
        /// Its reason.
        cause: String,
        /// How many other ranks failed in the same step.
        others: usize,
    },
    /// The ranks did not meet in a step.
    #[error("step {step:?}: {cause}{}", last_steps(.last))]
    Meet {
        /// The step.
        step: &'static str,
        /// The ranks that are missing or lost.
        cause: Box<WorldError>,
        /// Of each missing rank, the last step that it reached in making or growing this heap.
        last: Vec<(u32, String)>,
    },
    /// No such rank.
    #[error("rank {rank} is not in the heap, expected less than {world}")]
    Rank {
        /// The rank.
        rank: u32,
        /// How many there are.
        world: u32,
    },
    /// A place of another heap.
    #[error("the place at offset {offset:#x} is one of another heap")]
    OtherHeap {
        /// Its offset.
        offset: u64,
    },
    /// A place that is not in the heap.
    #[error("{offset:#x}+{len:#x} is outside of what was allocated, {size:#x} bytes")]
    Outside {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes that were allocated.
        size: u64,
    },
    /// The heap has its largest size.
    #[error("the heap has {size} bytes and does not grow: {why}")]
    Full {
        /// Bytes.
        size: u64,
        /// The reason why it does not grow.
        why: String,
    },
    /// There are not enough addresses.
    #[error(
        "addresses for {ranks} ranks of this machine with max_size {max_size:#x}: {cause}; try a smaller max_size"
    )]
    Addresses {
        /// Ranks whose memory would be mapped here.
        ranks: u64,
        /// For each of them, bytes.
        max_size: u64,
        /// The system's error.
        cause: ArenaError,
    },
    /// The system refused what passing descriptors needs.
    #[error("passing descriptors: {0}")]
    Descriptors(std::io::Error),
    /// A kernel on the heap ended with a bad status, and no rank is lost.
    #[error("{health}")]
    Kernel {
        /// The heap's health, which has the first wait that failed.
        health: String,
        /// The status.
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
