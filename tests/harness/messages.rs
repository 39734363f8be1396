//! Flags, messages and rows of the example `stream_backpressure`.

use crate::common::digest::Digest;
use crate::common::roles::Part;
use crate::common::within;
use anyhow::Result;
use clap::{Parser, ValueEnum};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use std::time::{Duration, Instant};
use warpverbs::agent::PathKind;
use warpverbs_bench::units::parse_size;

/// A stream of messages to a slow receiver, beside one-shot transfers
#[derive(Parser)]
#[command(version)]
pub(crate) struct Flags {
    /// Messages of each part
    #[arg(long, default_value_t = 256)]
    pub(crate) messages: u64,
    /// Bytes of a message
    #[arg(long, default_value = "64K", value_parser = parse_size)]
    pub(crate) bytes: u64,
    /// Messages that the receiver's ring holds
    #[arg(long, default_value_t = 16)]
    pub(crate) slots: u32,
    /// Microseconds that the slow receiver spends on each message
    #[arg(long, default_value_t = 500)]
    pub(crate) delay_us: u64,
    /// The path that messages take: the best there is, memory that both processes map, copies by the
    /// kernel, or TCP sockets
    #[arg(long, value_enum, default_value_t = Path::Auto)]
    path: Path,
    #[command(flatten)]
    pub(crate) part: Part,
}

#[derive(Clone, Copy, ValueEnum)]
enum Path {
    Auto,
    Mapped,
    ProcessCopy,
    Tcp,
}

impl Flags {
    pub(crate) fn check(&self) -> Result<()> {
        within("--bytes", self.bytes, 1, 1 << 30)?;
        within("--messages", self.messages, 1, (16 << 30) / self.bytes)?;
        within("--slots", self.slots.into(), 1, 65536)
    }

    /// The path that was asked for.
    pub(crate) fn path(&self) -> Option<PathKind> {
        match self.path {
            Path::Auto => None,
            Path::Mapped => Some(PathKind::Mapped),
            Path::ProcessCopy => Some(PathKind::ProcessCopy),
            Path::Tcp => Some(PathKind::Tcp),
        }
    }
}

/// Sends random messages; their digest, and how long sending took.
pub(crate) fn send(
    flags: &Flags,
    mut send: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<(Digest, Duration)> {
    let (mut random, mut bytes) =
        (StdRng::from_rng(&mut rand::rng()), vec![0; flags.bytes as usize]);
    let (mut digest, mut took) = (Digest::default(), Duration::ZERO);
    for number in 0..flags.messages {
        random.fill_bytes(&mut bytes);
        digest.add(&bytes);
        let start = Instant::now();
        send(number, &bytes)?;
        took += start.elapsed();
    }
    Ok((digest, took))
}

pub(crate) fn report(flags: &Flags, what: &str, took: Duration, notes: &str) {
    let bytes = (flags.messages * flags.bytes) as f64;
    let rate = bytes / took.as_secs_f64().max(1e-9) / 1e9;
    println!("[sender] {what:<18} {took:>9.2?}, {rate:>6.2} GB/s; {notes}");
}
