//! Carries a file from one endpoint to another: one warp of a kernel posts the receives and takes
//! their completions, another posts the sends.

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::{Common, DEADLINE, Session, compare, parse_size, poison, within, words};
use sha2::{Digest as _, Sha256};
use std::time::{Duration, Instant};
use std::{fs::File, io::Read as _, path::PathBuf, process::ExitCode};
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::loopback::{IMAGE, SendRecv};
use warpverbs::transport::{Access, Endpoint, EndpointConfig, KernelStatus, MemoryRegion};

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

fn run(flags: Flags) -> Result<()> {
    within("--chunk", flags.chunk, 1, (1 << 31) - 1)?;
    within("--depth", flags.depth, 1, 256)?;
    let path = flags.file.clone().map_or_else(std::env::current_exe, Ok)?;
    let name = path.display().to_string();
    let mut file = File::open(&path).with_context(|| name.clone())?;
    let len = file.metadata()?.len();
    ensure!(path.is_file(), "{name} is no file");
    let session = Session::open(&flags.common)?;
    session.say(&format!("{name}: {len} bytes"))?;

    // A part of the file, which is whole messages, is in memory at a time.
    let part = ((PART / flags.chunk).max(1) * flags.chunk).min(len);
    let ends = session.nic.pair(&EndpointConfig::for_gpu(&session.gpu).timeout(DEADLINE))?;
    let src = session.memory(&session.gpu, part.max(1) as usize, Access::empty())?;
    let dst = session.memory(&session.gpu, part.max(1) as usize, Access::LOCAL_WRITE)?;
    session.gpu.load(&IMAGE)?;
    let (mut at, mut time, mut digests) = (0, Duration::ZERO, <[Sha256; 2]>::default());
    while at < len {
        let mut data = vec![0; usize::try_from(part.min(len - at))?];
        file.read_exact(&mut data).with_context(|| name.clone())?;
        src.write(0, &data)?;
        dst.write(0, &poison(&data))?;
        time += carry(&session, &flags, &ends, [&src, &dst], data.len() as u64)?;
        let mut found = vec![0; data.len()];
        dst.read(0, &mut found)?;
        compare(&data, &found).with_context(|| format!("from byte {at} on"))?;
        digests[0].update(&data);
        digests[1].update(&found);
        at += data.len() as u64;
    }

    let hex = |digest: Sha256| digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let [before, after]: [String; 2] = digests.map(hex);
    session.say(&format!("  SHA-256 before  {before}\n  SHA-256 after   {after}"))?;
    ensure!(before == after, "SHA-256 is {after}, expected {before}");
    let (send, receive) = (ends.0.health()?.send, ends.1.health()?.receive);
    let (sends, receives) = (send.published, receive.published);
    let (wqes, cqes) = (sends + receives, send.completed + receive.completed);
    let posted = format!("{wqes} WQEs posted ({sends} sends, {receives} receives)");
    session.say(&format!("  {posted}, {cqes} completed"))?;
    let seconds = time.as_secs_f64();
    session.say(&format!("  {time:?}, {:.0} MB/s", len as f64 / seconds.max(1e-9) / 1e6))?;
    session.facts([("file", name), ("sha256_sent", before), ("sha256_received", after)]);
    session.facts([("bytes", len), ("wqes", wqes), ("completed", cqes)]);
    session.fact("seconds", seconds);
    let count = len.div_ceil(flags.chunk);
    session.passed(&format!("{len} bytes arrived in {count} messages, digests are equal"))
}

/// Carries `bytes` from one buffer to the other; how long the kernel took.
fn carry(
    session: &Session,
    flags: &Flags,
    (sender, receiver): &(Endpoint, Endpoint),
    [src, dst]: [&MemoryRegion; 2],
    bytes: u64,
) -> Result<Duration> {
    let status = KernelStatus::new(&session.gpu)?;
    let counts = session.gpu.alloc(24, Place::Device)?;
    let kernel = SendRecv {
        from: sender.device_qp(),
        to: receiver.device_qp(),
        source: src.local().into(),
        target: dst.local().into(),
        bytes,
        piece: flags.chunk as u32,
        window: flags.depth,
        counts: KernelPtr::new(&counts),
        status: status.pointer(),
    };
    let start = Instant::now();
    session.run(&kernel, Dim::new(1, 2 * session.gpu.info().warp_size))?; // A warp for each.
    let time = start.elapsed();
    status.check(&[sender, receiver])?;
    let (counted, all) = (words(&session.gpu, &counts)?, bytes.div_ceil(flags.chunk));
    ensure!(
        counted == [all, all, 0],
        "sent, received, wrong: {counted:?}, expected {all} twice, 0"
    );
    Ok(time)
}
