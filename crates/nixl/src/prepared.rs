//! Lists whose descriptors have been looked up.

use crate::index::{Index, device};
use crate::memory::Extent;
use crate::{Desc, Error, Kind, Status, Strided};
use std::fmt;
use std::sync::Arc;

/// A list whose descriptors are known to lie in registered memory of one agent, or in registered files
/// of this one. Any number of transfers can be made of it.
pub struct Prepared {
    pub(crate) kind: Kind,
    /// Whose it is; empty for this agent's own side of transfers.
    pub(crate) agent: String,
    pub(crate) blocks: Blocks,
}

pub(crate) enum Blocks {
    Memory {
        prepared: warpverbs_agent::Prepared,
        /// As the program gave them, for transfers with files, if the agent has a backend for those.
        rows: Option<Rows>,
    },
    Files(Rows),
}

impl Prepared {
    /// How many blocks.
    pub fn len(&self) -> usize {
        match &self.blocks {
            Blocks::Memory { prepared, .. } => prepared.len(),
            Blocks::Files(rows) => rows.len(),
        }
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it describes.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.agent.is_empty() { "this agent" } else { &self.agent };
        write!(f, "Prepared({} blocks of {}, {side})", self.len(), self.kind)
    }
}

/// Blocks as a program gave them, by number.
pub(crate) struct Rows {
    rows: Vec<Strided>,
    /// For each row, how many blocks the rows before it have.
    before: Vec<u64>,
    count: usize,
}

impl Rows {
    pub(crate) fn new(rows: Vec<Strided>) -> Self {
        let mut count = 0;
        let mut before = Vec::with_capacity(rows.len());
        for row in &rows {
            before.push(count);
            count += row.count;
        }
        Self { rows, before, count: count as usize }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, index: usize) -> Option<Desc> {
        if index >= self.count {
            return None;
        }
        let index = index as u64;
        let at = self.before.partition_point(|before| *before <= index) - 1;
        let Strided { addr, len, dev, stride, .. } = self.rows[at];
        Some(Desc { addr: addr + stride * (index - self.before[at]), len, dev })
    }
}

/// Checks that blocks of files lie in registered files.
pub(crate) fn check_files(
    index: &Index<Arc<Extent>>,
    rows: &[Strided],
    owner: &dyn fmt::Display,
) -> Result<(), Error> {
    crate::index::runs(index, Kind::File, rows.iter().copied(), owner).map(drop)
}

/// The registered memory in which a block lies.
pub(crate) fn memory_of(
    index: &Index<Arc<Extent>>,
    kind: Kind,
    block: &Desc,
) -> Result<(Arc<Extent>, u64), Error> {
    let found = index.find(kind, device(kind, block.dev), block.addr, block.len);
    let range = found.ok_or_else(|| {
        let why = format!("{} bytes at {:#x} of {kind} are not registered", block.len, block.addr);
        Error::new(Status::NotFound, why)
    })?;
    Ok((range.value.clone(), block.addr - range.addr))
}
