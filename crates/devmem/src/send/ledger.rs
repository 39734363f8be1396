//! Completions of `MSG_ZEROCOPY`: ranges of 32-bit numbers, merged, late and in any order.

use std::collections::BTreeMap;
use thiserror::Error;

/// A completion that cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket failed.
    #[error("{call} failed")]
    Socket {
        /// The system call.
        call: &'static str,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel completed something that was not sent.
    #[error(
        "sends {first} to {last} completed; those in flight are {oldest} to {newest}, exclusive"
    )]
    NotSent {
        /// First number of the completion.
        first: u32,
        /// Last number of the completion.
        last: u32,
        /// Oldest send that has not completed.
        oldest: u64,
        /// The next send.
        newest: u64,
    },
    /// The kernel completed something twice.
    #[error("send {number} completed twice")]
    Twice {
        /// Its number.
        number: u64,
    },
    /// Bytes that are not inside of the memory that is sent from.
    #[error(
        "{len} bytes at offset {offset:#x} are not inside the {size:#x} bytes that are sent from"
    )]
    Outside {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the memory.
        size: u64,
    },
}

/// Completion that the kernel reports: `ee_info` to `ee_data` of a `sock_extended_err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// First number, which wraps at 2³².
    pub first: u32,
    /// Last number, inclusive.
    pub last: u32,
    /// The kernel copied the bytes after all.
    pub copied: bool,
}

/// The sends of one socket, counted as the kernel counts them: one for each `sendmsg` that succeeded
/// with the flag. Numbers do not wrap here.
#[derive(Clone, Debug, Default)]
pub struct Sends {
    next: u64,
    /// All before this have completed.
    done: u64,
    /// Completed ranges behind it: start and end.
    early: BTreeMap<u64, u64>,
    copied: u64,
}

impl Sends {
    /// A send has succeeded; its number.
    pub fn sent(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// All sends before this number have completed: their memory may change.
    pub fn done_before(&self) -> u64 {
        self.done
    }

    /// Sends that have not completed, counting those that completed before an earlier one.
    pub fn in_flight(&self) -> u64 {
        self.next - self.done
    }

    /// Completed sends that the kernel copied.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// The kernel has completed a range.
    ///
    /// # Errors
    /// Not all of it is in flight. Nothing changes.
    pub fn completed(&mut self, completion: Completion) -> Result<(), SendError> {
        let Completion { first, last, copied } = completion;
        // The kernel's numbers are the low halves of ours; fewer than 2³² are in flight.
        let start = self.done + u64::from(first.wrapping_sub(self.done as u32));
        let end = start + u64::from(last.wrapping_sub(first)) + 1;
        if end > self.next {
            let (oldest, newest) = (self.done, self.next);
            return Err(SendError::NotSent { first, last, oldest, newest });
        }
        let before = self.early.range(..end).next_back();
        if let Some((_, known)) = before.filter(|(_, known)| **known > start) {
            return Err(SendError::Twice { number: known - 1 });
        }
        self.copied += if copied { end - start } else { 0 };
        self.early.insert(start, end);
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() == self.done) {
            self.done = first.remove();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, last: u32) -> Completion {
        Completion { first, last, copied: false }
    }

    fn sent(from: u64, count: u64) -> Sends {
        let mut sends = Sends { next: from, done: from, ..Sends::default() };
        for _ in 0..count {
            let _ = sends.sent();
        }
        sends
    }

    #[test]
    fn ranges_complete_in_any_order_and_across_the_wrap() {
        let mut sends = sent((1 << 32) - 3, 8);
        sends.completed(range(1, 2)).unwrap();
        assert_eq!((sends.in_flight(), sends.done_before()), (8, (1 << 32) - 3));
        sends.completed(range(u32::MAX - 2, 0)).unwrap();
        assert_eq!((sends.in_flight(), sends.done_before()), (2, (1 << 32) + 3));
        sends.completed(Completion { copied: true, ..range(3, 4) }).unwrap();
        assert_eq!((sends.in_flight(), sends.copied()), (0, 2));
        assert!(sends.early.is_empty());
    }

    #[test]
    fn what_is_not_in_flight_does_not_complete() {
        let mut sends = sent(100, 10);
        sends.completed(range(104, 106)).unwrap();
        for (first, last) in [(99, 100), (109, 110), (100, 99), (110, 110)] {
            let result = sends.completed(range(first, last));
            assert!(matches!(result, Err(SendError::NotSent { .. })), "{first} {last}");
        }
        for (first, last) in [(104, 104), (106, 107), (100, 104), (100, 109)] {
            let result = sends.completed(range(first, last));
            assert!(matches!(result, Err(SendError::Twice { .. })), "{first} {last}");
        }
        sends.completed(range(100, 103)).unwrap();
        assert_eq!(sends.done_before(), 107);
    }
}
