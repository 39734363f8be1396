//! Flags, payload and table of the example `simple_write`.

use crate::common::{sample, within};
use anyhow::Result;
use clap::{Parser, ValueEnum};
use std::time::Duration;
use warpverbs_bench::units::parse_size;

/// A kernel writes into another process's GPU and signals
#[derive(Parser)]
#[command(version)]
pub(crate) struct Flags {
    /// The part that this process plays
    #[arg(long, value_enum, default_value = "initiator")]
    pub(crate) mode: Mode,
    /// Bytes of the buffer
    #[arg(long, default_value = "1048576", value_parser = parse_size)]
    pub(crate) size: u64,
    /// Where the initiator serves the store
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Its port
    #[arg(long, default_value_t = 9998)]
    pub(crate) port: u16,
    /// Where kernels run: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    pub(crate) gpu: String,
    /// A NIC for memory that cannot be mapped; without one the GPUs must share a machine
    #[arg(long)]
    pub(crate) nic: Option<String>,
    /// Writes of each level that are timed
    #[arg(long, default_value_t = 20)]
    pub(crate) rounds: u32,
    /// Parts of a write that are posted without waiting
    #[arg(long, default_value_t = 4)]
    pub(crate) pipeline: u32,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    Initiator,
    Target,
}

/// The lanes that make a call together.
pub(crate) const LEVELS: [&str; 2] = ["thread", "warp"];

/// Above the rows of [`Flags::row`].
pub(crate) const HEAD: &str = "   level         bytes  writes       µs each        GB/s";

impl Flags {
    pub(crate) fn check(&self) -> Result<()> {
        within("--size", self.size, 1, 1 << 36)?;
        within("--pipeline", self.pipeline.into(), 1, self.size)?;
        within("--rounds", self.rounds.into(), 1, u32::MAX.into())
    }

    /// A level and what its writes took in all.
    pub(crate) fn row(&self, level: &str, nanos: u64) -> String {
        let (bytes, rounds) = (self.size, self.rounds);
        let each = Duration::from_nanos(nanos.max(1)) / rounds;
        let rate = bytes as f64 / each.as_secs_f64() / 1e9;
        let micros = each.as_secs_f64() * 1e6;
        format!("{level:>8}  {bytes:>12}  {rounds:>6}  {micros:>12.2}  {rate:>10.3}")
    }
}

/// The bytes that the initiator writes at each level.
pub(crate) fn pattern(level: usize, size: u64) -> Vec<u8> {
    sample(size as usize).iter().map(|byte| byte.wrapping_add(101 * level as u8)).collect()
}
