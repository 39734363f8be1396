//! What the user asked to be measured, checked in full before anything is set up.

use crate::units::{self, parse_size};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpverbs::gpu::Place;

/// Who posts the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Poster {
    /// A CPU thread.
    Host,
    /// A kernel.
    Kernel,
}

/// As [`Poster`], or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Posters {
    /// A CPU thread.
    Host,
    /// A kernel.
    Kernel,
    /// A CPU thread, then a kernel.
    Both,
}

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND into a posted receive.
    Send,
    /// 64-bit fetch-and-add.
    Atomic,
}

impl Op {
    /// As the user writes it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
        }
    }

    /// Whether latency between two processes is half of a message there and one back; otherwise it
    /// is one operation.
    pub(crate) fn is_ping_pong(self) -> bool {
        matches!(self, Self::Write | Self::Send)
    }
}

/// Where payloads lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mem {
    /// The device's own memory.
    Device,
    /// Host memory that the device maps.
    Pinned,
}

impl Mem {
    /// As GPUs call it.
    pub(crate) fn place(self) -> Place {
        match self {
            Self::Device => Place::Device,
            Self::Pinned => Place::Shared,
        }
    }
}

/// Options of `perf loopback`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoopbackArgs {
    #[command(flatten)]
    pub(crate) common: crate::Common,
    /// Smallest message (K, M, G are powers of 1024)
    #[arg(short = 'b', long, value_parser = parse_size, default_value = "8")]
    pub(crate) min: u64,
    /// Largest message [default: 8 for atomics, else 1M]
    #[arg(short = 'e', long, value_parser = parse_size)]
    pub(crate) max: Option<u64>,
    /// Factor from one message size to the next
    #[arg(short = 'f', long, default_value_t = 8)]
    pub(crate) factor: u64,
    /// Measured operations per queue pair and row
    #[arg(short = 'n', long, default_value_t = 1000)]
    pub(crate) iters: u32,
    /// Operations before measuring
    #[arg(short = 'w', long, default_value_t = 100)]
    pub(crate) warmup: u32,
    /// Queue pairs, one row each: 1,8,32
    #[arg(short = 'q', long, value_delimiter = ',', default_value = "1")]
    pub(crate) qps: Vec<u32>,
    /// Blocks of a posting kernel [default: 1]
    #[arg(short = 'c', long)]
    pub(crate) blocks: Option<u32>,
    /// Threads per block of a posting kernel [default: 32]
    #[arg(short = 't', long)]
    pub(crate) threads: Option<u32>,
    /// The poster
    #[arg(long, value_enum, default_value = "both")]
    pub(crate) post: Posters,
    /// The operation that is posted
    #[arg(long, value_enum, default_value = "write")]
    pub(crate) op: Op,
    /// Where payloads lie
    #[arg(long, value_enum, default_value = "device")]
    pub(crate) mem: Mem,
    /// Seconds after which a row is given up
    #[arg(long, default_value_t = 30)]
    pub(crate) row_limit: u64,
}

/// A request that cannot be measured.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// A number is out of its range.
    #[error("{flag} is {value}, expected {expected}")]
    Range {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: u64,
        /// What would do.
        expected: String,
    },
    /// Two flags contradict each other.
    #[error("{flag} has no meaning with {with}: {why}")]
    Conflict {
        /// The flag.
        flag: &'static str,
        /// The other one.
        with: &'static str,
        /// Why.
        why: &'static str,
    },
    /// The buffers would not fit.
    #[error(
        "{qps} queue pairs with messages of {} need {}, at most {} is allowed; lower -e or -q",
        units::bytes(*bytes), units::bytes(*need), units::bytes(*limit)
    )]
    Memory {
        /// Queue pairs.
        qps: u64,
        /// Largest message.
        bytes: u64,
        /// Bytes in all.
        need: u64,
        /// Bytes allowed.
        limit: u64,
    },
}

/// Queue pairs at most in a row, whatever is measured.
pub(crate) const MAX_QPS: u32 = 4096;
/// Largest message of RDMA.
pub(crate) const MAX_MESSAGE: u64 = 1 << 30;
/// Bytes of payload buffers at most.
pub(crate) const MAX_MEMORY: u64 = 8 << 30;
/// Operations per queue pair and row at most: each has a sample.
pub(crate) const MAX_ITERS: u32 = 10_000_000;

/// A checked request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) sizes: Vec<u64>,
    pub(crate) qps: Vec<u32>,
    pub(crate) posters: Vec<Poster>,
    pub(crate) op: Op,
    pub(crate) mem: Mem,
    pub(crate) iters: u32,
    pub(crate) warmup: u32,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) row_limit: std::time::Duration,
}

impl LoopbackArgs {
    /// Checks everything that can be checked without a device.
    pub(crate) fn plan(&self) -> Result<Plan, PlanError> {
        let sizes = sizes(self.op, self.min, self.max, self.factor)?;
        check_iters(self.iters)?;
        check_warmup(self.warmup)?;
        within("--row-limit", self.row_limit, 1, 3600)?;
        check_qps(&self.qps, sizes.last().copied().unwrap_or(1))?;
        let posters = self.posters()?;
        let (blocks, threads) = grid(self.blocks, self.threads)?;
        Ok(Plan {
            sizes,
            qps: self.qps.clone(),
            posters,
            op: self.op,
            mem: self.mem,
            iters: self.iters,
            warmup: self.warmup,
            blocks,
            threads,
            row_limit: std::time::Duration::from_secs(self.row_limit),
        })
    }

    fn posters(&self) -> Result<Vec<Poster>, PlanError> {
        let why = "they shape a kernel";
        match self.post {
            Posters::Host if self.blocks.is_some() => {
                Err(PlanError::Conflict { flag: "-c", with: "--post host", why })
            }
            Posters::Host if self.threads.is_some() => {
                Err(PlanError::Conflict { flag: "-t", with: "--post host", why })
            }
            Posters::Host => Ok(vec![Poster::Host]),
            Posters::Kernel => Ok(vec![Poster::Kernel]),
            Posters::Both => Ok(vec![Poster::Host, Poster::Kernel]),
        }
    }
}

/// `value`, if it is one of `low..=high`.
pub(crate) fn within(
    flag: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<u64, PlanError> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(PlanError::Range { flag, value, expected: format!("{low} to {high}") })
}

/// `-n`: measured operations.
pub(crate) fn check_iters(iters: u32) -> Result<u64, PlanError> {
    within("-n", iters.into(), 1, MAX_ITERS.into())
}

/// `-w`: operations before measuring; 0 leaves them out.
pub(crate) fn check_warmup(warmup: u32) -> Result<u64, PlanError> {
    within("-w", warmup.into(), 0, MAX_ITERS.into())
}

/// `-q`: queue pairs of each row, with source and destination of so many bytes.
pub(crate) fn check_qps(qps: &[u32], bytes: u64) -> Result<(), PlanError> {
    for &qps in qps {
        let qps = within("-q", qps.into(), 1, MAX_QPS.into())?;
        let need = 2 * qps * bytes;
        if need > MAX_MEMORY {
            return Err(PlanError::Memory { qps, bytes, need, limit: MAX_MEMORY });
        }
    }
    Ok(())
}

/// `-c` and `-t`: blocks of a posting kernel, and threads of each.
pub(crate) fn grid(blocks: Option<u32>, threads: Option<u32>) -> Result<(u32, u32), PlanError> {
    let blocks = within("-c", blocks.unwrap_or(1).into(), 1, 4096)?;
    let threads = within("-t", threads.unwrap_or(32).into(), 1, 1024)?;
    Ok((blocks as u32, threads as u32))
}

/// `-b`, `-e` and `-f`: `min`, `min × factor`, … up to `max`, which is always the last.
pub(crate) fn sizes(
    op: Op,
    min: u64,
    max: Option<u64>,
    factor: u64,
) -> Result<Vec<u64>, PlanError> {
    let max = max.unwrap_or(if op == Op::Atomic { 8 } else { min.max(1 << 20) });
    within("-b", min, 1, MAX_MESSAGE)?;
    within("-e", max, min, MAX_MESSAGE)?;
    within("-f", factor, 2, 1 << 20)?;
    if op == Op::Atomic && (min, max) != (8, 8) {
        let why = "an atomic is 8 bytes";
        return Err(PlanError::Conflict { flag: "-b or -e", with: "atomics", why });
    }
    let mut sizes: Vec<u64> = std::iter::successors(Some(min), |s| s.checked_mul(factor))
        .take_while(|&s| s < max)
        .collect();
    sizes.push(max);
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LoopbackArgs,
    }

    fn plan(line: &str) -> Result<Plan, PlanError> {
        Line::try_parse_from(std::iter::once("perf").chain(line.split_whitespace()))
            .unwrap_or_else(|e| panic!("{e}"))
            .args
            .plan()
    }

    #[test]
    fn sizes_grow_by_the_factor_and_end_at_the_largest() {
        assert_eq!(plan("-b 8 -e 1K -f 8").unwrap().sizes, [8, 64, 512, 1024]);
        assert_eq!(plan("-b 64 -e 64").unwrap().sizes, [64]);
        assert_eq!(plan("-w 0").unwrap().warmup, 0, "a measurement may do without warm-up");
        assert_eq!(plan("-b 4M").unwrap().sizes, [4 << 20]);
        assert_eq!(plan("--op atomic").unwrap().sizes, [8]);
    }

    #[test]
    fn a_value_out_of_range_names_its_flag() {
        for (line, named) in [
            ("-b 0", "-b"),
            ("-b 64 -e 8", "-e"),
            ("-e 2G", "-e"),
            ("-f 1", "-f"),
            ("-n 0", "-n"),
            ("-q 1,0", "-q"),
            ("-q 5000", "-q"),
            ("-c 0", "-c"),
            ("-t 2000", "-t"),
            ("--row-limit 0", "--row-limit"),
        ] {
            match plan(line) {
                Err(PlanError::Range { flag, .. }) => assert_eq!(flag, named, "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(matches!(plan("--op atomic -e 64"), Err(PlanError::Conflict { .. })));
        assert!(matches!(plan("--post host -c 2"), Err(PlanError::Conflict { flag: "-c", .. })));
        assert!(matches!(plan("--post host -t 2"), Err(PlanError::Conflict { flag: "-t", .. })));
        let error = plan("-q 64 -e 1G").unwrap_err().to_string();
        assert!(error.contains("128 GiB") && error.contains("lower -e or -q"), "{error}");
    }
}
