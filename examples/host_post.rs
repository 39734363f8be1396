//! The CPU as the poster: the same endpoints, the same queues, the same protocol, no kernel.

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::{Common, MAX_BYTES, Session, compare, parse_size, poison, sample, within};
use std::process::ExitCode;
use warpverbs::transport::{Access, Endpoint, EndpointConfig, Poster, SendFlags};

/// Every operation, posted by the host
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// Bytes to move
    #[arg(long, default_value = "64K", value_parser = parse_size)]
    bytes: u64,
}

const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    within("--bytes", flags.bytes, 1, MAX_BYTES)?;
    let len = flags.bytes as usize;
    let session = Session::open(&flags.common)?;
    let config = EndpointConfig::host().timeout(common::DEADLINE);
    let (a, b) = session.nic.pair(&config)?;
    let host = a.host()?;
    write(&session, &host, len)?;
    write_inline(&session, &host)?;
    read(&session, &host, len)?;
    atomics(&session, &host)?;
    send(&session, &host, &b, len)?;
    session.fact("bytes", flags.bytes);
    session.passed(&format!("write, inline write, read, atomics and send of {len} bytes are right"))
}

fn write(session: &Session, host: &Poster<'_>, len: usize) -> Result<()> {
    let data = sample(0, len);
    let src = session.buffer(&data, Access::empty())?;
    let dst = session.buffer(&poison(&data), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    host.wait(host.post_write(src.local(), dst.remote(), SIGNALED)?)?;
    session.say(&format!("WRITE of {len} bytes"))?;
    compare(&data, &dst.to_vec()?)
}

fn write_inline(session: &Session, host: &Poster<'_>) -> Result<()> {
    let data = sample(0, 28);
    let dst = session.buffer(&poison(&data), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    host.wait(host.post_write_inline(&data, dst.remote(), SIGNALED)?)?;
    session.say("WRITE of 28 bytes inside the WQE")?;
    compare(&data, &dst.to_vec()?)
}

fn read(session: &Session, host: &Poster<'_>, len: usize) -> Result<()> {
    let data = sample(0, len);
    let theirs = session.buffer(&data, Access::REMOTE_READ)?;
    let ours = session.buffer(&poison(&data), Access::LOCAL_WRITE)?;
    host.wait(host.post_read(ours.local(), theirs.remote(), SIGNALED)?)?;
    session.say(&format!("READ of {len} bytes"))?;
    compare(&data, &ours.to_vec()?)
}

fn atomics(session: &Session, host: &Poster<'_>) -> Result<()> {
    let start: u64 = 0x0123_4567_89ab_cdef;
    let word = session.buffer(&start.to_le_bytes(), Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    let old = host.fetch_add(word.remote(), 5)?;
    ensure!(old == start, "fetch-and-add found {old:#x}, expected {start:#x}");
    let old = host.compare_swap(word.remote(), start + 5, 42)?;
    ensure!(old == start + 5, "compare-and-swap found {old:#x}, expected {:#x}", start + 5);
    session.say("fetch-and-add, compare-and-swap")?;
    compare(&42u64.to_le_bytes(), &word.to_vec()?)
}

/// In four messages, into four receives.
fn send(session: &Session, host: &Poster<'_>, peer: &Endpoint, len: usize) -> Result<()> {
    let data = sample(0, len);
    let src = session.buffer(&data, Access::empty())?;
    let dst = session.buffer(&poison(&data), Access::LOCAL_WRITE)?;
    let peer = peer.host()?;
    let parts = [0, len / 4, len / 2, len * 3 / 4, len].map(|at| at as u64);
    for part in parts.windows(2) {
        let _ = peer.post_recv(dst.local().slice(part[0], part[1] - part[0])?)?;
    }
    for part in parts.windows(2) {
        let piece = src.local().slice(part[0], part[1] - part[0])?;
        host.wait(host.post_send(piece, SIGNALED)?)?;
    }
    for part in parts.windows(2) {
        let message = peer.wait_recv()?;
        let bytes = part[1] - part[0];
        ensure!(
            u64::from(message.byte_len) == bytes,
            "{} bytes arrived of {bytes}",
            message.byte_len
        );
    }
    session.say(&format!("SEND of {len} bytes in 4 messages"))?;
    compare(&data, &dst.to_vec()?)
}
