//! Which addresses of this process can be read and written: nobody may register what is not there.

use std::fs;

/// Ranges that can be read and written, ascending; neighbours are one.
pub(crate) struct Mapped(Vec<(u64, u64)>);

impl Mapped {
    /// Nothing, for memory that is not of the host.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// As they are now.
    ///
    /// # Errors
    /// The kernel's list cannot be read.
    pub(crate) fn now() -> Result<Self, String> {
        let path = "/proc/self/maps";
        let text = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self::of(&String::from_utf8_lossy(&text)))
    }

    fn of(text: &str) -> Self {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            if !rights.starts_with("rw") {
                continue;
            }
            let Some((start, end)) = range.split_once('-') else { continue };
            let number = |text| u64::from_str_radix(text, 16);
            let (Ok(start), Ok(end)) = (number(start), number(end)) else { continue };
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        Self(ranges)
    }

    /// # Errors
    /// A byte of the range cannot be read or written; the text says from where on.
    pub(crate) fn check(&self, addr: u64, len: u64) -> Result<(), String> {
        let Some(end) = addr.checked_add(len) else {
            return Err("the range ends beyond the address space".into());
        };
        let after = self.0.partition_point(|range| range.0 <= addr);
        let within = after.checked_sub(1).map_or(addr, |place| self.0[place].1);
        if end <= within || len == 0 {
            return Ok(());
        }
        let missing = within.max(addr);
        let why = "is not memory of this process that can be read and written";
        Err(format!("{missing:#x} {why}"))
    }
}
