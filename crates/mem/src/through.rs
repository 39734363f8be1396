//! Bytes of any memory, read and written by the host, which waits for a copy engine if it needs
//! one.

use crate::copier::copy;
use crate::{Kind, MemError, Region};

/// Bytes that are on their way at a time.
const PART: usize = 1 << 20;

impl Region {
    /// Copies bytes out of any memory. Waits until they are there, at most as long as a copy may
    /// take.
    ///
    /// # Errors
    /// The range is outside of the region, no engine reaches it, or the engine failed.
    pub fn read_through(&self, offset: u64, out: &mut [u8]) -> Result<(), MemError> {
        if self.kind() == Kind::Host {
            return self.read(offset, out);
        }
        self.range(offset, out.len())?;
        let between = self.engine()?.host_memory(out.len().min(PART))?;
        for (part, at) in out.chunks_mut(PART).zip((offset..).step_by(PART)) {
            copy(&between, 0, self, at, part.len())?.wait()?;
            between.read(0, part)?;
        }
        Ok(())
    }

    /// Copies bytes into any memory. Waits until they are there, at most as long as a copy may
    /// take.
    ///
    /// # Errors
    /// The range is outside of the region, no engine reaches it, or the engine failed.
    pub fn write_through(&self, offset: u64, data: &[u8]) -> Result<(), MemError> {
        if self.kind() == Kind::Host {
            return self.write(offset, data);
        }
        self.range(offset, data.len())?;
        let between = self.engine()?.host_memory(data.len().min(PART))?;
        for (part, at) in data.chunks(PART).zip((offset..).step_by(PART)) {
            between.write(0, part)?;
            copy(self, at, &between, 0, part.len())?.wait()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LazyCopier, LazyMemory};
    use std::sync::Arc;

    #[test]
    fn bytes_go_both_ways_or_say_why_not() {
        let copier = Arc::new(LazyCopier::default());
        let (device, view) = LazyMemory::regions(PART + 8, 0, &copier).unwrap();
        copier.pace(2);
        let data: Vec<u8> = (0..PART + 5).map(|i| i as u8 ^ (i >> 8) as u8).collect();
        device.write_through(3, &data).unwrap();
        let (mut seen, mut back) = (vec![0; PART + 5], vec![0; PART + 5]);
        view.read_through(3, &mut seen).unwrap();
        device.read_through(3, &mut back).unwrap();
        assert!(seen == data && back == data);
        assert!(matches!(device.write_through(4, &data), Err(MemError::OutOfBounds { .. })));
        copier.break_down();
        assert!(matches!(device.read_through(0, &mut [0]), Err(MemError::CopyFailed { .. })));
        let (hung, _) = LazyMemory::regions(8, 0, &Arc::new(LazyCopier::default())).unwrap();
        let hangs = MemError::CopyFailed { code: -1, what: "a copy that does not end" };
        assert_eq!(hung.read_through(0, &mut [0]), Err(hangs));
    }
}
