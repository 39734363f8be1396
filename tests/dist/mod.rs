//! Ranks whose flags say more than a user's would: how much is done, by how many, on which sizes.

pub(crate) mod counter;
pub(crate) mod mesh;
pub(crate) mod places;
pub(crate) mod rank;
pub(crate) mod sweep;
pub(crate) mod table;

use crate::common::job::Job;
use crate::common::{parse_size, within};
use anyhow::{Result, ensure};
use clap::Args;
use rank::Rank;
use table::Table;
use warpverbs::gpu::Dim;

/// How much is done, by how many.
#[derive(Args, Clone)]
pub(crate) struct Load {
    /// Operations on each queue pair, or of each thread
    #[arg(short = 'n', long, default_value_t = 64)]
    pub(crate) iters: u32,
    /// The same, before time is taken
    #[arg(short = 'w', long, default_value_t = 8)]
    pub(crate) warmup: u32,
    /// Blocks of the kernel [default: as few as will do]
    #[arg(short = 'c', long)]
    pub(crate) blocks: Option<u32>,
    /// Threads of a block, a multiple of 32 [default: as few as will do]
    #[arg(short = 't', long)]
    pub(crate) threads: Option<u32>,
    /// Queue pairs to each peer
    #[arg(short = 'q', long, default_value_t = 1)]
    pub(crate) qps: u32,
}

/// Which sizes of messages.
#[derive(Args, Clone)]
pub(crate) struct Sizes {
    /// Smallest message, as 8, 64K or 1M
    #[arg(short = 'b', long, default_value = "8", value_parser = parse_size)]
    pub(crate) begin: u64,
    /// Largest message
    #[arg(short = 'e', long, default_value = "1M", value_parser = parse_size)]
    pub(crate) end: u64,
    /// Factor from one size to the next
    #[arg(short = 'f', long, default_value_t = 4)]
    pub(crate) factor: u64,
}

impl Load {
    pub(crate) fn check(&self) -> Result<()> {
        within("--iters", self.iters, 1, 1_000_000)?;
        within("--warmup", self.warmup, 0, 1_000_000)?;
        within("--blocks", self.blocks.unwrap_or(1), 1, 1024)?;
        let threads = self.threads.unwrap_or(32);
        within("--threads", threads, 32, 1024)?;
        ensure!(threads.is_multiple_of(32), "--threads is {threads}, expected a multiple of 32");
        within("--qps", self.qps, 1, 256)
    }

    /// The launch that was asked for; it has `warps` warps or more.
    pub(crate) fn dim(&self, warps: u32) -> Result<Dim> {
        let threads = self.threads.unwrap_or(32 * warps.min(32));
        let blocks = self.blocks.unwrap_or(warps.div_ceil(threads / 32));
        ensure!(
            blocks * (threads / 32) >= warps,
            "--blocks {blocks} of --threads {threads} are {} warps, expected {warps} or more",
            blocks * (threads / 32)
        );
        Ok(Dim::new(blocks, threads))
    }

    /// The part of the flags that is the same on all ranks.
    pub(crate) fn plan(&self) -> String {
        format!("-n {} -w {} -q {}", self.iters, self.warmup, self.qps)
    }
}

impl Sizes {
    pub(crate) fn check(&self, most: u64) -> Result<()> {
        within("--begin", self.begin, 1, most)?;
        within("--end", self.end, self.begin, most)?;
        within("--factor", self.factor, 2, 1 << 20)
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        let next = |size: &u64| size.checked_mul(self.factor).filter(|&size| size <= self.end);
        std::iter::successors(Some(self.begin), next).collect()
    }

    pub(crate) fn plan(&self) -> String {
        format!("-b {} -e {} -f {}", self.begin, self.end, self.factor)
    }
}

/// Runs `body` as a rank of a job. It gives a table and a sentence for rank 0 to end with.
pub(crate) fn run(
    job: &Job,
    plan: &str,
    body: impl FnOnce(&mut Rank<'_>) -> Result<(Table, String)>,
) -> Result<()> {
    job.run(plan, |session, world| {
        let mut rank = Rank { session, world };
        ensure!(rank.world_size() >= 2, "the world has one rank, expected two or more");
        let (table, what) = body(&mut rank)?;
        if let (true, Some(link)) = (rank.is_first(), session.nic.link()) {
            eprintln!("link: {link}");
        }
        session.fact("rows", table.rows());
        Ok(what)
    })
}
