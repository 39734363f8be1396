//! Two processes: messages by one-shot transfers, then by streams, to a receiver that takes them at
//! once and to a slow one. Prints throughput, credits and stalls; both compare digests.
//!
//! ```text
//! stream_backpressure --messages 256 --bytes 64K --slots 16 --delay-us 500
//! ```

mod common;
#[path = "../tests/harness/messages.rs"]
mod messages;

use anyhow::{Result, ensure};
use common::DEADLINE as WAIT;
use common::digest::Digest;
use messages::{Flags, report, send};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::agent::{Agent, AgentConfig, Op, PostOptions, State, StreamConfig};
use warpverbs::rendezvous::Client;

/// The first part; then the streams.
const ONE_SHOT: &str = "one-shot transfers";
const STREAMS: [&str; 2] = ["stream", "slow receiver"];

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        let (messages, bytes, slots, part) =
            (flags.messages, flags.bytes, flags.slots, &flags.part);
        flags.check()?;
        part.say(&format!("{messages} messages of {bytes} bytes, {slots} slots"));
        part.play(&flags, [("receiver", receiver), ("sender", sender)], &[])?;
        part.say(&format!(
            "passed: the digests of {messages} messages, sent three times, are the same"
        ));
        Ok(())
    })
}

/// An agent that takes the path that was asked for, or the best one.
fn agent(name: &str, flags: &Flags) -> Result<Agent> {
    let config = match flags.path() {
        Some(path) => AgentConfig::default().require(path),
        None => AgentConfig::default(),
    };
    Ok(Agent::new(name, config)?)
}

fn receiver(flags: &Flags, mut store: Client) -> Result<()> {
    let agent = agent("receiver", flags)?;
    let landing = agent.alloc(flags.messages * flags.bytes, "landing")?;
    let ring = || StreamConfig::default().slots(flags.slots).slot_bytes(flags.bytes);
    let streams = STREAMS.map(|name| agent.stream(name, ring()));
    store.set("metadata", &agent.metadata()?)?;

    let (mut seen, mut digest) = (vec![0; flags.bytes as usize], Digest::default());
    for number in 0..flags.messages {
        agent.wait_remote_done("sender", &number.to_le_bytes(), WAIT)?;
        landing.read(number * flags.bytes, &mut seen)?;
        digest.add(&seen);
    }
    digest.tell(&mut store, ONE_SHOT)?;
    for stream in streams {
        let (mut stream, mut digest) = (stream?, Digest::default());
        // Dropping a message gives its slot back.
        while let Some(message) = stream.recv(WAIT)? {
            digest.add(&message.to_vec()?);
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
    let (digest, took) = send(flags, |number, bytes| {
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
        let (digest, took) = send(flags, |_, bytes| Ok(stream.send(bytes, WAIT)?))?;
        let start = Instant::now();
        stream.finish(WAIT)?;
        let (took, stats) = (took + start.elapsed(), stream.stats());
        let (credits, stalls, stalled) = (stats.credits, stats.stalls, stats.stalled);
        let notes = format!("{credits} credits, {stalls} stalls of {stalled:.1?} in all");
        report(flags, name, took, &notes);
        digest.compare(&mut store, "sender", name)?;
    }
    store.set("checked", b"")?;
    Ok(store.close()?)
}
