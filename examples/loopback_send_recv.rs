//! Carries a file from one endpoint to another: one warp of a kernel posts the receives and takes
//! their completions, another posts the sends.

mod carry;
mod common;

use anyhow::{Result, ensure};
use carry::Carried;
use clap::Parser;
use common::{Common, Session, poison, within, words};
use std::path::PathBuf;
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

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    within("--chunk", flags.chunk, 1, (1 << 31) - 1)?;
    within("--depth", flags.depth.into(), 1, 256)?;
    let mut file = Carried::open(flags.file, flags.chunk)?;
    let len = file.len;
    let mut session = Session::open(&flags.common)?;
    session.say(&format!("{}: {len} bytes", file.name()))?;
    let line = Line::new(&session, file.room()?, flags.chunk as u32, flags.depth)?;
    let mut time = Duration::ZERO;
    while let Some(data) = file.next()? {
        let (found, took) = line.carry(&session, &data)?;
        file.arrived(&data, &found)?;
        time += took;
    }
    file.end(&mut session)?;
    let (sends, receives) = (line.sender.health()?.send, line.receiver.health()?.receive);
    let (sent, received) = (sends.published, receives.published);
    let (wqes, cqes) = (sent + received, sends.completed + receives.completed);
    let rate = len as f64 / time.as_secs_f64() / 1e6;
    session.say(&format!(
        "  {wqes} WQEs posted ({sent} sends, {received} receives), {cqes} completed\n  \
         {time:?}, {rate:.0} MB/s"
    ))?;
    session.fact("wqes", wqes);
    session.fact("completed", cqes);
    session.fact("seconds", time.as_secs_f64());
    let messages = len.div_ceil(flags.chunk);
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
}

impl Line {
    fn new(session: &Session, room: usize, chunk: u32, depth: u32) -> Result<Self> {
        let src = session.memory(&session.gpu, room, Access::empty())?;
        let dst = session.memory(&session.gpu, room, Access::LOCAL_WRITE)?;
        let (sender, receiver) = session.pair()?;
        session.gpu.load(&warpverbs::kernels::loopback::IMAGE)?;
        Ok(Self { sender, receiver, src, dst, chunk, depth })
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
