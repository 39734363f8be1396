//! `warpverbs perf`: every measurement checks the data it moved and brings its own yardstick.

mod agent;
mod busy;
mod host;
mod idle;
mod issue;
mod kernel;
mod latency;
mod loopback;
mod memcpy;
mod net;
mod output;
mod pattern;
mod plan;
mod plot;
mod receive;
mod rig;
mod ring;
mod roundtrip;
mod shmem;
mod tcp;

use clap::{Args, Subcommand};
pub(crate) use plan::Mem;
use warpverbs::transport::Way;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum PerfCommand {
    /// RDMA WRITE between two processes or hosts
    #[command(subcommand)]
    Write(net::NetCommand),
    /// RDMA READ between two processes or hosts
    #[command(subcommand)]
    Read(net::NetCommand),
    /// SEND between two processes or hosts
    #[command(subcommand)]
    Send(net::NetCommand),
    /// Fetch-and-add between two processes or hosts
    #[command(subcommand)]
    Atomic(net::NetCommand),
    /// Messages of every size through the loopback: latency, rate and bandwidth
    Loopback(plan::LoopbackArgs),
    /// Large messages beside the memcpy of the same buffers
    Memcpy(memcpy::MemcpyArgs),
    /// One 8-byte WRITE from post to completion beside the raw round trip of a flag
    Latency(latency::LatencyArgs),
    /// What idle queue pairs cost a busy one
    IdleQps(idle::IdleArgs),
    /// Calls on a symmetric heap: messages there and back, single calls, bandwidth, barriers
    Shmem(shmem::ShmemArgs),
    /// Lists of blocks moved by agents between two processes, by every path
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Messages and one-sided writes over TCP sockets, into memory of a device or the host
    #[command(subcommand)]
    Tcp(tcp::TcpCommand),
    /// Posting alone, to a NIC that only consumes, beside raw 64-byte stores; with --nic, and execution
    Issue(issue::IssueArgs),
}

/// For measurements that need no device.
#[derive(Args, Clone, Debug)]
pub(crate) struct NicOnly {
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    way: Way,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl NicOnly {
    /// With the host SIMT device, whose memory is host memory.
    fn common(&self) -> crate::Common {
        let (gpu, nic) = ("simt".to_owned(), self.nic.clone());
        crate::Common { gpu, nic, way: self.way, json: self.json }
    }
}

pub(crate) fn run(command: &PerfCommand) -> anyhow::Result<()> {
    match command {
        PerfCommand::Write(command) => net::run(plan::Op::Write, command),
        PerfCommand::Read(command) => net::run(plan::Op::Read, command),
        PerfCommand::Send(command) => net::run(plan::Op::Send, command),
        PerfCommand::Atomic(command) => net::run(plan::Op::Atomic, command),
        PerfCommand::Loopback(args) => loopback::run(args),
        PerfCommand::Memcpy(args) => memcpy::run(args),
        PerfCommand::Latency(args) => latency::run(args),
        PerfCommand::IdleQps(args) => idle::run(args),
        PerfCommand::Shmem(args) => shmem::run(args),
        PerfCommand::Agent(command) => agent::run(command),
        PerfCommand::Tcp(command) => tcp::run(command),
        PerfCommand::Issue(args) => issue::run(args),
    }
}
