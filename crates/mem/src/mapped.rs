//! Which addresses of this process can be read and written, for memory that a program names by address.

use std::fs;
use std::io;

/// Ranges that can be read and written, as the kernel lists them at one moment: in order, neighbours as one.
#[derive(Debug)]
pub struct Mapped(Vec<(u64, u64)>);

/// Memory that this process has not mapped for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMapped {
    /// Not from its first byte on.
    #[error("not mapped for reading and writing")]
    Start,
    /// Its first bytes are.
    #[error("mapped for reading and writing only up to {end:#x}")]
    End {
        /// Where that ends.
        end: u64,
    },
}

impl Mapped {
    /// As they are now.
    ///
    /// # Errors
    /// The kernel's list cannot be read.
    pub fn now() -> io::Result<Self> {
        let path = "/proc/self/maps";
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
        // Names of files are not always text.
        let text = fs::read(path).map_err(named)?;
        Ok(Self::of(&String::from_utf8_lossy(&text)))
    }

    fn of(text: &str) -> Self {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let bounds = words.next().and_then(|bounds| bounds.split_once('-'));
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let bounds = bounds.and_then(|(start, end)| Some((number(start)?, number(end)?)));
            let writable = words.next().is_some_and(|rights| rights.starts_with("rw"));
            let Some((start, end)) = bounds.filter(|_| writable) else { continue };
            match all.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => all.push((start, end)),
            }
        }
        Self(all)
    }

    /// Whether all of it can be read and written.
    ///
    /// # Errors
    /// A byte cannot.
    pub fn check(&self, addr: u64, len: u64) -> Result<(), NotMapped> {
        let at = self.0.partition_point(|(start, _)| *start <= addr);
        let end = at.checked_sub(1).map_or(0, |at| self.0[at].1);
        match addr.checked_add(len) {
            _ if len == 0 => Ok(()),
            Some(last) if last <= end => Ok(()),
            _ if end <= addr => Err(NotMapped::Start),
            _ => Err(NotMapped::End { end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-2000 r--p 00000000 00:01 17   /a program
2000-3000 rw-p 00000000 00:00 0
3000-5000 rw-s 00000000 00:01 18   /memory (deleted)
5000-6000 ---p 00000000 00:00 0
6000-7000 rwxp 00000000 00:00 0    [heap]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    #[test]
    fn ranges_are_those_that_can_be_read_and_written() {
        let mapped = Mapped::of(MAPS);
        assert_eq!(mapped.0, [(0x2000, 0x5000), (0x6000, 0x7000)]);
        for (addr, len) in [(0x2000, 0x3000), (0x2fff, 2), (0x4fff, 1), (0x6010, 0xff0)] {
            mapped.check(addr, len).unwrap();
        }
        for (addr, len) in [(0x10, 1), (0x1fff, 1), (0x5000, 1), (0x7000, 1), (u64::MAX, 1)] {
            let why = mapped.check(addr, len).unwrap_err().to_string();
            assert_eq!(why, "not mapped for reading and writing", "{addr:#x}");
        }
        for (addr, len) in [(0x2000, 0x3001), (0x4fff, 0x1002), (0x2000, u64::MAX)] {
            let why = mapped.check(addr, len).unwrap_err().to_string();
            assert_eq!(why, "mapped for reading and writing only up to 0x5000", "{addr:#x}");
        }
    }

    #[test]
    fn own_memory_is_found() {
        let bytes = [1_u8; 100];
        let mapped = Mapped::now().unwrap();
        mapped.check(bytes.as_ptr() as u64, 100).unwrap();
        // Code is not writable.
        let code = own_memory_is_found as *const () as u64;
        assert!(mapped.check(code, 1).is_err());
    }
}
