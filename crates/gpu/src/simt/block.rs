//! One resident block: its barrier and its shared memory.

use super::fault::{LaneName, SimtFault};
use warpverbs_mem::{HostBuf, MemError, Region};

/// Byte that fills fresh shared memory, so that reading it before writing it shows.
const UNINITIALISED: u8 = 0xcd;

pub(crate) struct Block {
    /// Slots of its warps in the executor.
    pub(crate) warps: Vec<usize>,
    /// Lanes that have not ended.
    pub(crate) alive: u32,
    /// Lanes that wait in the block's barrier.
    pub(crate) waiting: u32,
    shared: Option<Region>,
    used: u64,
    /// Variables by the address of their key; few.
    variables: Vec<(u64, u64)>,
}

impl Block {
    pub(crate) fn new(warps: Vec<usize>, lanes: u32) -> Self {
        let (shared, variables) = (None, Vec::new());
        Self { warps, alive: lanes, waiting: 0, shared, used: 0, variables }
    }

    /// Whether the barrier opens: CUDA waits for all lanes that have not ended.
    pub(crate) fn barrier_opens(&self) -> bool {
        self.waiting > 0 && self.waiting == self.alive
    }

    /// Address of the shared variable `key`, made on first use.
    pub(crate) fn variable(
        &mut self,
        lane: LaneName,
        (size, align, key): (u64, u64, u64),
        limit: u64,
    ) -> Result<u64, SimtFault> {
        if let Some((_, addr)) = self.variables.iter().find(|(k, _)| *k == key) {
            return Ok(*addr);
        }
        let used = self.used;
        let refused = SimtFault::SharedMemory { lane, size, align, used, limit };
        if !align.is_power_of_two() || align > 4096 {
            return Err(refused);
        }
        let offset = used.next_multiple_of(align);
        let end = match offset.checked_add(size) {
            Some(end) if end <= limit => end,
            _ => return Err(refused),
        };
        let addr = self.place(offset, size as usize, limit as usize)?;
        self.used = end;
        self.variables.push((key, addr));
        Ok(addr)
    }

    fn place(&mut self, offset: u64, size: usize, limit: usize) -> Result<u64, MemError> {
        let region = match self.shared.take() {
            Some(region) => region,
            None => HostBuf::region(limit)?,
        };
        let region = self.shared.insert(region);
        region.fill(offset, size, UNINITIALISED)?;
        region.range(offset, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_their_place_within_the_limit() {
        let mut block = Block::new(vec![0], 32);
        let lane = LaneName { block: 0, warp: 0, lane: 5 };
        let a = block.variable(lane, (3, 1, 10), 4096).unwrap();
        let b = block.variable(lane, (64, 64, 11), 4096).unwrap();
        assert_eq!(block.variable(lane, (3, 1, 10), 4096).unwrap(), a);
        assert!(b.is_multiple_of(64) && b >= a + 3);
        let refused = block.variable(lane, (4096, 8, 12), 4096).unwrap_err();
        assert_eq!(
            refused,
            SimtFault::SharedMemory { lane, size: 4096, align: 8, used: 128, limit: 4096 }
        );
        assert!(block.variable(lane, (8, 3, 13), 4096).is_err());
    }
}
