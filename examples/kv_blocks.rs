//! A paged KV cache moves between two processes: one has filled its blocks, the other READs them into
//! blocks of its own in random order, and both compare digests.
//!
//! ```text
//! kv_blocks --blocks 4096 --block-bytes 4K
//! ```

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::{DEADLINE as WAIT, parse_size, within};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use sha2::{Digest as _, Sha256};
use std::{process::ExitCode, time::Instant};
use warpverbs::agent::{Agent, AgentConfig, BlockList, Op, PostOptions, State};
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::rendezvous::{RankInfo, World, WorldConfig};

/// A paged KV cache, read by another process in random order
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Where the caches lie: auto, simt (host memory), cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
    /// Blocks of a cache
    #[arg(long, default_value_t = 4096)]
    blocks: u32,
    /// Bytes of a block
    #[arg(long, default_value = "4K", value_parser = parse_size)]
    block_bytes: u64,
    /// Transfers of the whole cache that are timed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Of the random order; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let (blocks, each) = (flags.blocks, flags.block_bytes);
        let all = u64::from(blocks).saturating_mul(each);
        within(&format!("--blocks {blocks} of --block-bytes {each}"), all, 1, 64 << 30)?;
        let Some(launch) = RankInfo::here(2)? else {
            println!("passed: {blocks} blocks have the same digest at both processes");
            return Ok(());
        };
        let mut world = World::join(&WorldConfig::new(&launch).timeout(WAIT))?;
        let part = if world.rank() == 0 { prefill } else { decode };
        part(&flags, &mut world)?;
        Ok(world.leave()?)
    })
}

/// An agent, and a cache that other processes can map.
fn agent(name: &str, flags: &Flags) -> Result<Agent> {
    let gpu = gpu::open(flags.gpu.parse::<GpuChoice>()?)?;
    println!("[{name}] cache in memory of {}", gpu.info().name);
    Ok(Agent::new(name, AgentConfig::default().gpu(&gpu))?)
}

fn prefill(flags: &Flags, world: &mut World) -> Result<()> {
    let agent = agent("prefill", flags)?;
    let (blocks, each) = (flags.blocks as usize, flags.block_bytes);
    let cache = agent.alloc(blocks as u64 * each, "cache")?;
    let mut bytes = vec![0; cache.len() as usize];
    rand::rng().fill_bytes(&mut bytes);
    cache.write(0, &bytes)?;

    // Metadata and lists of blocks are bytes, which travel by any means: here, by the world.
    world.exchange("metadata", &agent.metadata()?)?;
    world.exchange("cache", &cache.blocks(0, each, blocks)?.to_bytes())?;
    for _ in 0..flags.iterations {
        agent.wait_remote_done("decode", b"read", WAIT)?;
    }
    compare("prefill", Sha256::digest(&bytes).to_vec(), world)
}

/// Prints a digest, which must be that of the other process.
fn compare(who: &str, digest: Vec<u8>, world: &mut World) -> Result<()> {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("[{who}] SHA-256 {hex}");
    let all = world.exchange("digest", &digest)?;
    ensure!(all[0] == all[1], "the digests differ");
    Ok(())
}

fn decode(flags: &Flags, world: &mut World) -> Result<()> {
    let agent = agent("decode", flags)?;
    let (blocks, each) = (flags.blocks as usize, flags.block_bytes);
    let cache = agent.alloc(blocks as u64 * each, "cache")?;
    let peer = agent.load_metadata(&world.exchange("metadata", b"")?[0])?;
    println!("[decode] {}", agent.explain(&cache, &agent.remote(&peer, "cache")?)?);

    // Block i of the peer lands in block order[i] here.
    let indices: Vec<u32> = (0..flags.blocks).collect();
    let seed = flags.seed.unwrap_or_else(rand::random);
    println!("[decode] reads {blocks} blocks of {each} bytes in the order of seed {seed}");
    let mut order = indices.clone();
    order.shuffle(&mut StdRng::seed_from_u64(seed));
    let local = agent.prepare(&cache.blocks(0, each, blocks)?)?;
    let remote = agent.prepare(&BlockList::from_bytes(&world.exchange("cache", b"")?[0])?)?;
    let read = agent.prepared_transfer(Op::Read, &local, &order, &remote, &indices)?;
    let start = Instant::now();
    for _ in 0..flags.iterations {
        read.post(PostOptions::new().notify("read"))?;
        ensure!(read.wait(WAIT)? == State::Done, "the READ has not ended");
    }
    let took = start.elapsed() / flags.iterations;
    let rate = cache.len() as f64 / took.as_secs_f64() / 1e9;
    println!("[decode] each of {} READs took {took:.1?}, {rate:.2} GB/s", flags.iterations);
    let (bytes, mut digest) = (cache.to_vec()?, Sha256::default());
    let block = |at: &u32| &bytes[(u64::from(*at) * each) as usize..][..each as usize];
    order.iter().for_each(|at| digest.update(block(at)));
    compare("decode", digest.finalize().to_vec(), world)
}
