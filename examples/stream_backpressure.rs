//! Two processes: messages by one-shot transfers, then by streams, to a receiver that takes them at
//! once and to a slow one. Prints throughput, credits and stalls; both compare digests.
//!
//! ```text
//! stream_backpressure --messages 256 --bytes 64K --slots 16 --delay-us 500
//! ```

mod agents;
mod common;

use agents::{Part, WAIT};
use anyhow::{Result, ensure};
use clap::Parser;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::agent::{Agent, AgentConfig, Op, PathKind, PostOptions, State, StreamConfig};
use warpverbs::rendezvous::Client;
use warpverbs_bench::units::parse_size;

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
    /// The path that messages take: the best there is, memory that both processes map, copies by the
    /// kernel, or TCP sockets
    #[arg(long, default_value = "auto", value_parser = ["auto", "mapped", "process-copy", "tcp"])]
    path: String,
    #[command(flatten)]
    part: Part,
}

/// The first part; then the streams.
const ONE_SHOT: &str = "one-shot transfers";
const STREAMS: [&str; 2] = ["stream", "slow receiver"];

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let (messages, bytes, slots) = (flags.messages, flags.bytes, flags.slots);
        common::within("--bytes", bytes, 1, 1 << 30)?;
        common::within("--messages", messages, 1, (16 << 30) / bytes)?;
        common::within("--slots", slots.into(), 1, 65536)?;
        flags.part.say(&format!("{messages} messages of {bytes} bytes, {slots} slots"));
        agents::play(&flags, &flags.part, [("receiver", receiver), ("sender", sender)], &[])?;
        let said =
            format!("passed: the digests of {messages} messages, sent three times, are the same");
        flags.part.say(&said);
        Ok(())
    })
}

fn agent(name: &str, flags: &Flags) -> Result<Agent> {
    let config = AgentConfig::default();
    let config = match flags.path.as_str() {
        "mapped" => config.require(PathKind::Mapped),
        "process-copy" => config.require(PathKind::ProcessCopy),
        "tcp" => config.require(PathKind::Tcp),
        _ => config,
    };
    Ok(Agent::new(name, config)?)
}

fn receiver(flags: &Flags, mut store: Client) -> Result<()> {
    let agent = agent("receiver", flags)?;
    let landing = agent.alloc(flags.messages * flags.bytes, "landing")?;
    let ring = || StreamConfig::default().slots(flags.slots).slot_bytes(flags.bytes);
    let streams = STREAMS.map(|name| agent.stream(name, ring()));
    store.set("metadata", &agent.metadata()?)?;

    let mut seen = vec![0; flags.bytes as usize];
    let mut digest = agents::Digest::default();
    for number in 0..flags.messages {
        agent.wait_remote_done("sender", &number.to_le_bytes(), WAIT)?;
        landing.read(number * flags.bytes, &mut seen)?;
        digest.add(&seen);
    }
    digest.tell(&mut store, ONE_SHOT)?;
    for stream in streams {
        let (mut stream, mut digest) = (stream?, agents::Digest::default());
        // Dropping a message gives its slot back.
        while let Some(message) = stream.recv(WAIT)? {
            message.read(0, &mut seen)?;
            digest.add(&seen);
            if stream.name() == STREAMS[1] {
                std::thread::sleep(Duration::from_micros(flags.delay_us));
            }
        }
        digest.tell(&mut store, stream.name())?;
    }
    store.get("checked")?;
    Ok(store.close()?)
}

fn sender(flags: &Flags, mut store: Client) -> Result<()> {
    let agent = agent("sender", flags)?;
    let peer = agent.load_metadata(&store.get("metadata")?)?;
    let ours = agent.alloc(flags.bytes, "ours")?;
    let (landing, from) = (agent.remote(&peer, "landing")?, ours.blocks(0, flags.bytes, 1)?);
    println!("[sender] {}", agent.explain(&ours, &landing)?);
    let (digest, took) = agents::send(flags.messages, flags.bytes, |number, bytes| {
        ours.write(0, bytes)?;
        let to = landing.blocks(number * flags.bytes, flags.bytes, 1)?;
        let write = agent.transfer(Op::Write, &from, &to)?;
        write.post(PostOptions::new().notify(number.to_le_bytes()))?;
        ensure!(write.wait(WAIT)? == State::Done, "the WRITE has not ended");
        Ok(())
    })?;
    report(flags, ONE_SHOT, took, "each waited for");
    digest.compare(&mut store, "sender", ONE_SHOT)?;
    for name in STREAMS {
        let mut stream = agent.stream_to(&peer, name, WAIT)?;
        let send = |_, bytes: &[u8]| Ok(stream.send(bytes, WAIT)?);
        let (digest, took) = agents::send(flags.messages, flags.bytes, send)?;
        let start = Instant::now();
        stream.finish(WAIT)?;
        let (took, stats) = (took + start.elapsed(), stream.stats());
        let (credits, stalls, stalled) = (stats.credits, stats.stalls, stats.stalled);
        report(
            flags,
            name,
            took,
            &format!("{credits} credits, {stalls} stalls of {stalled:.1?} in all"),
        );
        digest.compare(&mut store, "sender", name)?;
    }
    store.set("checked", b"")?;
    Ok(store.close()?)
}

fn report(flags: &Flags, what: &str, took: Duration, notes: &str) {
    let bytes = (flags.messages * flags.bytes) as f64;
    let rate = bytes / took.as_secs_f64().max(1e-9) / 1e9;
    println!("[sender] {what:<18} {took:>9.2?}, {rate:>6.2} GB/s; {notes}");
}
