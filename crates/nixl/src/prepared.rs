//! Lists whose descriptors have been looked up.

use crate::index::Index;
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

/// Blocks as a program gave them, by number, and where they lie.
pub(crate) struct Rows {
    kind: Kind,
    index: Arc<Index<Arc<Extent>>>,
    rows: Vec<Strided>,
    /// For each row, how many blocks the rows before it have.
    before: Vec<u64>,
    count: usize,
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

    /// The kind of memory.
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

impl Rows {
    pub(crate) fn new(kind: Kind, index: Arc<Index<Arc<Extent>>>, rows: Vec<Strided>) -> Self {
        let mut count = 0;
        let mut before = Vec::with_capacity(rows.len());
        for row in &rows {
            before.push(count);
            count += row.count;
        }
        Self { kind, index, rows, before, count: count as usize }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The block of a number: in which registration, where in it, and the block itself.
    pub(crate) fn get(&self, number: usize) -> Result<(&Arc<Extent>, u64, Desc), Error> {
        let wrong = |status, why| Error::new(status, why);
        if number >= self.count {
            let why = format!("index {number}, the list has {} blocks", self.count);
            return Err(wrong(Status::InvalidParam, why));
        }
        let at = self.before.partition_point(|before| *before <= number as u64) - 1;
        let Strided { addr, len, dev, stride, .. } = self.rows[at];
        // Inside a row, whose end was checked.
        let addr = addr + stride * (number as u64 - self.before[at]);
        let range = self.index.find(self.kind, dev, addr, len).ok_or_else(|| {
            let why = format!("{len} bytes at {addr:#x} of {} {dev} are not registered", self.kind);
            wrong(Status::NotFound, why)
        })?;
        Ok((&range.value, addr - range.addr, Desc { addr, len, dev }))
    }
}
