//! A paged KV cache moves between two processes: one has filled its blocks, the other READs them into
//! blocks of its own in random order, and both compare digests.
//!
//! ```text
//! kv_blocks --blocks 4096 --block-bytes 4K
//! ```

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::{DEADLINE as WAIT, digest::Digest, roles::Part};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::agent::{Agent, AgentConfig, BlockList, Op, PostOptions, State};
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::rendezvous::Client;
use warpverbs_bench::units::parse_size;

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
    #[arg(long, default_value_t = 10)]
    iterations: u32,
    /// Of the random order; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    part: Part,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let (blocks, each) = (flags.blocks, flags.block_bytes);
        let all = u128::from(blocks) * u128::from(each);
        let said = format!("--blocks {blocks} of --block-bytes {each}");
        ensure!((1..=64 << 30).contains(&all), "{said}, expected 1 byte to 64 GiB in all");
        common::within("--iterations", flags.iterations.into(), 1, u32::MAX.into())?;
        let seed = flags.seed.unwrap_or_else(rand::random);
        let more = flags.seed.is_none().then(|| format!("--seed={seed}"));
        flags.part.say(&format!("{blocks} blocks of {each} bytes in the order of seed {seed}"));
        flags.part.play(&flags, [("prefill", prefill), ("decode", decode)], more.as_slice())?;
        flags.part.say(&format!("passed: {blocks} blocks have the same digest at both processes"));
        Ok(())
    })
}

/// An agent, and a cache that other processes can map.
fn agent(name: &str, flags: &Flags) -> Result<Agent> {
    let gpu = gpu::open(flags.gpu.parse::<GpuChoice>()?)?;
    println!("[{name}] cache in memory of {}", gpu.info().name);
    Ok(Agent::new(name, AgentConfig::default().gpu(&gpu))?)
}

fn prefill(flags: &Flags, mut store: Client) -> Result<()> {
    let agent = agent("prefill", flags)?;
    let (blocks, each) = (flags.blocks as usize, flags.block_bytes);
    let cache = agent.alloc(blocks as u64 * each, "cache")?;
    let mut bytes = vec![0; cache.len() as usize];
    StdRng::seed_from_u64(flags.seed.unwrap_or(0)).fill_bytes(&mut bytes);
    cache.write(0, &bytes)?;

    store.set("cache", &cache.blocks(0, each, blocks)?.to_bytes())?;
    let digest = Digest::of(&bytes);
    println!("[prefill] SHA-256 {}", digest.clone().text());
    digest.tell(&mut store, "the cache")?;
    store.set("metadata", &agent.metadata()?)?;
    for _ in 0..=flags.iterations {
        agent.wait_remote_done("decode", b"read", WAIT)?;
    }
    Ok(store.get("checked").map(drop)?)
}

fn decode(flags: &Flags, mut store: Client) -> Result<()> {
    let agent = agent("decode", flags)?;
    let (blocks, each) = (flags.blocks as usize, flags.block_bytes);
    let cache = agent.alloc(blocks as u64 * each, "cache")?;
    let peer = agent.load_metadata(&store.get("metadata")?)?;
    println!("[decode] {}", agent.explain(&cache, &agent.remote(&peer, "cache")?)?);

    // Block i of the peer lands in block order[i] here.
    let indices: Vec<u32> = (0..flags.blocks).collect();
    let mut order = indices.clone();
    order.shuffle(&mut StdRng::seed_from_u64(flags.seed.unwrap_or(0)));
    let local = agent.prepare(&cache.blocks(0, each, blocks)?)?;
    let remote = agent.prepare(&BlockList::from_bytes(&store.get("cache")?)?)?;
    let start = Instant::now();
    let read = agent.prepared_transfer(Op::Read, &local, &order, &remote, &indices)?;
    let made = start.elapsed();
    let mut times = Vec::new();
    for _ in 0..=flags.iterations {
        let start = Instant::now();
        read.post(PostOptions::new().notify("read"))?;
        ensure!(read.wait(WAIT)? == State::Done, "the READ has not ended");
        times.push(start.elapsed());
    }
    // The first is not counted.
    times.remove(0);
    times.sort();
    let median = times[times.len() / 2].max(Duration::from_nanos(1));
    let (rate, rounds) = (cache.len() as f64 / median.as_secs_f64() / 1e9, flags.iterations);
    println!("[decode] made in {made:.1?}; median of {rounds} READs {median:.1?}, {rate:.2} GB/s");
    let (bytes, mut digest) = (cache.to_vec()?, Digest::default());
    order.iter().for_each(|at| digest.add(&bytes[*at as usize * each as usize..][..each as usize]));
    digest.compare(&mut store, "decode", "the cache")?;
    store.set("checked", b"")?;
    Ok(store.close()?)
}
