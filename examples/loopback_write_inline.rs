//! The payload of a small WRITE inside the WQE itself: the source needs no registration and is free
//! again as soon as the call returns.

mod common;

use anyhow::Result;
use clap::Parser;
use common::{Common, Session, compare, parse_size, poison, sample, within};
use std::process::ExitCode;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::loopback::WriteInline;
use warpverbs::transport::{Access, EndpointConfig, KernelStatus};

/// RDMA WRITEs with inline payload, posted by a kernel
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// Bytes that each thread moves, 1 to 220
    #[arg(long, default_value = "100", value_parser = parse_size)]
    bytes: u64,
    /// Threads of the one block
    #[arg(long, default_value_t = 64)]
    threads: u32,
}

/// The largest inline payload of a work request.
const MAX_INLINE: u64 = 220;

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    within("--threads", flags.threads, 1, 1024)?;
    within("--bytes", flags.bytes, 1, MAX_INLINE)?;
    let (threads, len) = (flags.threads, flags.threads as usize * flags.bytes as usize);
    let session = Session::open(&flags.common)?;
    let data = sample(0, len);
    let source = session.gpu.alloc(len, Place::Device)?;
    session.gpu.write(&source, 0, &data)?;
    let dst = session.buffer(&poison(&data), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let config = EndpointConfig::for_gpu(&session.gpu).inline_bytes(MAX_INLINE as u32);
    let (a, _b) = session.nic.pair(&config)?;
    let status = KernelStatus::new(&session.gpu)?;
    let kernel = WriteInline {
        qp: a.device_qp(),
        source: KernelPtr::new(&source),
        to: dst.remote().into(),
        bytes: u32::try_from(flags.bytes)?,
        status: status.pointer(),
    };
    session.run(&kernel, Dim::new(1, flags.threads))?;
    status.check(&[&a])?;
    compare(&data, &dst.to_vec()?)?;
    session.fact("bytes", len);
    session.passed(&format!("{len} bytes inside {threads} WQEs are equal on both sides"))
}
