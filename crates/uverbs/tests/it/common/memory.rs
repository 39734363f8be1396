//! Memory of a program: one span of addresses; everything else is a fault.

use std::cell::RefCell;
use warpverbs_uverbs::{Errno, UserMemory};

/// Where the memory begins.
pub(crate) const BASE: u64 = 0x10_0000;

pub(crate) struct Memory {
    bytes: RefCell<Vec<u8>>,
    writes: RefCell<Vec<(u64, usize)>>,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: RefCell::new(vec![0; len]), writes: RefCell::default() }
    }

    /// Writes as the program does, unrecorded.
    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        let at = (address - BASE) as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn get<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut out = [0; N];
        self.read(address, &mut out).unwrap();
        out
    }

    pub(crate) fn word(&self, address: u64) -> u32 {
        u32::from_ne_bytes(self.get(address))
    }

    /// Address and length of everything written since the last call.
    pub(crate) fn take_writes(&self) -> Vec<(u64, usize)> {
        self.writes.take()
    }
}

fn place(bytes: &[u8], address: u64, len: usize) -> Result<usize, Errno> {
    let at = address.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
    let fits = |at: &usize| at.checked_add(len).is_some_and(|end| end <= bytes.len());
    at.filter(fits).ok_or(Errno::EFAULT)
}

impl UserMemory for Memory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        let bytes = self.bytes.borrow();
        let at = place(&bytes, address, out.len())?;
        out.copy_from_slice(&bytes[at..at + out.len()]);
        Ok(())
    }

    fn write(&self, address: u64, written: &[u8]) -> Result<(), Errno> {
        let mut bytes = self.bytes.borrow_mut();
        let at = place(&bytes, address, written.len())?;
        bytes[at..at + written.len()].copy_from_slice(written);
        self.writes.borrow_mut().push((address, written.len()));
        Ok(())
    }
}
