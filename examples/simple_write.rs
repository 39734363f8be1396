//! A kernel of one process puts into memory of another's GPU and raises its counter; a kernel there
//! waits for that. Metadata goes through a store of PyTorch's protocol, which the initiator serves.
//! Either may be started first.
//!
//! ```text
//! simple_write --mode initiator --size 1048576
//! simple_write --mode target
//! ```

mod common;
#[path = "../tests/harness/writes.rs"]
mod writes;

use anyhow::{Result, ensure};
use common::{DEADLINE as WAIT, compare, roles::connect};
use std::process::ExitCode;
use std::sync::Arc;
use warpverbs::agent::{Agent, AgentConfig, Registration};
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice, KernelPtr, Place, SafeKernel};
use warpverbs::kernels::simple_write::{SimpleWriteThread, SimpleWriteWait, SimpleWriteWarp};
use warpverbs::rendezvous::{Deadline, Limits, Server};
use warpverbs::{Context, KernelStatus};
use writes::{Flags, LEVELS, Mode, pattern};

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        flags.check()?;
        match flags.mode {
            Mode::Initiator => initiator(&flags),
            Mode::Target => target(&flags),
        }
    })
}

/// A GPU, and an agent with data and a counter there that peers can map.
fn open(name: &str, flags: &Flags) -> Result<(Arc<dyn Gpu>, Agent, [Registration; 2])> {
    let gpu = gpu::open(flags.gpu.parse::<GpuChoice>()?)?;
    println!("[{name}] kernels on {}", gpu.info().name);
    let mut config = AgentConfig::default().gpu(&gpu);
    if let Some(nic) = &flags.nic {
        config = config.nic(&Context::new()?.open(nic.as_str())?);
    }
    let agent = Agent::new(name, config)?;
    let memory = [agent.alloc(flags.size, "data")?, agent.alloc(16, "counter")?];
    Ok((gpu, agent, memory))
}

/// Runs a kernel that is given where to leave its status.
fn run<K: SafeKernel>(gpu: &Arc<dyn Gpu>, kernel: impl FnOnce(&KernelStatus) -> K) -> Result<()> {
    let status = KernelStatus::new(gpu)?;
    gpu.launch(&kernel(&status), Dim::new(1, 32), 2 * WAIT)?.wait()?;
    Ok(status.check(&[])?)
}

fn initiator(flags: &Flags) -> Result<()> {
    let (gpu, agent, [ours, count]) = open("initiator", flags)?;
    let deadline = Deadline::after(WAIT);
    let server = Server::bind_host(&flags.host, flags.port, Limits::default(), deadline)?;
    let mut store = connect(&flags.host, server.local_addr().port())?;
    store.set("initiator", &agent.metadata()?)?;
    println!("[initiator] waiting for the target at {}", server.local_addr());
    let peer = agent.load_metadata(&store.get("target")?)?;
    let (data, counter) = (agent.remote(&peer, "data")?, agent.remote(&peer, "counter")?);
    let (theirs, bytes) = (data.len(), flags.size);
    ensure!(theirs == bytes, "the target has --size {theirs}, expected {bytes} as here");
    // Entry 0 of either side is the data, entry 1 the counter.
    let views = agent.views(&[&ours, &count], &[Some(&data), Some(&counter)])?;
    let path = views.path(&peer).map_or_else(String::new, |path| path.to_string());
    println!("[initiator] writes go by {path}");
    println!("{}", writes::HEAD);
    for (level, name) in LEVELS.iter().enumerate() {
        ours.write(0, &pattern(level, bytes))?;
        let time = gpu.alloc(8, Place::Shared)?;
        let (local, remote) = (views.local(), views.remote());
        let (pieces, rounds, took) = (flags.pipeline, flags.rounds, KernelPtr::new(&time));
        match level {
            0 => run(&gpu, |status| {
                let status = status.pointer();
                SimpleWriteThread { local, remote, bytes, pieces, rounds, took, status }
            })?,
            _ => run(&gpu, |status| {
                let status = status.pointer();
                SimpleWriteWarp { local, remote, bytes, pieces, rounds, took, status }
            })?,
        }
        let [nanos] = common::words(&gpu, &time)?;
        println!("{}", flags.row(name, nanos));
        store.get(&format!("verified {name}"))?;
    }
    store.set("done", b"")?;
    println!("passed: {bytes} bytes written by a kernel at each level, and verified");
    // The target ends its connection before the store goes.
    store.get("bye")?;
    Ok(())
}

fn target(flags: &Flags) -> Result<()> {
    let (gpu, agent, [data, count]) = open("target", flags)?;
    let mut store = connect(&flags.host, flags.port)?;
    store.set("target", &agent.metadata()?)?;
    agent.load_metadata(&store.get("initiator")?)?;
    let views = agent.views(&[&data, &count], &[])?;
    for (level, name) in LEVELS.iter().enumerate() {
        let expected = (level as u64 + 1) * u64::from(flags.rounds);
        let (local, ns) = (views.local(), WAIT.as_nanos() as u64);
        run(&gpu, |status| SimpleWriteWait { local, expected, ns, status: status.pointer() })?;
        compare(&pattern(level, flags.size), &data.to_vec()?)?;
        println!("[target] {name} level: counter {expected}, {} bytes verified", flags.size);
        store.set(&format!("verified {name}"), b"")?;
    }
    store.get("done")?;
    println!("passed: {} bytes arrived at each level", flags.size);
    store.set("bye", b"")?;
    Ok(store.close()?)
}
