//! Every thread of a kernel writes its part of a buffer to the peer: one RDMA WRITE each.

mod common;

use anyhow::Result;
use clap::Parser;
use common::{Common, DEADLINE, MAX_BYTES, Session, compare, parse_size, poison, sample, within};
use std::process::ExitCode;
use warpverbs::gpu::Dim;
use warpverbs::kernels::loopback::Write;
use warpverbs::transport::{Access, EndpointConfig, KernelStatus};

/// RDMA WRITEs, posted by a kernel
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
    let src = session.buffer(&data, Access::empty())?;
    let dst = session.buffer(&poison(&data), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let (a, _b) = session.nic.pair(&EndpointConfig::for_gpu(&session.gpu).timeout(DEADLINE))?;
    let status = KernelStatus::new(&session.gpu)?;
    let kernel = Write {
        qp: a.device_qp(),
        from: src.local().into(),
        to: dst.remote().into(),
        bytes: u32::try_from(flags.bytes)?,
        status: status.pointer(),
    };
    session.run(&kernel, Dim::new(2, flags.threads))?;
    status.check(&[&a])?;
    compare(&data, &dst.to_vec()?)?;
    session.fact("bytes", len);
    session.fact("writes", threads);
    session.passed(&format!("{len} bytes in {threads} WRITEs are equal on both sides"))
}
