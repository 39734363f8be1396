//! A record of calls, as text: what each read and where it wrote.
//!
//! ```text
//! call                  a call begins
//! read 7ffe0c10 1800…   bytes that it read, in hexadecimal, and their address
//! write 7ffe0c24 2      address and number of the bytes that it wrote
//! = 0                   its errno
//! ```

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use warpverbs_uverbs::{Errno, UserMemory};

/// Memory whose accesses are written down.
pub(crate) struct Recorder<M> {
    memory: M,
    text: RefCell<String>,
}

impl<M: UserMemory> Recorder<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, text: RefCell::new("call\n".to_owned()) }
    }

    /// Ends the call with this errno and appends it to `file`.
    pub(crate) fn finish(self, errno: i32, file: &Path) -> std::io::Result<()> {
        let text = format!("{}= {errno}\n", self.text.into_inner());
        OpenOptions::new().create(true).append(true).open(file)?.write_all(text.as_bytes())
    }

    fn note(&self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text.borrow_mut(), "{line}");
    }
}

impl<M: UserMemory> UserMemory for Recorder<M> {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        self.memory.read(address, out)?;
        let bytes: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        self.note(format_args!("read {address:x} {bytes}"));
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.memory.write(address, bytes)?;
        self.note(format_args!("write {address:x} {}", bytes.len()));
        Ok(())
    }
}
