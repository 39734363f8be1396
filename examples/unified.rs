//! Two agents in one process: metadata and descriptors are handed over in memory.
//!
//! ```text
//! unified --bytes 1M --blocks 16
//! ```

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::{MAX_BYTES, compare, parse_size, poison, sample, within};
use std::process::ExitCode;
use std::time::Duration;
use warpverbs::agent::{Agent, AgentConfig, BlockList, Op, PostOptions, State};

const WAIT: Duration = Duration::from_secs(30);

/// Two agents of one process: READ, WRITE, notifications
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Bytes of each agent's memory
    #[arg(long, default_value = "1M", value_parser = parse_size)]
    bytes: u64,
    /// Blocks that it is cut into
    #[arg(long, default_value_t = 16)]
    blocks: u32,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    within("--bytes", flags.bytes, 1, MAX_BYTES)?;
    let len = flags.bytes as usize;
    let blocks = flags.blocks as usize;
    ensure!(
        blocks != 0 && len.is_multiple_of(blocks),
        "--blocks is {blocks}, expected a divisor of --bytes {len}"
    );
    let each = (len / blocks) as u64;
    let data = sample(0, len);

    // Each registers its memory under a label.
    let target = Agent::new("target", AgentConfig::default())?;
    let initiator = Agent::new("initiator", AgentConfig::default())?;
    let theirs = target.register(data.clone(), "data")?;
    let ours = initiator.register(poison(&data), "data")?;
    println!("registered {len} bytes at each of two agents");

    // Metadata and lists of blocks are bytes, which travel by any means: here, none.
    let name = initiator.load_metadata(&target.metadata()?)?;
    let from = BlockList::from_bytes(&theirs.blocks(0, each, blocks)?.to_bytes())?;
    let into = ours.blocks(0, each, blocks)?;
    println!("{name}: {}", initiator.explain(&ours, &initiator.remote(&name, "data")?)?);

    // One call makes a transfer of two lists.
    let read = initiator.transfer(Op::Read, &into, &from)?;
    read.post(PostOptions::new().notify("read"))?;
    ensure!(read.wait(WAIT)? == State::Done, "the READ has not ended");
    target.wait_remote_done("initiator", b"read", WAIT)?;
    let mut found = vec![0; len];
    ours.read(0, &mut found)?;
    compare(&data, &found)?;
    println!("READ of {blocks} blocks: {:?}", read.telemetry()?);

    // Lists that were prepared once serve many transfers, which choose blocks by index: block i of
    // the initiator goes to where the last but i was.
    let (local, remote) = (initiator.prepare(&into)?, initiator.prepare(&from)?);
    let forth: Vec<u32> = (0..flags.blocks).collect();
    let back: Vec<u32> = forth.iter().rev().copied().collect();
    let write = initiator.prepared_transfer(Op::Write, &local, &forth, &remote, &back)?;
    write.post(PostOptions::new().notify("written"))?;
    ensure!(write.wait(WAIT)? == State::Done, "the WRITE has not ended");
    target.wait_remote_done("initiator", b"written", WAIT)?;
    theirs.read(0, &mut found)?;
    let reversed: Vec<u8> = data.chunks(each as usize).rev().flatten().copied().collect();
    compare(&reversed, &found)?;
    println!("WRITE of {blocks} blocks in reverse order: {:?}", write.telemetry()?);
    println!("passed: {len} bytes read, and written in reverse order of their blocks");
    Ok(())
}
