//! The command line of `warpverbs conform`.

use crate::rig::Common;
use crate::rig::ends::{AtPort, Family, Role};
use crate::rig::plan::Mem;
use anyhow::{Result, ensure};
use clap::Args;
use std::net::IpAddr;
use warpverbs::transport::Way;
use warpverbs_conformance::{CASES, Case};

/// Options of `conform`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ConformArgs {
    /// Without one, both sides are in this process
    #[command(subcommand)]
    pub(super) role: Option<Role<Sides>>,
    #[command(flatten)]
    pub(super) common: Common,
    /// Two software NICs at ports of this address, instead of one connected to itself
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    pub(super) network: Option<IpAddr>,
    #[command(flatten)]
    pub(super) choice: Choice,
    /// List the cases, and run none
    #[arg(long)]
    pub(super) list: bool,
}

/// The choice of cases, and the form of the output.
#[derive(Args, Clone)]
pub(super) struct Choice {
    /// Only cases whose names contain this; may be given several times
    #[arg(long, value_name = "WORDS")]
    case: Vec<String>,
    #[command(flatten)]
    pub(super) kernels: Kernels,
    /// Leave out the lines of cases that passed
    #[arg(long, conflicts_with = "json")]
    pub(super) brief: bool,
}

/// Kernels of a side.
#[derive(Args, Clone)]
pub(super) struct Kernels {
    /// Run no kernels: only the host posts
    #[arg(long)]
    pub(super) host_only: bool,
    /// Where the memory of kernels lies
    #[arg(long, value_enum, default_value_t = Mem::Pinned)]
    pub(super) mem: Mem,
}

/// Two sides in two processes.
pub(super) struct Sides;

impl Family for Sides {
    // The one behind that of `perf`.
    const PORT: &'static str = "18516";
    type Server = AtPort<ServerArgs>;
    type Client = AtPort<LocalArgs>;
    type Local = LocalArgs;
}

/// Options of a server: the client chooses everything else.
#[derive(Args)]
pub(super) struct ServerArgs {
    /// Where kernels run: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    pub(super) gpu: String,
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    pub(super) nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    pub(super) way: Way,
    #[command(flatten)]
    pub(super) kernels: Kernels,
}

/// Options of both sides on one machine.
#[derive(Args)]
pub(super) struct LocalArgs {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) choice: Choice,
}

impl Choice {
    pub(super) fn cases(&self) -> Result<Vec<&'static Case>> {
        for words in &self.case {
            ensure!(
                CASES.iter().any(|case| case.name.contains(words.as_str())),
                "--case {words}: no case has this name, --list prints all"
            );
        }
        let asked = |case: &&Case| {
            self.case.is_empty() || self.case.iter().any(|words| case.name.contains(words.as_str()))
        };
        Ok(CASES.iter().filter(asked).collect())
    }
}
