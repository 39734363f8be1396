//! Carries a file from one endpoint to another: one warp of a kernel posts the receives and takes
//! their completions, another posts the sends.

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::{Common, Session, compare, poison, words};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::loopback::SendRecv;
use warpverbs::transport::{Access, Endpoint, KernelStatus, MemoryRegion};
use warpverbs_bench::units::parse_size;

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

/// Bytes that are in memory at a time, unless one message is longer.
const PART: u64 = 4 << 20;

fn main() -> ExitCode {
    common::main(run)
}

/// A file to be read from its start, and its length.
fn open(path: &Path) -> Result<(File, u64)> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(named)?;
    let found = file.metadata().with_context(named)?;
    ensure!(found.is_file(), "{} is no file", path.display());
    Ok((file, found.len()))
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
    let (mut file, len) = open(&path)?;
    let mut session = Session::open(&flags.common)?;
    session.say(&format!("{}: {len} bytes", path.display()))?;
    let line = Line::new(&session, len, chunk, depth)?;
    let (mut before, mut after) = (Sha256::new(), Sha256::new());
    let (mut at, mut time) = (0, Duration::ZERO);
    // An empty file is carried as well, in no messages.
    while at < len || at == 0 {
        let mut data = vec![0; usize::try_from(line.part.min(len - at))?];
        file.read_exact(&mut data).with_context(|| path.display().to_string())?;
        let (found, took) = line.carry(&session, &data)?;
        before.update(&data);
        after.update(&found);
        compare(&data, &found).with_context(|| format!("from byte {at} on"))?;
        (at, time) = (at + data.len() as u64, time + took);
        if len == 0 {
            break;
        }
    }
    let (sent, received) = (hex(before), hex(after));
    session.say(&format!("  SHA-256 before  {sent}\n  SHA-256 after   {received}"))?;
    let (sends, receives) = (line.sender.health()?.send, line.receiver.health()?.receive);
    let wqes = sends.published + receives.published;
    let cqes = sends.completed + receives.completed;
    let rate = len as f64 / time.as_secs_f64() / 1e6;
    session.say(&format!(
        "  {wqes} WQEs posted ({} sends, {} receives), {cqes} completed\n  {time:?}, {rate:.0} MB/s",
        sends.published, receives.published
    ))?;
    ensure!(sent == received, "SHA-256 is {received}, expected {sent}");
    session.fact("file", path.display().to_string());
    session.fact("bytes", len);
    session.fact("sha256_sent", sent);
    session.fact("sha256_received", received);
    session.fact("wqes", wqes);
    session.fact("completed", cqes);
    session.fact("seconds", time.as_secs_f64());
    let messages = len.div_ceil(chunk.into());
    session.passed(&format!("{len} bytes arrived in {messages} messages, digests are equal"))
}

/// Two endpoints and a buffer at each, for one part of the file after the other.
struct Line {
    sender: Endpoint,
    receiver: Endpoint,
    src: MemoryRegion,
    dst: MemoryRegion,
    chunk: u32,
    depth: u32,
    /// Bytes of a part: whole messages.
    part: u64,
}

impl Line {
    fn new(session: &Session, len: u64, chunk: u32, depth: u32) -> Result<Self> {
        let part = (PART / u64::from(chunk)).max(1) * u64::from(chunk);
        let room = usize::try_from(part.min(len).max(1))?;
        let src = session.memory(&session.gpu, room, Access::empty())?;
        let dst = session.memory(&session.gpu, room, Access::LOCAL_WRITE)?;
        let (sender, receiver) = session.pair()?;
        session.gpu.load(&warpverbs::kernels::loopback::IMAGE)?;
        Ok(Self { sender, receiver, src, dst, chunk, depth, part })
    }

    /// Carries a part. What arrived, and how long the kernel took.
    fn carry(&self, session: &Session, data: &[u8]) -> Result<(Vec<u8>, Duration)> {
        session.gpu.write(self.src.buffer(), 0, data)?;
        session.gpu.write(self.dst.buffer(), 0, &poison(data))?;
        let (status, counts) =
            (KernelStatus::new(&session.gpu)?, session.gpu.alloc(24, Place::Device)?);
        let kernel = SendRecv {
            from: self.sender.device_qp(),
            to: self.receiver.device_qp(),
            source: self.src.local().into(),
            target: self.dst.local().into(),
            bytes: data.len() as u64,
            piece: self.chunk,
            window: self.depth,
            counts: KernelPtr::new(&counts),
            status: status.pointer(),
        };
        let start = Instant::now();
        session.run(&kernel, Dim::new(1, 64))?;
        let time = start.elapsed();
        status.check(&[&self.sender, &self.receiver])?;
        let [sent, received, wrong] = words(&session.gpu, &counts)?;
        let messages = (data.len() as u64).div_ceil(self.chunk.into());
        ensure!(
            (sent, received, wrong) == (messages, messages, 0),
            "{sent} messages sent and {received} received, {wrong} of them of the wrong length; \
             expected {messages}"
        );
        Ok((session.read(&self.dst, data.len())?, time))
    }
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
