//! Two processes connect over TCP and agree on sockets, chunks and how each end receives. No payload.
//!
//! ```text
//! tcpx_connection server
//! tcpx_connection client HOST
//! ```

mod common;
mod tcpx;

use anyhow::Result;
use clap::Parser;
use std::process::ExitCode;
use tcpx::{Side, TcpFlags};

/// A handshake of device-memory TCP
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(subcommand)]
    side: Side,
    #[command(flatten)]
    tcp: TcpFlags,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(Flags { side, tcp }: Flags) -> Result<()> {
    let connection = tcp.connect(&side)?;
    println!("connected to {}: {}", connection.peer()?, connection.explain());
    connection.close(common::DEADLINE)?;
    println!("passed: both ends said goodbye");
    Ok(())
}
