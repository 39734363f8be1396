//! Carries a file from one endpoint to another: one warp of a kernel posts the receives and takes
//! their completions, another posts the sends.

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::{Common, Session, compare, poison, words};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::loopback::SendRecv;
use warpverbs::transport::{Access, KernelStatus};
use warpverbs_units::parse_size;

/// SENDs into receives, both posted by a kernel, carry a file
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// The file [default: this program]
    #[arg(long)]
    file: Option<PathBuf>,
    /// Bytes of one message
    #[arg(long, default_value = "64K", value_parser = parse_size)]
    chunk: u64,
    /// Receives posted at a time
    #[arg(long, default_value_t = 64)]
    depth: u32,
}

/// Longest file: both copies, and both buffers, are in memory.
const MAX_FILE: u64 = 2 << 30;

fn main() -> ExitCode {
    common::main(run)
}

/// All of a file, if it is one and not too long.
fn load(path: &Path) -> Result<Vec<u8>> {
    let named = || path.display().to_string();
    let found = std::fs::metadata(path).with_context(named)?;
    ensure!(found.is_file(), "{} is no file", path.display());
    ensure!(
        found.len() <= MAX_FILE,
        "{} is {} bytes long, expected at most {MAX_FILE}",
        path.display(),
        found.len()
    );
    std::fs::read(path).with_context(named)
}

fn run(flags: Flags) -> Result<()> {
    let (chunk, depth) = (flags.chunk, flags.depth);
    ensure!(
        (1..1 << 31).contains(&chunk),
        "--chunk is {chunk}, expected 1 to {}",
        (1u32 << 31) - 1
    );
    let chunk = chunk as u32;
    ensure!((1..=256).contains(&depth), "--depth is {depth}, expected 1 to 256");
    let path = match flags.file {
        Some(path) => path,
        None => std::env::current_exe().context("path of this program")?,
    };
    let data = load(&path)?;
    let len = data.len() as u64;
    let mut session = Session::open(&flags.common)?;
    let sent = hex(&data);
    session.say(&format!("{}: {len} bytes\n  SHA-256 before  {sent}", path.display()))?;

    let src = session.buffer(&data, Access::empty())?;
    let dst = session.buffer(&poison(&data), Access::LOCAL_WRITE)?;
    let (sender, receiver) = session.pair()?;
    let (status, counts) =
        (KernelStatus::new(&session.gpu)?, session.gpu.alloc(24, Place::Device)?);
    let messages = len.div_ceil(chunk.into());
    let kernel = SendRecv {
        from: sender.device_qp(),
        to: receiver.device_qp(),
        source: src.local().into(),
        target: dst.local().into(),
        bytes: len,
        piece: chunk,
        window: depth,
        counts: KernelPtr::new(&counts),
        status: status.pointer(),
    };
    session.gpu.load(&warpverbs::kernels::loopback::IMAGE)?;
    let start = Instant::now();
    session.run(&kernel, Dim::new(1, 64))?;
    let time = start.elapsed();
    status.check(&[&sender, &receiver])?;
    let [sent_messages, received_messages, wrong] = words(&session.gpu, &counts)?;
    ensure!(
        (sent_messages, received_messages, wrong) == (messages, messages, 0),
        "{sent_messages} messages sent and {received_messages} received, {wrong} of them of the \
         wrong length; expected {messages}"
    );

    let found = session.read(&dst, data.len())?;
    let received = hex(&found);
    session.say(&format!("  SHA-256 after   {received}"))?;
    let (sends, receives) = (sender.health()?.send, receiver.health()?.receive);
    let wqes = sends.published + receives.published;
    let cqes = sends.completed + receives.completed;
    let rate = len as f64 / time.as_secs_f64() / 1e6;
    session.say(&format!(
        "  {wqes} WQEs posted ({} sends, {} receives), {cqes} completed\n  {time:?}, {rate:.0} MB/s",
        sends.published, receives.published
    ))?;
    ensure!(sent == received, "SHA-256 is {received}, expected {sent}");
    compare(&data, &found)?;
    session.fact("file", path.display().to_string());
    session.fact("bytes", len);
    session.fact("sha256_sent", sent);
    session.fact("sha256_received", received);
    session.fact("wqes", wqes);
    session.fact("completed", cqes);
    session.fact("seconds", time.as_secs_f64());
    session.passed(&format!("{len} bytes arrived in {messages} messages, digests are equal"))
}

fn hex(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}
