//! Tokens: which the kernel gave, which it has got back.

use super::Fragment;
use super::abi::{DmabufToken, MAX_FRAGMENTS, MAX_RANGES, MAX_RECEIVE};
use super::error::TokenError;
use std::ops::Range;

/// State of a token that is not held: the kernel has it.
const WITH_KERNEL: u32 = 0;
/// State of a token that is to be returned, or is being returned.
const RETURNING: u32 = u32::MAX;

/// The tokens of one socket. The kernel gives the lowest free number, so numbers are dense.
#[derive(Debug)]
pub struct Ledger {
    /// Of each token: bytes that have not been given back, or one of the states above.
    states: Vec<u32>,
    limit: u32,
    held: u64,
    /// To be returned; a range may end where the next begins.
    waiting: Vec<DmabufToken>,
    waiting_tokens: u64,
    /// Being returned.
    batch: Vec<DmabufToken>,
    watermark: u64,
}

impl Ledger {
    /// For at most `limit` tokens at a time, of which `watermark` are collected before
    /// [`Ledger::is_due`].
    pub fn new(limit: u32, watermark: u32) -> Self {
        Self {
            states: Vec::new(),
            limit,
            held: 0,
            waiting: Vec::new(),
            waiting_tokens: 0,
            batch: Vec::with_capacity(MAX_RANGES),
            watermark: u64::from(watermark),
        }
    }

    /// The kernel gave `token` for a fragment of `bytes`, from 1 to `i32::MAX`.
    ///
    /// # Errors
    /// It has not got the token back, or there are too many.
    pub fn take(&mut self, token: u32, bytes: u32) -> Result<(), TokenError> {
        if token as usize >= self.states.len() {
            self.grow(token)?;
        }
        if !self.take_quickly(token, bytes) {
            return Err(TokenError::GivenTwice { token });
        }
        self.held += 1;
        Ok(())
    }

    fn grow(&mut self, token: u32) -> Result<(), TokenError> {
        if token >= self.limit {
            return Err(TokenError::TooMany { token, limit: self.limit });
        }
        let len = (token as usize + 1).next_power_of_two().max(64).min(self.limit as usize);
        self.states.resize(len, WITH_KERNEL);
        Ok(())
    }

    /// As [`Ledger::take`], if no memory is needed for it and nothing is wrong; the caller counts it
    /// by [`Ledger::add_held`].
    #[inline]
    pub(crate) fn take_quickly(&mut self, token: u32, bytes: u32) -> bool {
        match self.states.get_mut(token as usize) {
            Some(state) if *state == WITH_KERNEL => *state = bytes,
            _ => return false,
        }
        true
    }

    pub(crate) fn add_held(&mut self, tokens: u64) {
        self.held += tokens;
    }

    /// `bytes` of the fragment are no longer needed. When all of it is not, the token waits for
    /// being returned.
    ///
    /// # Errors
    /// The token is not held, or not for this many bytes.
    pub fn release(&mut self, token: u32, bytes: u64) -> Result<(), TokenError> {
        let state = self.states.get_mut(token as usize).ok_or(TokenError::NotHeld { token })?;
        let held = *state;
        if held == WITH_KERNEL || held == RETURNING {
            return Err(TokenError::NotHeld { token });
        }
        if bytes > u64::from(held) {
            return Err(TokenError::TooMuch { token, bytes, held });
        }
        *state -= bytes as u32;
        if *state == 0 {
            *state = RETURNING;
            self.wait(token..token + 1);
        }
        Ok(())
    }

    /// Releases the first of `fragments`, as many as are whole and have consecutive tokens. Returns
    /// how many.
    pub(crate) fn release_run(&mut self, fragments: &[Fragment]) -> usize {
        let Some(start) = fragments.first().and_then(|fragment| fragment.token) else { return 0 };
        let states = self.states.get_mut(start as usize..).unwrap_or_default();
        let most = fragments.len().min(states.len());
        let mut count = 0;
        while count < most {
            let (Fragment { len, token, .. }, state) = (&fragments[count], &mut states[count]);
            // The second half: neither of the two states that are not a number of bytes.
            let held = u64::from(*state) == *len && len.wrapping_sub(1) < MAX_RECEIVE;
            if !held || *token != Some(start + count as u32) {
                break;
            }
            *state = RETURNING;
            count += 1;
        }
        self.wait(start..start + count as u32);
        count
    }

    /// Tokens that have been marked as returning are no longer held.
    fn wait(&mut self, tokens: Range<u32>) {
        let Range { start: token_start, end } = tokens;
        let token_count = end - token_start;
        self.held -= u64::from(token_count);
        self.waiting_tokens += u64::from(token_count);
        match self.waiting.last_mut() {
            Some(last) if last.token_start + last.token_count == token_start => {
                last.token_count += token_count;
            }
            _ if token_count > 0 => self.waiting.push(DmabufToken { token_start, token_count }),
            _ => {}
        }
    }

    /// Tokens whose fragments are in use.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Tokens that the kernel has not got back although their fragments are no longer needed.
    pub fn unreturned(&self) -> u64 {
        self.waiting_tokens + u64::from(count(&self.batch))
    }

    /// Whether enough are waiting for a call to be worth it, before a queue runs out of pages.
    pub fn is_due(&self) -> bool {
        self.unreturned() >= self.watermark
    }

    /// The ranges for the next `SO_DEVMEM_DONTNEED`, within the kernel's limits; none if no token
    /// waits. [`Ledger::returned`] takes the answer. Nothing may be received in between: the kernel
    /// could give a token again of which the ledger does not know yet that it has been freed.
    pub fn batch(&mut self) -> &[DmabufToken] {
        if self.batch.is_empty() {
            if self.waiting.len() > 1 {
                self.merge();
            }
            self.fill();
        }
        &self.batch
    }

    /// Sorts the waiting ranges, which came in any order, and joins neighbours.
    fn merge(&mut self) {
        self.waiting.sort_unstable_by_key(|range| range.token_start);
        self.waiting.dedup_by(|next, range| {
            let joined = range.token_start + range.token_count == next.token_start;
            if joined {
                range.token_count += next.token_count;
            }
            joined
        });
    }

    /// Moves ranges to the batch, and splits the one that is too long.
    fn fill(&mut self) {
        let mut room = MAX_FRAGMENTS;
        while room > 0 && self.batch.len() < MAX_RANGES {
            let Some(range) = self.waiting.last_mut() else { break };
            let token_count = range.token_count.min(room);
            range.token_count -= token_count;
            let token_start = range.token_start + range.token_count;
            if range.token_count == 0 {
                self.waiting.pop();
            }
            self.batch.push(DmabufToken { token_start, token_count });
            self.waiting_tokens -= u64::from(token_count);
            room -= token_count;
        }
    }

    /// The kernel freed the first `freed` tokens of the batch. The rest is the next batch.
    ///
    /// # Errors
    /// It freed none although there were some, or more than there were: it does not know tokens that
    /// it gave. The batch stays as it is.
    pub fn returned(&mut self, freed: u32) -> Result<(), TokenError> {
        let asked = count(&self.batch);
        if freed > asked || (freed == 0 && asked > 0) {
            return Err(TokenError::Refused { asked, freed });
        }
        let mut left = freed;
        let states = &mut self.states;
        self.batch.retain_mut(|range| {
            let now = range.token_count.min(left);
            let from = range.token_start as usize;
            states[from..from + now as usize].fill(WITH_KERNEL);
            left -= now;
            range.token_start += now;
            range.token_count -= now;
            range.token_count > 0
        });
        Ok(())
    }
}

fn count(ranges: &[DmabufToken]) -> u32 {
    ranges.iter().map(|range| range.token_count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(tokens: u32) -> Ledger {
        let mut ledger = Ledger::new(1 << 16, 64);
        (0..tokens).for_each(|token| ledger.take(token, 4096).unwrap());
        ledger
    }

    #[test]
    fn a_range_of_more_than_1024_fragments_is_split() {
        let mut ledger = with(5000);
        (0..5000).for_each(|token| ledger.release(token, 4096).unwrap());
        let mut sizes = Vec::new();
        while let asked @ 1.. = count(ledger.batch()) {
            sizes.push(asked);
            ledger.returned(asked).unwrap();
        }
        assert_eq!(sizes, [1024, 1024, 1024, 1024, 904]);
        assert_eq!((ledger.unreturned(), ledger.held()), (0, 0));
        ledger.take(4999, 1).unwrap();
    }

    #[test]
    fn at_most_128_ranges_are_returned_at_once() {
        let mut ledger = with(600);
        (0..600).step_by(2).for_each(|token| ledger.release(token, 4096).unwrap());
        let mut batches = Vec::new();
        while let ranges @ 1.. = ledger.batch().len() {
            batches.push(ranges);
            ledger.returned(ranges as u32).unwrap();
        }
        assert_eq!(batches, [128, 128, 44]);
        assert_eq!(ledger.held(), 300);
    }

    #[test]
    fn tokens_given_back_in_any_order_are_joined() {
        let mut ledger = with(100);
        (0..100).rev().for_each(|token| ledger.release(token, 4096).unwrap());
        assert_eq!(ledger.batch(), [DmabufToken { token_start: 0, token_count: 100 }]);
    }

    #[test]
    fn what_the_kernel_did_not_free_is_returned_again() {
        let mut ledger = with(10);
        (0..10).for_each(|token| ledger.release(token, 4096).unwrap());
        ledger.batch();
        ledger.returned(3).unwrap();
        assert_eq!(ledger.batch(), [DmabufToken { token_start: 3, token_count: 7 }]);
        assert_eq!(ledger.unreturned(), 7);
        assert_eq!(ledger.returned(0), Err(TokenError::Refused { asked: 7, freed: 0 }));
        assert_eq!(ledger.returned(8), Err(TokenError::Refused { asked: 7, freed: 8 }));
        // The kernel may give those again that it freed, and no other.
        ledger.take(2, 1).unwrap();
        assert_eq!(ledger.take(3, 1), Err(TokenError::GivenTwice { token: 3 }));
    }

    #[test]
    fn a_token_waits_until_every_part_is_given_back() {
        let mut ledger = with(1);
        ledger.release(0, 4000).unwrap();
        assert_eq!((ledger.held(), ledger.unreturned()), (1, 0));
        let held = TokenError::TooMuch { token: 0, bytes: 97, held: 96 };
        assert_eq!(ledger.release(0, 97), Err(held));
        ledger.release(0, 96).unwrap();
        assert_eq!((ledger.held(), ledger.unreturned()), (0, 1));
        assert_eq!(ledger.release(0, 1), Err(TokenError::NotHeld { token: 0 }));
    }

    #[test]
    fn wrong_tokens_are_refused_and_cost_no_memory() {
        let mut ledger = Ledger::new(1000, 64);
        ledger.take(999, 1).unwrap();
        assert_eq!(ledger.states.len(), 1000);
        for token in [1000, u32::MAX] {
            assert_eq!(ledger.take(token, 1), Err(TokenError::TooMany { token, limit: 1000 }));
            assert_eq!(ledger.release(token, 1), Err(TokenError::NotHeld { token }));
        }
        assert_eq!(ledger.take(999, 1), Err(TokenError::GivenTwice { token: 999 }));
    }
}
