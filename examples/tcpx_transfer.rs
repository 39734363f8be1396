//! A buffer of one GPU goes over TCP sockets into a buffer of another. Every byte is compared, and
//! the last ones are a pattern of their own.
//!
//! ```text
//! tcpx_transfer server
//! tcpx_transfer client HOST [--bytes 64M] [--unpack d2d|host|kernel]
//! ```
//!
//! With `--queues eth0:7`, the server receives into device memory and the transport unpacks. Without
//! queues, `--unpack` has the bytes received into pinned memory, as a device-memory receive leaves
//! them in its own, and then unpacked by the example.

mod common;
mod tcpx;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::tcp::{MARK, Side, TAIL, TcpFlags, expected};
use std::process::ExitCode;
use std::sync::Arc;
use tcpx::unpack;
use warpverbs::devmem::unpack::Way;
use warpverbs::gpu::{self, Gpu, GpuChoice, Place};
use warpverbs::tcp::{Link, PayloadCounts};
use warpverbs_bench::units::parse_size;

/// GPU memory to GPU memory over TCP
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(subcommand)]
    side: Side,
    #[command(flatten)]
    tcp: TcpFlags,
    /// Whose memory: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU", global = true)]
    gpu: String,
    /// Bytes that the client sends (K, M, G are powers of 1024)
    #[arg(long, value_parser = parse_size, default_value = "64M", global = true)]
    bytes: u64,
    /// How the receiving end unpacks: d2d (copy engine), host or kernel
    #[arg(long, env = "WARPVERBS_UNPACK", global = true)]
    unpack: Option<Way>,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    let opened = gpu::open_explained(flags.gpu.parse::<GpuChoice>()?)?;
    println!("memory of {}", opened.why);
    let way = flags.unpack.unwrap_or_default();
    let connection = flags.tcp.connect(&flags.side, &opened.gpu, way)?;
    println!("connected to {}: {}", connection.peer()?, connection.explain());
    match flags.side {
        // With queues, the transport unpacks.
        Side::Server { .. } if flags.tcp.queues.is_some() => {
            receive(&connection, &opened.gpu, None)?;
            let placed = connection.placed();
            if placed != PayloadCounts::default() {
                println!("the kernel put {placed}");
            }
        }
        Side::Server { .. } => receive(&connection, &opened.gpu, flags.unpack)?,
        Side::Client { .. } => {
            ensure!(flags.unpack.is_none(), "--unpack is for the end that receives");
            let len = common::check_bytes(flags.bytes, TAIL as u64, common::MAX_BYTES)?;
            send(&connection, &*opened.gpu, len)?;
        }
    }
    connection.close(common::DEADLINE)?;
    println!("passed: every byte compared, the last {TAIL} are {MARK:#04x}");
    Ok(())
}

fn send(connection: &Link, gpu: &dyn Gpu, len: usize) -> Result<()> {
    let buffer = gpu.alloc(len, Place::Device)?;
    gpu.write(&buffer, 0, &expected(len))?;
    connection.notify(&(len as u64).to_le_bytes())?;
    // The server has its memory ready: the time is that of the transfer.
    connection.wait_notification(common::DEADLINE)?;
    let began = std::time::Instant::now();
    let sent = connection.isend(buffer.region())?;
    connection.wait(sent, common::DEADLINE)?;
    let answer = connection.wait_notification(common::DEADLINE)?;
    let rate = warpverbs_bench::units::rate(len as f64 / began.elapsed().as_secs_f64());
    ensure!(answer == b"verified", "the server says {:?}", String::from_utf8_lossy(&answer));
    println!("{len} bytes, unpacked and compared, at {rate}");
    Ok(())
}

fn receive(connection: &Link, gpu: &Arc<dyn Gpu>, way: Option<Way>) -> Result<()> {
    let said = connection.wait_notification(common::DEADLINE)?;
    let len = u64::from_le_bytes(said.as_slice().try_into().context("the length")?);
    let len = common::check_bytes(len, TAIL as u64, common::MAX_BYTES)?;
    let buffer = gpu.alloc(len, Place::Device)?;
    let landing = match way {
        None => buffer.clone(),
        Some(_) => gpu.alloc(len, Place::Shared)?,
    };
    let received = connection.irecv(landing.region())?;
    connection.notify(b"ready")?;
    let count = connection.wait(received, common::DEADLINE)?;
    ensure!(count == len as u64, "{count} bytes came, expected {len}");
    match way {
        None => println!("{count} bytes received into the buffer"),
        Some(way) => {
            let way = unpack(gpu, way, landing, &buffer)?;
            println!("{count} bytes received into pinned memory, unpacked by {way}");
        }
    }
    let mut found = vec![0; len];
    gpu.read(&buffer, 0, &mut found)?;
    let verdict = common::compare(&expected(len), &found);
    connection.notify(if verdict.is_ok() { b"verified" } else { b"the bytes differ" })?;
    verdict
}
