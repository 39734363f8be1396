//! The command line of `warpverbs conform`.

use crate::Common;
use crate::perf::Mem;
use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use std::net::{IpAddr, Ipv4Addr};
use warpverbs::transport::Way;
use warpverbs_conformance::{CASES, Case};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConformArgs {
    /// Without one, both sides are in this process
    #[command(subcommand)]
    pub(super) role: Option<Role>,
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

/// Which side this process is.
#[derive(Subcommand)]
pub(super) enum Role {
    /// Wait for a client, and be the peer of its cases
    Server(ServerArgs),
    /// Run the cases against a server
    Client(ClientArgs),
    /// Run the cases against a second process, which it starts
    Local(LocalArgs),
}

/// The choice of cases, and the form of the output.
#[derive(Args, Clone)]
pub(super) struct Choice {
    /// Only cases whose names contain this; may be given several times
    #[arg(long, value_name = "WORDS")]
    case: Vec<String>,
    /// Only cases that the host posts
    #[arg(long)]
    pub(super) host_only: bool,
    /// Where the memory of kernels lies
    #[arg(long, value_enum, default_value_t = Mem::Pinned)]
    pub(super) mem: Mem,
    /// Leave out the lines of cases that passed
    #[arg(long, conflicts_with = "json")]
    pub(super) brief: bool,
}

/// The TCP port behind `perf`'s.
const PORT: u16 = 18516;

/// Options of a server: the client chooses everything else.
#[derive(Args)]
pub(super) struct ServerArgs {
    /// Address to listen at; packets use the interface of the client's connection
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub(super) bind: IpAddr,
    /// TCP port where client and server meet; 0 is any
    #[arg(short = 'p', long, default_value_t = PORT)]
    pub(super) port: u16,
    /// UDP port of a software NIC; 0 is any, 4791 what RDMA devices speak to
    #[arg(long, default_value_t = 0)]
    pub(super) udp_port: u16,
    /// Seconds to wait for a client that does not come
    #[arg(long, default_value_t = 300)]
    pub(super) wait: u64,
    /// Where kernels run: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    pub(super) gpu: String,
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    pub(super) nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    pub(super) way: Way,
    /// Run no kernels
    #[arg(long)]
    pub(super) host_only: bool,
    /// Where the memory of kernels lies
    #[arg(long, value_enum, default_value_t = Mem::Pinned)]
    pub(super) mem: Mem,
}

/// Options of a client.
#[derive(Args)]
pub(super) struct ClientArgs {
    /// Host name or address of the server
    pub(super) host: String,
    /// TCP port where client and server meet
    #[arg(short = 'p', long, default_value_t = PORT)]
    pub(super) port: u16,
    /// UDP port of a software NIC; 0 is any, 4791 what RDMA devices speak to
    #[arg(long, default_value_t = 0)]
    pub(super) udp_port: u16,
    /// Seconds to wait for a server that does not answer
    #[arg(long, default_value_t = 5)]
    pub(super) wait: u64,
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) choice: Choice,
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
                "--case {words}: no case is called so; --list names them"
            );
        }
        let asked = |case: &&Case| {
            self.case.is_empty() || self.case.iter().any(|words| case.name.contains(words.as_str()))
        };
        Ok(CASES.iter().filter(asked).collect())
    }
}
