//! A target and an initiator in processes of their own. The target publishes metadata and descriptors
//! at a TCP metadata server; the initiator READs two buffers, and WRITEs them back crossed.
//!
//! ```text
//! two_processes
//! ```

mod common;

use anyhow::{Context as _, Result};
use clap::Parser;
use common::{DEADLINE as WAIT, compare};
use std::process::ExitCode;
use warpverbs::agent::{Agent, AgentConfig, BlockList, Op, PostOptions, State};
use warpverbs::rendezvous::{Client, RankInfo, World, WorldConfig};

/// Bytes of a buffer; each process has two.
const BUFFER: u64 = 256;

/// Two processes and a metadata server: READ, then a crossed WRITE
#[derive(Parser)]
#[command(version)]
struct Flags {}

fn main() -> ExitCode {
    common::main(|Flags {}| {
        // The processes that are started come here too, and have a rank.
        if std::env::var_os("RANK").is_none() {
            println!("[main] Starting TCP metadata server...");
            println!("[main] Starting target and initiator processes...");
        }
        let Some(launch) = RankInfo::here(2)? else {
            println!("[main] ✓ Test Complete - Both processes succeeded!");
            println!("passed: two buffers of {BUFFER} bytes read, and written back crossed");
            return Ok(());
        };
        let mut world = World::join(&WorldConfig::new(&launch).timeout(WAIT))?;
        match world.rank() {
            0 => target(world.client())?,
            _ => initiator(world.client())?,
        }
        Ok(world.leave()?)
    })
}

/// Two buffers, one after the other: bytes of the first, bytes of the second.
fn buffers(first: u8, second: u8) -> Vec<u8> {
    let each = |byte: u8| (0..BUFFER as usize).map(move |i| byte.wrapping_add(i as u8));
    each(first).chain(each(second)).collect()
}

fn target(store: &mut Client) -> Result<()> {
    println!("[target] Starting target process");
    let agent = Agent::new("target", AgentConfig::default())?;
    let memory = agent.register(buffers(10, 60), "buffers")?;
    println!("[target] Memory registered");

    store.set("target_meta", &agent.metadata()?)?;
    store.set("target_descs", &memory.blocks(0, BUFFER, 2)?.to_bytes())?;
    println!("[target] Published metadata and xfer descriptors to TCP server");

    println!("[target] Waiting for transfers...");
    agent.wait_remote_done("initiator", b"UUID1", WAIT)?;
    println!("[target] Transfer 1 done");
    agent.wait_remote_done("initiator", b"UUID2", WAIT)?;
    println!("[target] Transfer 2 done");
    compare(&buffers(60, 10), &memory.to_vec()?).context("after the WRITE")?;
    // The initiator has seen that its last notification came before this memory goes.
    store.get("initiator_done")?;
    println!("[target] Target process complete");
    Ok(())
}

fn initiator(store: &mut Client) -> Result<()> {
    println!("[initiator] Starting initiator process");
    let agent = Agent::new("initiator", AgentConfig::default())?;
    let memory = agent.register(vec![0; 2 * BUFFER as usize], "buffers")?;
    println!("[initiator] Memory registered");

    println!("[initiator] Waiting for target metadata...");
    let name = agent.load_metadata(&store.get("target_meta")?)?;
    println!("[initiator] Loaded remote agent: {name}");
    let remote = BlockList::from_bytes(&store.get("target_descs")?)?;
    println!("[initiator] Successfully retrieved target descriptors");

    println!("[initiator] Starting transfer 1 (READ)...");
    let local = memory.blocks(0, BUFFER, 2)?;
    let read = agent.transfer(Op::Read, &local, &remote)?;
    let state = read.post(PostOptions::new().notify("UUID1"))?;
    let state = if state == State::Done { "DONE" } else { "PROC" };
    println!("[initiator] Initial transfer state: {state}");
    read.wait(WAIT)?;
    println!("[initiator] Transfer 1 done");
    compare(&buffers(10, 60), &memory.to_vec()?).context("after the READ")?;

    println!("[initiator] Starting transfer 2 (WRITE)...");
    let (local, remote) = (agent.prepare(&local)?, agent.prepare(&remote)?);
    let write = agent.prepared_transfer(Op::Write, &local, &[0, 1], &remote, &[1, 0])?;
    write.post(PostOptions::new().notify("UUID2"))?;
    write.wait(WAIT)?;
    println!("[initiator] Transfer 2 done");
    store.set("initiator_done", b"")?;
    println!("[initiator] Initiator process complete");
    Ok(())
}
