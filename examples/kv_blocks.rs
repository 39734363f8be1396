//! A paged KV cache moves between two processes: one has filled its blocks, the other READs them into
//! blocks of its own in random order, and both compare digests.
//!
//! ```text
//! kv_blocks --blocks 4096 --block-bytes 4K
//! ```

mod agents;
mod common;

use agents::{Started, WAIT};
use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::agent::{Agent, AgentConfig, BlockList, Op, PostOptions, State};
use warpverbs::gpu::{self, GpuChoice};
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
    /// The part that this process plays; given by the process that starts both
    #[arg(long, requires = "server", hide = true)]
    role: Option<Role>,
    /// Where the metadata server listens
    #[arg(long, hide = true)]
    server: Option<SocketAddr>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Prefill,
    Decode,
}

fn main() -> ExitCode {
    common::main(|flags: Flags| match (flags.role, flags.server) {
        (Some(Role::Prefill), Some(server)) => prefill(&flags, server),
        (Some(Role::Decode), Some(server)) => decode(&flags, server),
        _ => both(&flags),
    })
}

fn both(flags: &Flags) -> Result<()> {
    let bytes = u64::from(flags.blocks).checked_mul(flags.block_bytes).filter(|bytes| *bytes != 0);
    let (blocks, each) = (flags.blocks, flags.block_bytes);
    ensure!(
        bytes.is_some_and(|bytes| bytes <= 64 << 30),
        "--blocks {blocks} of --block-bytes {each}, expected 1 byte to 64 GiB in all"
    );
    ensure!(flags.iterations != 0, "--iterations is 0, expected 1 or more");
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let seed = flags.seed.unwrap_or(clock.as_nanos() as u64);
    let more = [
        ("--gpu", flags.gpu.clone()),
        ("--blocks", blocks.to_string()),
        ("--block-bytes", each.to_string()),
        ("--iterations", flags.iterations.to_string()),
        ("--seed", seed.to_string()),
    ];
    let server = agents::serve()?;
    println!("{blocks} blocks of {each} bytes in the order of seed {seed}");
    let prefill = Started::new("prefill", server.local_addr(), &more)?;
    let decode = Started::new("decode", server.local_addr(), &more)?;
    decode.end()?;
    prefill.end()?;
    println!("passed: the digest of {blocks} blocks is the same at both processes");
    Ok(())
}

/// An agent, and a cache that other processes can map.
fn agent(name: &str, flags: &Flags) -> Result<Agent> {
    let choice: GpuChoice = flags.gpu.parse()?;
    let gpu = gpu::open(choice)?;
    println!("[{name}] cache in memory of {}", gpu.info().name);
    Ok(Agent::new(name, AgentConfig::default().gpu(&gpu))?)
}

fn prefill(flags: &Flags, server: SocketAddr) -> Result<()> {
    let agent = agent("prefill", flags)?;
    let (blocks, each) = (flags.blocks as usize, flags.block_bytes);
    let cache = agent.alloc(blocks as u64 * each, "cache")?;
    let mut numbers = Numbers(flags.seed.unwrap_or(0));
    let words = cache.len().div_ceil(8) as usize;
    let mut bytes: Vec<u8> = (0..words).flat_map(|_| numbers.next().to_le_bytes()).collect();
    bytes.truncate(cache.len() as usize);
    cache.write(0, &bytes)?;

    let mut store = agents::connect(&server.ip().to_string(), server.port())?;
    store.set("cache", &cache.blocks(0, each, blocks)?.to_bytes())?;
    store.set("digest", hex(&bytes).as_bytes())?;
    store.set("metadata", &agent.metadata()?)?;
    for _ in 0..=flags.iterations {
        agent.wait_remote_done("decode", b"read", WAIT)?;
    }
    store.get("checked")?;
    println!("[prefill] SHA-256 {}", hex(&bytes));
    Ok(())
}

fn decode(flags: &Flags, server: SocketAddr) -> Result<()> {
    let agent = agent("decode", flags)?;
    let (blocks, each) = (flags.blocks as usize, flags.block_bytes);
    let cache = agent.alloc(blocks as u64 * each, "cache")?;
    let mut store = agents::connect(&server.ip().to_string(), server.port())?;
    let peer = agent.load_metadata(&store.get("metadata")?)?;
    println!("[decode] {}", agent.explain(&cache, &agent.remote(&peer, "cache")?)?);

    // Block i of the peer lands in block order[i] here.
    let order = shuffled(flags.blocks, flags.seed.unwrap_or(0));
    let local = agent.prepare(&cache.blocks(0, each, blocks)?)?;
    let remote = agent.prepare(&BlockList::from_bytes(&store.get("cache")?)?)?;
    let indices: Vec<u32> = (0..flags.blocks).collect();
    let start = Instant::now();
    let read = agent.make(Op::Read, &local, &order, &remote, &indices)?;
    let made = start.elapsed();
    let mut times = Vec::new();
    for _ in 0..=flags.iterations {
        let start = Instant::now();
        read.post(PostOptions::new().notify("read"))?;
        ensure!(read.wait(WAIT)? == State::Done, "the READ has not ended");
        times.push(start.elapsed());
    }
    times.remove(0);
    times.sort();
    let median = times[times.len() / 2].max(Duration::from_nanos(1));
    let rate = cache.len() as f64 / median.as_secs_f64() / 1e9;
    println!(
        "[decode] made in {made:.1?}; median of {} READs {median:.1?}, {rate:.2} GB/s",
        times.len()
    );

    let mut bytes = vec![0; cache.len() as usize];
    cache.read(0, &mut bytes)?;
    let each = each as usize;
    let sorted: Vec<u8> =
        order.iter().flat_map(|at| &bytes[*at as usize * each..][..each]).copied().collect();
    let (expected, found) = (String::from_utf8(store.get("digest")?)?, hex(&sorted));
    println!("[decode] SHA-256 {found}");
    ensure!(expected == found, "the digest is {found}, that of the other process {expected}");
    store.set("checked", b"")?;
    Ok(store.close()?)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers without quality, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }
}

/// The numbers below `count` in random order.
fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut numbers = Numbers(!seed);
    let mut order: Vec<u32> = (0..count).collect();
    for i in (1..count as usize).rev() {
        order.swap(i, ((numbers.next() >> 16) % (i as u64 + 1)) as usize);
    }
    order
}
