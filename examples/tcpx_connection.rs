//! Two processes connect over TCP and agree on sockets, chunks and how each end receives. No payload.
//!
//! ```text
//! tcpx_connection server
//! tcpx_connection client HOST
//! ```

mod common;

use anyhow::Result;
use clap::Parser;
use common::tcp::{Side, TcpFlags};
use std::process::ExitCode;
use warpverbs::devmem::unpack::Way;
use warpverbs::gpu::{self, GpuChoice};

/// A handshake of device-memory TCP
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(subcommand)]
    side: Side,
    #[command(flatten)]
    tcp: TcpFlags,
    /// Whose memory is bound to queues: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU", global = true)]
    gpu: String,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(Flags { side, tcp, gpu }: Flags) -> Result<()> {
    let gpu = gpu::open(gpu.parse::<GpuChoice>()?)?;
    let connection = tcp.connect(&side, &gpu, Way::Auto)?;
    println!("connected to {}: {}", connection.peer()?, connection.explain());
    connection.close(common::DEADLINE)?;
    println!("passed: both ends said goodbye");
    Ok(())
}
