//! A kernel of one process puts into memory of another's GPU and raises its counter; a kernel there
//! waits for that. Metadata goes through a store, which the initiator serves; either may be first.
//!
//! ```text
//! simple_write --mode initiator --size 1048576
//! simple_write --mode target
//! ```

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::{DEADLINE as WAIT, compare, parse_size, sample, within, words};
use std::{process::ExitCode, sync::Arc};
use warpverbs::KernelStatus;
use warpverbs::agent::{Agent, AgentConfig, Registration};
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice, KernelPtr, Place, SafeKernel};
use warpverbs::kernels::simple_write::{SimpleWriteThread, SimpleWriteWait, SimpleWriteWarp};
use warpverbs::rendezvous::{Client, Deadline, Limits, Server};

/// A kernel writes into another process's GPU and signals
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// The part that this process plays
    #[arg(long, default_value = "initiator", value_parser = ["initiator", "target"])]
    mode: String,
    /// Bytes of the buffer
    #[arg(long, default_value = "1M", value_parser = parse_size)]
    size: u64,
    /// Where the initiator serves the store, and its port
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    #[arg(long, default_value_t = 9998)]
    port: u16,
    /// Where kernels run: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
    /// A NIC for memory that cannot be mapped; without one the GPUs must share a machine
    #[arg(long)]
    nic: Option<String>,
    /// Writes of each level, and parts of each that are posted without waiting
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[arg(long, default_value_t = 4)]
    pipeline: u32,
    #[arg(long, default_value = "warp", value_parser = ["thread", "warp"])]
    level: String,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--size", flags.size, 1, 1 << 36)?;
        within("--pipeline", flags.pipeline, 1, flags.size)?;
        if flags.mode == "initiator" { initiator(&flags) } else { target(&flags) }
    })
}

/// A GPU, and an agent with data and a counter there that peers can map.
fn open(flags: &Flags) -> Result<(Arc<dyn Gpu>, Agent, [Registration; 2])> {
    let gpu = gpu::open(flags.gpu.parse::<GpuChoice>()?)?;
    println!("[{}] kernels on {}", flags.mode, gpu.info().name);
    let mut config = AgentConfig::default().gpu(&gpu);
    if let Some(nic) = &flags.nic {
        config = config.nic(&warpverbs::Context::new()?.open(nic.as_str())?);
    }
    let agent = Agent::new(&flags.mode, config)?;
    let memory = [agent.alloc(flags.size, "data")?, agent.alloc(16, "counter")?];
    Ok((gpu, agent, memory))
}

fn initiator(flags: &Flags) -> Result<()> {
    let (gpu, agent, [ours, count]) = open(flags)?;
    let wait = Deadline::after(WAIT);
    let server = Server::bind_host(&flags.host, flags.port, Limits::default(), wait)?;
    println!("[initiator] waiting for the target at {}", server.local_addr());
    let (port, bytes) = (server.local_addr().port(), flags.size);
    let mut store = Client::connect(&flags.host, port, WAIT, Limits::default())?;
    store.set("initiator", &agent.metadata()?)?;
    let peer = agent.load_metadata(&store.get("target")?)?;
    let (data, counter) = (agent.remote(&peer, "data")?, agent.remote(&peer, "counter")?);
    ensure!(data.len() == bytes, "the target has --size {}, expected {bytes}", data.len());
    // Entry 0 of either side is the data, entry 1 the counter.
    let views = agent.views(&[&ours, &count], &[Some(&data), Some(&counter)])?;
    println!("[initiator] writes go by {}", views.path(&peer).context("no path to the target")?);
    ours.write(0, &sample(0, bytes as usize))?;
    let (time, state) = (gpu.alloc(8, Place::Shared)?, KernelStatus::new(&gpu)?);
    let (local, remote, status) = (views.local(), views.remote(), state.pointer());
    let (pieces, rounds, took) = (flags.pipeline, flags.rounds, KernelPtr::new(&time));
    let kernel: Box<dyn SafeKernel> = match flags.level == "warp" {
        true => Box::new(SimpleWriteWarp { local, remote, bytes, pieces, rounds, took, status }),
        false => Box::new(SimpleWriteThread { local, remote, bytes, pieces, rounds, took, status }),
    };
    gpu.launch(&*kernel, Dim::new(1, 32), 2 * WAIT)?.wait()?;
    state.check(&[])?;
    let [nanos] = words(&gpu, &time)?;
    let each = nanos as f64 / f64::from(rounds) / 1e3;
    println!("[initiator] {rounds} writes by a {}, {each:.2} µs each", flags.level);
    // The target ends its connection before the store goes.
    store.get("verified")?;
    println!("passed: {bytes} bytes written by a kernel, and verified");
    Ok(())
}

fn target(flags: &Flags) -> Result<()> {
    let (gpu, agent, [data, count]) = open(flags)?;
    let mut store = Client::connect(&flags.host, flags.port, WAIT, Limits::default())?;
    store.set("target", &agent.metadata()?)?;
    agent.load_metadata(&store.get("initiator")?)?;
    let views = agent.views(&[&data, &count], &[])?;
    let (state, ns) = (KernelStatus::new(&gpu)?, WAIT.as_nanos() as u64);
    let (local, status, expected) = (views.local(), state.pointer(), flags.rounds.into());
    let kernel = SimpleWriteWait { local, expected, ns, status };
    gpu.launch(&kernel, Dim::new(1, 32), 2 * WAIT)?.wait()?;
    state.check(&[])?;
    compare(&sample(0, flags.size as usize), &data.to_vec()?)?;
    println!("passed: {} bytes arrived, and the counter is {expected}", flags.size);
    store.set("verified", b"")?;
    Ok(store.close()?)
}
