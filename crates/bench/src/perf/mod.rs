//! `warpverbs perf`: every measurement checks the data it moved and brings its own yardstick.

mod agent;
mod ep;
mod idle;
mod issue;
mod latency;
mod loopback;
mod memcpy;
mod net;
mod row;
mod shmem;
mod tcp;

use crate::rig::ends::Role;
use crate::rig::plan::Op;
use clap::{Args, Subcommand};
use net::Net;

/// Options of `perf`.
#[derive(Args)]
pub struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

/// Measurements.
#[derive(Subcommand)]
enum PerfCommand {
    /// RDMA WRITE between two processes or hosts
    #[command(subcommand)]
    Write(Role<Net>),
    /// RDMA READ between two processes or hosts
    #[command(subcommand)]
    Read(Role<Net>),
    /// SEND between two processes or hosts
    #[command(subcommand)]
    Send(Role<Net>),
    /// Fetch-and-add between two processes or hosts
    #[command(subcommand)]
    Atomic(Role<Net>),
    /// Messages of every size through the loopback: latency, rate and bandwidth
    Loopback(loopback::LoopbackArgs),
    /// Large messages beside the memcpy of the same buffers
    Memcpy(memcpy::MemcpyArgs),
    /// One 8-byte WRITE from post to completion beside the raw round trip of a flag
    Latency(latency::LatencyArgs),
    /// The cost of idle queue pairs to a busy one
    IdleQps(idle::IdleArgs),
    /// Calls on a symmetric heap: messages there and back, single calls, bandwidth, barriers
    Shmem(shmem::ShmemArgs),
    /// Dispatch and combine of expert parallelism, beside the bound of this machine
    Ep(ep::EpArgs),
    /// Lists of blocks moved by agents between two processes, by every path
    #[command(subcommand)]
    Agent(Role<agent::Agents>),
    /// Messages and one-sided writes over TCP sockets, into memory of a device or the host
    #[command(subcommand)]
    Tcp(Role<tcp::Tcp>),
    /// Posting alone, to a NIC that only consumes, beside raw 64-byte stores; with --nic, and execution
    Issue(issue::IssueArgs),
}

/// Measures, and prints what came of it.
///
/// # Errors
/// The request cannot be measured, something failed, or bytes differ.
pub fn run(args: &PerfArgs) -> anyhow::Result<()> {
    match &args.command {
        PerfCommand::Write(role) => net::run(Op::Write, role),
        PerfCommand::Read(role) => net::run(Op::Read, role),
        PerfCommand::Send(role) => net::run(Op::Send, role),
        PerfCommand::Atomic(role) => net::run(Op::Atomic, role),
        PerfCommand::Loopback(args) => loopback::run(args),
        PerfCommand::Memcpy(args) => memcpy::run(args),
        PerfCommand::Latency(args) => latency::run(args),
        PerfCommand::IdleQps(args) => idle::run(args),
        PerfCommand::Shmem(args) => shmem::run(args),
        PerfCommand::Ep(args) => ep::run(args),
        PerfCommand::Agent(role) => agent::run(role),
        PerfCommand::Tcp(role) => tcp::run(role),
        PerfCommand::Issue(args) => issue::run(args),
    }
}
