//! Two processes: messages by one-shot transfers, then by streams, to a receiver that takes them at
//! once and to a slow one. Prints throughput, credits and stalls; both compare digests.
//!
//! ```text
//! stream_backpressure --messages 256 --bytes 64K --slots 16 --delay-us 500
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
use warpverbs::agent::{Agent, AgentConfig, Op, PathKind, PostOptions, State, StreamConfig};
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
    /// The path that messages take
    #[arg(long, value_enum, default_value_t = Way::Auto)]
    path: Way,
    /// The part that this process plays; given by the process that starts both
    #[arg(long, requires = "server", hide = true)]
    role: Option<Role>,
    /// Where the metadata server listens
    #[arg(long, hide = true)]
    server: Option<SocketAddr>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Sender,
    Receiver,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// The best there is
    Auto,
    /// Memory that both processes map
    Mapped,
    /// Copies by the kernel
    ProcessCopy,
    /// TCP sockets
    Tcp,
}

/// The first part.
const ONE_SHOT: &str = "one-shot transfers";

/// The streams, and whether their receiver is slow.
const STREAMS: [(&str, bool); 2] = [("stream", false), ("slow receiver", true)];

fn main() -> ExitCode {
    common::main(|flags: Flags| match (flags.role, flags.server) {
        (Some(Role::Sender), Some(server)) => sender(&flags, server),
        (Some(Role::Receiver), Some(server)) => receiver(&flags, server),
        _ => both(&flags),
    })
}

fn both(flags: &Flags) -> Result<()> {
    let (messages, bytes) = (flags.messages, flags.bytes);
    ensure!(messages != 0, "--messages is 0, expected 1 or more");
    ensure!((1..=1 << 30).contains(&bytes), "--bytes is {bytes}, expected 1 byte to 1 GiB");
    let all = messages.checked_mul(bytes).filter(|all| *all <= 16 << 30);
    ensure!(
        all.is_some(),
        "--messages {messages} of --bytes {bytes}, expected 16 GiB at most in all"
    );
    let slots = flags.slots;
    ensure!((1..=65536).contains(&slots), "--slots is {slots}, expected 1 to 65536");
    let way = flags.path.to_possible_value().map(|way| way.get_name().to_owned());
    let more = [
        ("--messages", messages.to_string()),
        ("--bytes", bytes.to_string()),
        ("--slots", slots.to_string()),
        ("--delay-us", flags.delay_us.to_string()),
        ("--path", way.unwrap_or_default()),
    ];
    let server = agents::serve()?;
    println!("{messages} messages of {bytes} bytes, {slots} slots");
    let receiver = Started::new("receiver", server.local_addr(), &more)?;
    let sender = Started::new("sender", server.local_addr(), &more)?;
    sender.end()?;
    receiver.end()?;
    println!("passed: the digests of {messages} messages, sent three times, are the same");
    Ok(())
}

fn agent(name: &str, flags: &Flags) -> Result<Agent> {
    let config = AgentConfig::default();
    let config = match flags.path {
        Way::Auto => config,
        Way::Mapped => config.require(PathKind::Mapped),
        Way::ProcessCopy => config.require(PathKind::ProcessCopy),
        Way::Tcp => config.require(PathKind::Tcp),
    };
    Ok(Agent::new(name, config)?)
}

fn receiver(flags: &Flags, server: SocketAddr) -> Result<()> {
    let agent = agent("receiver", flags)?;
    let landing = agent.alloc(flags.messages * flags.bytes, "landing")?;
    let ring = || StreamConfig::default().slots(flags.slots).slot_bytes(flags.bytes);
    let streams = STREAMS.map(|(name, slow)| (agent.stream(name, ring()), slow));
    let mut store = agents::connect(&server.ip().to_string(), server.port())?;
    store.set("metadata", &agent.metadata()?)?;

    let mut seen = vec![0; flags.bytes as usize];
    let mut digest = Sha256::new();
    for number in 0..flags.messages {
        agent.wait_remote_done("sender", &number.to_le_bytes(), WAIT)?;
        landing.read(number * flags.bytes, &mut seen)?;
        digest.update(&seen);
    }
    store.set(&format!("digest of {ONE_SHOT}"), hex(digest).as_bytes())?;
    for (stream, slow) in streams {
        let mut stream = stream?;
        let mut digest = Sha256::new();
        // Dropping a message gives its slot back.
        while let Some(message) = stream.recv(WAIT)? {
            message.read(0, &mut seen)?;
            digest.update(&seen);
            if slow {
                std::thread::sleep(Duration::from_micros(flags.delay_us));
            }
        }
        store.set(&format!("digest of {}", stream.name()), hex(digest).as_bytes())?;
    }
    store.get("checked")?;
    Ok(store.close()?)
}

fn sender(flags: &Flags, server: SocketAddr) -> Result<()> {
    let agent = agent("sender", flags)?;
    let mut store = agents::connect(&server.ip().to_string(), server.port())?;
    let peer = agent.load_metadata(&store.get("metadata")?)?;
    let ours = agent.alloc(flags.bytes, "ours")?;
    let landing = agent.remote(&peer, "landing")?;
    println!("[sender] {}", agent.explain(&ours, &landing)?);

    let mut check = |what: &str, digest: Sha256| -> Result<()> {
        let (sent, seen) =
            (hex(digest), String::from_utf8(store.get(&format!("digest of {what}"))?)?);
        ensure!(sent == seen, "{what}: the digest is {sent}, that of the receiver {seen}");
        println!("[sender] SHA-256 {sent}");
        Ok(())
    };
    let (mut digest, mut took) = (Sha256::new(), Duration::ZERO);
    let from = ours.blocks(0, flags.bytes, 1)?;
    for number in 0..flags.messages {
        let bytes = message(number, flags.bytes);
        digest.update(&bytes);
        let start = Instant::now();
        ours.write(0, &bytes)?;
        let to = landing.blocks(number * flags.bytes, flags.bytes, 1)?;
        let write = agent.initialize(Op::Write, &from, &to)?;
        write.post(PostOptions::new().notify(number.to_le_bytes()))?;
        ensure!(write.wait(WAIT)? == State::Done, "the WRITE has not ended");
        took += start.elapsed();
    }
    report(flags, ONE_SHOT, took, "each waited for");
    check(ONE_SHOT, digest)?;

    for (name, _) in STREAMS {
        let mut stream = agent.stream_to(&peer, name, WAIT)?;
        let (mut digest, mut took) = (Sha256::new(), Duration::ZERO);
        for number in 0..flags.messages {
            let bytes = message(number, flags.bytes);
            digest.update(&bytes);
            let start = Instant::now();
            stream.send(&bytes, WAIT)?;
            took += start.elapsed();
        }
        let start = Instant::now();
        stream.finish(WAIT)?;
        took += start.elapsed();
        let stats = stream.stats();
        let (credits, stalls, stalled) = (stats.credits, stats.stalls, stats.stalled);
        let notes = format!("{credits} credits, {stalls} stalls of {stalled:.1?} in all");
        report(flags, name, took, &notes);
        check(name, digest)?;
    }
    store.set("checked", b"")?;
    Ok(store.close()?)
}

/// Time in the calls that send, without that of making the messages.
fn report(flags: &Flags, what: &str, took: Duration, notes: &str) {
    let bytes = (flags.messages * flags.bytes) as f64;
    let rate = bytes / took.as_secs_f64().max(1e-9) / 1e9;
    println!("[sender] {what:<18} {took:>9.2?}, {rate:>6.2} GB/s; {notes}");
}

/// Message `number`: bytes that differ from those of every other.
fn message(number: u64, len: u64) -> Vec<u8> {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word ^ word >> 29).to_le_bytes()
    });
    words.take(len as usize).collect()
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
