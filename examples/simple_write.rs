//! A kernel of one process puts into memory of another's GPU and raises its counter; a kernel there
//! waits for that. Metadata goes through a store of PyTorch's protocol, which the initiator serves.
//! Either may be started first.
//!
//! ```text
//! simple_write --mode initiator --size 1048576
//! simple_write --mode target
//! ```

mod agents;
mod common;
mod simple;

use agents::WAIT;
use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use common::{compare, within};
use simple::{Side, pattern};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::KernelStatus;
use warpverbs::agent::Views;
use warpverbs::gpu::{KernelPtr, Place, SafeKernel};
use warpverbs::kernels::simple_write::{SimpleWriteThread, SimpleWriteWait, SimpleWriteWarp};
use warpverbs::rendezvous::{Client, Deadline, Limits, Server};
use warpverbs_bench::units::parse_size;

/// A kernel writes into another process's GPU and signals
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// The part that this process plays
    #[arg(long, value_enum, default_value = "initiator")]
    mode: Mode,
    /// Bytes of the buffer
    #[arg(long, default_value = "1048576", value_parser = parse_size)]
    size: u64,
    /// Where the initiator serves the store
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Its port
    #[arg(long, default_value_t = 9998)]
    port: u16,
    /// Where kernels run: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
    /// A NIC for memory that cannot be mapped; without one the GPUs must share a machine
    #[arg(long)]
    nic: Option<String>,
    /// Writes of each level that are timed
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Parts of a write that are posted without waiting
    #[arg(long, default_value_t = 4)]
    pipeline: u32,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    Initiator,
    Target,
}

const LEVELS: [&str; 2] = ["thread", "warp"];

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    within("--size", flags.size, 1, 1 << 36)?;
    within("--pipeline", flags.pipeline.into(), 1, flags.size)?;
    within("--rounds", flags.rounds.into(), 1, u32::MAX.into())?;
    match flags.mode {
        Mode::Initiator => initiator(&flags),
        Mode::Target => target(&flags),
    }
}

fn initiator(flags: &Flags) -> Result<()> {
    let side = Side::new("initiator", &flags.gpu, flags.nic.as_deref(), flags.size)?;
    let deadline = Deadline::after(WAIT);
    let server = Server::bind_host(&flags.host, flags.port, Limits::default(), deadline)?;
    let mut store = agents::connect(&flags.host, server.local_addr().port())?;
    store.set("initiator", &side.agent.metadata()?)?;
    println!("[initiator] waiting for the target at {}", server.local_addr());
    let peer = side.agent.load_metadata(&store.get("target")?)?;
    let (data, counter) = (side.agent.remote(&peer, "data")?, side.agent.remote(&peer, "counter")?);
    let (theirs, size) = (data.len(), flags.size);
    ensure!(theirs == size, "the target has --size {theirs}, expected {size} as here");
    let views = side.agent.views(&[&side.data, &side.counter], &[Some(&data), Some(&counter)])?;
    let path = views.path(&peer).map_or_else(String::new, |path| path.to_string());
    println!("[initiator] writes go by {path}");
    println!("{:>8}  {:>12}  {:>6}  {:>12}  {:>10}", "level", "bytes", "writes", "µs each", "GB/s");
    for (level, name) in LEVELS.iter().enumerate() {
        side.data.write(0, &pattern(level, flags.size))?;
        let took = write(&side, &views, level, flags)?;
        let each = took.max(Duration::from_nanos(1)) / flags.rounds;
        let rate = flags.size as f64 / each.as_secs_f64() / 1e9;
        let micros = each.as_secs_f64() * 1e6;
        let (bytes, rounds) = (flags.size, flags.rounds);
        println!("{name:>8}  {bytes:>12}  {rounds:>6}  {micros:>12.2}  {rate:>10.3}");
        store.get(&format!("verified {name}"))?;
    }
    store.set("done", b"")?;
    println!("passed: {} bytes written by a kernel at each level, and verified", flags.size);
    // The target ends its connection before the store goes.
    store.get("bye")?;
    Ok(())
}

/// Writes of one level by one launch; what they took by the GPU's clock.
fn write(side: &Side, views: &Views, level: usize, flags: &Flags) -> Result<Duration> {
    let took = side.gpu.alloc(8, Place::Shared)?;
    let status = KernelStatus::new(&side.gpu)?;
    let (local, remote, bytes) = (views.local(), views.remote(), flags.size);
    let (pieces, rounds) = (flags.pipeline, flags.rounds);
    let (out, state): (KernelPtr<u64>, _) = (KernelPtr::new(&took), status.pointer());
    let kernel: Box<dyn SafeKernel> = match level {
        0 => Box::new(SimpleWriteThread {
            local,
            remote,
            bytes,
            pieces,
            rounds,
            took: out,
            status: state,
        }),
        _ => Box::new(SimpleWriteWarp {
            local,
            remote,
            bytes,
            pieces,
            rounds,
            took: out,
            status: state,
        }),
    };
    side.run(&*kernel, &status)?;
    let [nanos] = common::words(&side.gpu, &took)?;
    Ok(Duration::from_nanos(nanos))
}

fn target(flags: &Flags) -> Result<()> {
    let side = Side::new("target", &flags.gpu, flags.nic.as_deref(), flags.size)?;
    let mut store: Client = agents::connect(&flags.host, flags.port)?;
    store.set("target", &side.agent.metadata()?)?;
    side.agent.load_metadata(&store.get("initiator")?)?;
    let views = side.agent.views(&[&side.data, &side.counter], &[])?;
    for (level, name) in LEVELS.iter().enumerate() {
        let status = KernelStatus::new(&side.gpu)?;
        let expected = (level as u64 + 1) * u64::from(flags.rounds);
        let ns = WAIT.as_nanos() as u64;
        let kernel =
            SimpleWriteWait { local: views.local(), expected, ns, status: status.pointer() };
        side.run(&kernel, &status)?;
        let mut found = vec![0; flags.size as usize];
        side.data.read(0, &mut found)?;
        compare(&pattern(level, flags.size), &found)?;
        println!("[target] {name} level: counter {expected}, {} bytes verified", flags.size);
        store.set(&format!("verified {name}"), b"")?;
    }
    store.get("done")?;
    println!("passed: {} bytes arrived at each level", flags.size);
    store.set("bye", b"")?;
    Ok(store.close()?)
}
