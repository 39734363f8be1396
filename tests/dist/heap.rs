//! Examples on a symmetric heap, which do the same for one size after the other.

use super::rank::Rank;
use super::table::{Row, Table};
use super::{Job, Sizes, Start};
use crate::common;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::shmem::{Heap, Sym};

/// Their flags. `WARPVERBS_SHMEM_ROUTE` says how ranks reach each other.
#[derive(Args)]
pub(crate) struct HeapFlags {
    #[command(flatten)]
    job: Job,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// Launches for each size
    #[arg(short = 'n', long, default_value_t = 4)]
    pub(crate) iters: u32,
    /// Threads of the block on each rank, a multiple of 32
    #[arg(short = 't', long, default_value_t = 128)]
    threads: u32,
    /// Adds to each row the SHA-256 of what all ranks have received: the same whatever carries it
    #[arg(long)]
    sha256: bool,
}

/// Bytes of a heap beside those of its places.
pub(crate) const ROOM: u64 = 1 << 16;

/// Work on a heap that is the same for every size.
pub(crate) trait Exchange {
    /// Words for a success at all ranks.
    fn verdict(&self, ranks: u32) -> String;
    /// How often one launch moves as much as the size says.
    fn operations(&self) -> u64 {
        1
    }
    /// One launch, the `round`-th from 1, and the comparison; the time of the launch.
    fn launch(&self, part: &mut Part<'_, '_>, round: u64, size: u64) -> Result<Duration>;
    /// The bytes that have arrived.
    fn arrived(&self, heap: &Heap, size: u64) -> Result<Vec<u8>>;
}

/// A rank and its heap.
pub(crate) struct Part<'a, 'r> {
    pub(crate) rank: &'a mut Rank<'r>,
    pub(crate) heap: Heap,
    pub(crate) dim: Dim,
}

impl HeapFlags {
    /// This process as a rank of the example `name`, for sizes up to `most`; `more` is the part of
    /// the example's own flags that is the same on all ranks.
    pub(crate) fn start(&self, name: &str, most: u64, more: &str) -> Result<Option<Start<'_>>> {
        self.sizes.check(most)?;
        common::within("--iters", self.iters.into(), 1, 1_000_000)?;
        common::within("--threads", self.threads.into(), 32, 512)?;
        ensure!(self.threads.is_multiple_of(32), "--threads is no multiple of 32");
        let hash = if self.sha256 { " --sha256" } else { "" };
        let (sizes, iters) = (self.sizes.plan(), self.iters);
        self.job.start(format!("{name} {sizes} -n {iters}{more}{hash}"))
    }

    /// A table of all sizes, which rank 0 prints.
    pub(crate) fn rows(
        &self,
        rank: &mut Rank<'_>,
        heap: Heap,
        work: &impl Exchange,
    ) -> Result<(Table, String)> {
        rank.tell_routes(&heap)?;
        let ranks = rank.world_size();
        let mut table = Table::new(rank.session, rank.is_first())?;
        let mut part = Part { rank, heap, dim: Dim::new(1, self.threads) };
        let mut round = 0;
        for size in self.sizes.all() {
            let mut time = Duration::ZERO;
            for _ in 0..self.iters {
                round += 1;
                time += work.launch(&mut part, round, size)?;
                // Nobody writes what another has not yet compared.
                part.rank.barrier("row")?;
            }
            let time = part.rank.slowest(time)?;
            let sha256 = match self.sha256 {
                true => Some(part.digest(&work.arrived(&part.heap, size)?)?),
                false => None,
            };
            let count = u64::from(self.iters) * work.operations();
            table.push(part.rank.session, Row { op: None, size, time, count, sha256 })?;
        }
        let what = format!("{}, {} sizes", work.verdict(ranks), table.len());
        Ok((table, what))
    }
}

impl Part<'_, '_> {
    /// The digest of the digests of all ranks' bytes.
    fn digest(&mut self, bytes: &[u8]) -> Result<String> {
        let all = self.rank.exchange("sha256", &Sha256::digest(bytes))?;
        let digest = Sha256::digest(all.concat());
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Bytes that differ from rank to rank, round to round, and place to place.
pub(crate) fn pattern(rank: u32, round: u64, len: u64) -> Vec<u8> {
    let salt = round << 8 | u64::from(rank);
    let word = |i: u64| (i ^ salt << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8)).flat_map(word).take(len as usize).collect()
}

/// The first `len` bytes of a place.
pub(crate) fn read(heap: &Heap, place: &Sym<u8>, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len)?];
    heap.read(&place.slice(0, len)?, &mut bytes)?;
    Ok(bytes)
}

/// Fails at the first byte that is not as it should be.
pub(crate) fn compare(what: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    let Some(at) = (0..expected.len()).find(|&i| found.get(i) != expected.get(i)) else {
        return Ok(());
    };
    let byte = found.get(at).with_context(|| format!("{what}: only {} bytes", found.len()))?;
    anyhow::bail!("{what}: byte {at} is {byte:#04x}, expected {:#04x}", expected[at])
}
