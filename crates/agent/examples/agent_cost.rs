//! What transfers between two processes of this machine cost, and what making them does.
//!
//! `cargo run --release -p warpverbs-agent --example agent_cost` starts the other process itself.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_agent::{Agent, AgentConfig, BlockList, Op, PostOptions};

const LEN: u64 = 64 << 20;
const SOON: Duration = Duration::from_secs(30);
/// Tells the program that it is the other process.
const OTHER: &str = "AGENT_COST_OTHER";

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(OTHER).is_some() {
        return other();
    }
    let mut child = Command::new(std::env::current_exe()?)
        .env(OTHER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let measured = measure(line.trim().parse()?);
    // Its input ends, and so does it.
    drop(child.stdin.take());
    child.wait()?;
    measured
}

fn other() -> Result<(), Box<dyn Error>> {
    let agent = Agent::new("other", AgentConfig::default())?;
    let _private = agent.register(vec![7; LEN as usize], "private")?;
    let shared = agent.alloc(LEN, "shared")?;
    shared.write(0, &vec![7; LEN as usize])?;
    println!("{}", agent.address());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Whole blocks of `len` bytes, the remote ones in an order in which none is merged with another.
fn lists(
    blocks: impl Fn(&[u64], u64) -> Result<BlockList, warpverbs_agent::AgentError>,
    len: u64,
    count: u64,
    reverse: bool,
) -> Result<BlockList, warpverbs_agent::AgentError> {
    let mut at: Vec<u64> = (0..count).map(|i| i * len).collect();
    if reverse {
        at.reverse();
    }
    blocks(&at, len)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn measure(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let agent = Agent::new("one", AgentConfig::default())?;
    let ours = agent.register(vec![1; LEN as usize], "ours")?;
    agent.fetch_metadata(address, SOON)?;
    for label in ["private", "shared"] {
        let remote = agent.remote("other", label)?;
        println!("{label}: {}", agent.explain(&ours, &remote)?);
        for op in [Op::Write, Op::Read] {
            for (len, count) in [(8, 1), (4096, 1), (1 << 16, 1), (1 << 20, 1), (1 << 24, 1)]
                .into_iter()
                .chain([(4096, 256), (4096, 4096), (8, 4096)])
            {
                let local = lists(|at, len| ours.blocks_at(at, len), len, count, false)?;
                let there = lists(|at, len| remote.blocks_at(at, len), len, count, true)?;
                let start = Instant::now();
                let _initialized = agent.initialize(op, &local, &there)?;
                let initialize = start.elapsed().as_secs_f64() * 1e6;
                let (local, there) = (agent.prepare(&local)?, agent.prepare(&there)?);
                let index: Vec<u32> = (0..count as u32).collect();
                let start = Instant::now();
                let transfer = agent.make(op, &local, &index, &there, &index)?;
                let make = start.elapsed().as_secs_f64() * 1e6;
                let rounds = if len * count < 1 << 20 { 1000 } else { 60 };
                let mut times = Vec::with_capacity(rounds);
                for _ in 0..rounds {
                    let start = Instant::now();
                    transfer.post(PostOptions::new())?;
                    transfer.wait(SOON)?;
                    times.push(start.elapsed());
                }
                let time = median(times);
                println!(
                    "  {op:?} {len:>8} x {count:<4} {time:>9.2} us {:>7.2} GB/s  make {make:>7.1} us  \
                     initialize {initialize:>7.1} us",
                    (len * count) as f64 / time / 1e3
                );
            }
        }
    }
    Ok(())
}
