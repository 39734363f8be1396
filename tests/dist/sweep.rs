//! Programs that do the same for one size of message after the other.

use super::mesh::Mesh;
use super::rank::Rank;
use super::table::{Row, Table};
use super::{Load, Sizes};
use crate::common::job::Job;
use anyhow::{Context as _, Result};
use clap::Args;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use warpverbs::transport::MemoryRegion;

/// Their flags.
#[derive(Args)]
pub(crate) struct Sweep {
    #[command(flatten)]
    pub(crate) job: Job,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    #[command(flatten)]
    pub(crate) load: Load,
    /// Adds to each row the SHA-256 of what all ranks have received: the same whatever carries it
    #[arg(long)]
    sha256: bool,
}

/// Work that is the same for every size.
pub(crate) trait Work {
    /// Words for a success at all ranks.
    fn verdict(&self, ranks: u32) -> String;

    fn mesh(&self) -> &Mesh;

    /// Where messages of one size arrive, by sender, and how many bytes of it they fill.
    fn received(&self, size: u64) -> Vec<(&MemoryRegion, u64)>;

    /// One size, and the comparison: how long the slowest rank took.
    fn row(&self, rank: &mut Rank<'_>, load: &Load, row: usize, size: u64) -> Result<Duration>;
}

impl Sweep {
    /// The part of the flags that is the same on all ranks of the program `name`, for messages up to
    /// `most`.
    pub(crate) fn plan(&self, name: &str, most: u64) -> Result<String> {
        self.sizes.check(most)?;
        self.load.check()?;
        let hash = if self.sha256 { " --sha256" } else { "" };
        Ok(format!("{name} {} {}{hash}", self.sizes.plan(), self.load.plan()))
    }

    /// A table of all sizes, which rank 0 prints.
    pub(crate) fn rows(&self, rank: &mut Rank<'_>, work: &impl Work) -> Result<(Table, String)> {
        let (load, session) = (&self.load, rank.session);
        let mut table = Table::new(session, rank.is_first())?;
        for (row, size) in self.sizes.all().into_iter().enumerate() {
            let time = work.row(rank, load, row, size).with_context(|| format!("{size} bytes"))?;
            let count = u64::from(load.iters) * work.mesh().len() as u64;
            let sha256 = match self.sha256 {
                true => Some(digest(rank, &work.received(size))?),
                false => None,
            };
            table.push(session, Row { op: None, size, time, count, sha256 })?;
        }
        let (sizes, ranks) = (table.len(), rank.world_size());
        Ok((table, format!("{sizes} sizes, {}", work.verdict(ranks))))
    }
}

/// SHA-256 of what all ranks have received, by rank.
fn digest(rank: &mut Rank<'_>, parts: &[(&MemoryRegion, u64)]) -> Result<String> {
    let mut own = Sha256::new();
    for (region, len) in parts {
        let mut bytes = vec![0; usize::try_from(*len)?];
        rank.session.gpu.read(region.buffer(), 0, &mut bytes)?;
        own.update(bytes);
    }
    let all = rank.exchange("sha256", &own.finalize())?;
    Ok(Sha256::digest(all.concat()).iter().map(|byte| format!("{byte:02x}")).collect())
}
