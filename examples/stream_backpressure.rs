//! Two processes: messages by one-shot transfers, then by streams, to a receiver that takes them at
//! once and to a slow one. Prints throughput, credits and stalls; both compare digests.
//!
//! ```text
//! stream_backpressure --messages 256 --bytes 64K --slots 16 --delay-us 500
//! ```

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::{DEADLINE as WAIT, parse_size, within};
use rand::Rng as _;
use sha2::{Digest as _, Sha256};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::agent::{Agent, AgentConfig, Op, PostOptions, State, StreamConfig, StreamStats};
use warpverbs::rendezvous::{RankInfo, World, WorldConfig};

/// A stream of messages to a slow receiver, beside one-shot transfers
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Messages of each part
    #[arg(long, default_value_t = 256)]
    messages: u64,
    /// Bytes of a message
    #[arg(long, default_value = "64K", value_parser = parse_size)]
    bytes: u64,
    /// Messages that the receiver's ring holds
    #[arg(long, default_value_t = 16)]
    slots: u32,
    /// Microseconds that the slow receiver spends on each message
    #[arg(long, default_value_t = 500)]
    delay_us: u64,
}

/// The first part; then the streams, and whether the receiver is slow.
const ONE_SHOT: &str = "one-shot transfers";
const STREAMS: [(&str, bool); 2] = [("stream", false), ("slow receiver", true)];

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--bytes", flags.bytes, 1, 1 << 30)?;
        within("--messages", flags.messages, 1, (1 << 30) / flags.bytes)?;
        within("--slots", flags.slots, 1, 65536)?;
        let Some(launch) = RankInfo::here(2)? else {
            println!("passed: {} messages, sent three times, are the same", flags.messages);
            return Ok(());
        };
        let mut world = World::join(&WorldConfig::new(&launch).timeout(WAIT))?;
        let part = if world.rank() == 0 { receiver } else { sender };
        part(&flags, &mut world)?;
        Ok(world.leave()?)
    })
}

fn receiver(flags: &Flags, world: &mut World) -> Result<()> {
    let agent = Agent::new("receiver", AgentConfig::default())?;
    let landing = agent.alloc(flags.messages * flags.bytes, "landing")?;
    let ring = || StreamConfig::default().slots(flags.slots).slot_bytes(flags.bytes);
    let streams = STREAMS.map(|(name, _)| agent.stream(name, ring()));
    world.exchange("metadata", &agent.metadata()?)?;
    for number in 0..flags.messages {
        agent.wait_remote_done("sender", &number.to_le_bytes(), WAIT)?;
    }
    world.exchange(ONE_SHOT, &Sha256::digest(landing.to_vec()?))?;
    for (stream, (name, is_slow)) in streams.into_iter().zip(STREAMS) {
        let (mut stream, mut digest) = (stream?, Sha256::default());
        // Dropping a message gives its slot back.
        while let Some(message) = stream.recv(WAIT)? {
            digest.update(message.to_vec()?);
            std::thread::sleep(Duration::from_micros(if is_slow { flags.delay_us } else { 0 }));
        }
        world.exchange(name, &digest.finalize())?;
    }
    Ok(())
}

fn sender(flags: &Flags, world: &mut World) -> Result<()> {
    let agent = Agent::new("sender", AgentConfig::default())?;
    let peer = agent.load_metadata(&world.exchange("metadata", b"")?[0])?;
    let ours = agent.alloc(flags.bytes, "ours")?;
    let (landing, from) = (agent.remote(&peer, "landing")?, ours.blocks(0, flags.bytes, 1)?);
    println!("[sender] {}", agent.explain(&ours, &landing)?);
    let mut data = vec![0; (flags.messages * flags.bytes) as usize];
    rand::rng().fill_bytes(&mut data);
    let messages = || (0..).zip(data.chunks(flags.bytes as usize));
    let mut compare = |name: &str, start: Instant, notes: &str| {
        let (took, digest) = (start.elapsed(), Sha256::digest(&data));
        let rate = data.len() as f64 / took.as_secs_f64() / 1e9;
        println!("[sender] {name:<18} {took:>9.2?}, {rate:>6.2} GB/s; {notes}");
        ensure!(world.exchange(name, &digest)?[0] == digest[..], "{name}: the digests differ");
        Ok(())
    };

    let start = Instant::now();
    for (number, message) in messages() {
        ours.write(0, message)?;
        let to = landing.blocks(number * flags.bytes, flags.bytes, 1)?;
        let write = agent.transfer(Op::Write, &from, &to)?;
        write.post(PostOptions::new().notify(number.to_le_bytes()))?;
        ensure!(write.wait(WAIT)? == State::Done, "the WRITE has not ended");
    }
    compare(ONE_SHOT, start, "each waited for")?;
    for (name, _) in STREAMS {
        let mut stream = agent.stream_to(&peer, name, WAIT)?;
        let start = Instant::now();
        messages().try_for_each(|(_, message)| stream.send(message, WAIT))?;
        stream.finish(WAIT)?;
        let StreamStats { credits, stalls, stalled, .. } = stream.stats();
        compare(
            name,
            start,
            &format!("{credits} credits, {stalls} stalls of {stalled:.1?} in all"),
        )?;
    }
    Ok(())
}
