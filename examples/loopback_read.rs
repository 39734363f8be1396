//! Every thread of a kernel reads its part of the peer's buffer: one RDMA READ each.

mod common;

use anyhow::Result;
use clap::Parser;
use common::{Common, DEADLINE, MAX_BYTES, Session, compare, parse_size, poison, sample, within};
use std::process::ExitCode;
use warpverbs::gpu::Dim;
use warpverbs::kernels::loopback::Read;
use warpverbs::transport::{Access, EndpointConfig, KernelStatus};

/// RDMA READs, posted by a kernel
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// Bytes that each thread moves
    #[arg(long, default_value = "1000", value_parser = parse_size)]
    bytes: u64,
    /// Threads per block; there are two blocks
    #[arg(long, default_value_t = 64)]
    threads: u32,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    within("--threads", flags.threads, 1, 1024)?;
    let threads = 2 * u64::from(flags.threads);
    within("--bytes", flags.bytes, 1, MAX_BYTES / threads)?;
    let len = (threads * flags.bytes) as usize;
    let session = Session::open(&flags.common)?;
    let data = sample(0, len);
    let theirs = session.buffer(&data, Access::REMOTE_READ)?;
    let ours = session.buffer(&poison(&data), Access::LOCAL_WRITE)?;
    let (a, _b) = session.nic.pair(&EndpointConfig::for_gpu(&session.gpu).timeout(DEADLINE))?;
    let status = KernelStatus::new(&session.gpu)?;
    let kernel = Read {
        qp: a.device_qp(),
        to: ours.local().into(),
        from: theirs.remote().into(),
        bytes: u32::try_from(flags.bytes)?,
        status: status.pointer(),
    };
    session.run(&kernel, Dim::new(2, flags.threads))?;
    status.check(&[&a])?;
    compare(&data, &ours.to_vec()?)?;
    session.fact("bytes", len);
    session.fact("reads", threads);
    session.passed(&format!("{len} bytes in {threads} READs are equal on both sides"))
}
