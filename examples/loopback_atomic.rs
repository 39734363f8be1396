//! Every thread of a kernel adds to a remote counter; one of them then swaps a remote word.
//!
//! The old values prove it: the counter showed every number once.

mod common;

use anyhow::{Result, ensure};
use clap::Parser;
use common::{Common, DEADLINE, Session, compare, within};
use std::process::ExitCode;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::loopback::Atomic;
use warpverbs::transport::{Access, EndpointConfig, KernelStatus};

/// RDMA atomics, posted by a kernel
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// Threads of the one block
    #[arg(long, default_value_t = 128)]
    threads: u32,
}

/// Where the counter starts: its low half is about to carry into the high one.
const COUNTER: u64 = 0x1234_ffff_fff0;
/// The value of the other word, and the one that is swapped in.
const SEEN: u64 = 0x0102_0304_0506_0708;
const WANTED: u64 = 0xf0e0_d0c0_b0a0_9080;

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    let threads = flags.threads;
    within("--threads", threads, 1, 1024)?;
    let session = Session::open(&flags.common)?;
    let before = [COUNTER.to_le_bytes(), SEEN.to_le_bytes()].concat();
    let words = session.buffer(&before, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    let (a, _b) = session.nic.pair(&EndpointConfig::for_gpu(&session.gpu).timeout(DEADLINE))?;
    let status = KernelStatus::new(&session.gpu)?;
    let len = (threads as usize + 1) * 8;
    let olds = session.gpu.alloc(len, Place::Device)?;
    // Poison: neither word ever holds this.
    session.gpu.write(&olds, 0, &vec![0xff; len])?;
    let kernel = Atomic {
        qp: a.device_qp(),
        at: words.remote().into(),
        expected: SEEN,
        desired: WANTED,
        olds: KernelPtr::new(&olds),
        status: status.pointer(),
    };
    session.run(&kernel, Dim::new(1, threads))?;
    status.check(&[&a])?;

    let mut bytes = vec![0; len];
    session.gpu.read(&olds, 0, &mut bytes)?;
    let mut counted: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let swapped = counted.pop();
    ensure!(swapped == Some(SEEN), "the swap found {swapped:x?}, expected {SEEN:#x}");
    counted.sort_unstable();
    let end = COUNTER + u64::from(threads);
    ensure!(counted.iter().copied().eq(COUNTER..end), "the counter showed {counted:x?}");
    let after = [end.to_le_bytes(), WANTED.to_le_bytes()].concat();
    compare(&after, &words.to_vec()?)?;
    session.fact("atomics", threads + 1);
    session.passed(&format!("{threads} threads counted to {threads}, and one swap took place"))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
