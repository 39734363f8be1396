//! Posting the same operation again and again.

use super::messages::Part;
use super::pair::PairEnd;
use super::side::Side;
use crate::rig::host::post;
use crate::rig::plan::Op;
use anyhow::{Context as _, Result};
use warpverbs::transport::{LocalRegion, Poster, RemoteRegion, SendFlags};

/// Bytes of the longest message that does not complete by itself.
const COMPLETED_EACH: u64 = 8192;

/// Posts the same operation again and again, at most `depth` under way.
pub(crate) struct Feed<'l> {
    pub(crate) poster: Poster<'l>,
    pub(crate) op: Op,
    local: LocalRegion,
    remote: RemoteRegion,
    depth: u64,
    /// One in this many is signalled.
    pub(crate) every: u64,
    /// Operations that are complete.
    pub(crate) posted: u64,
    /// Index after the last, and the index below which all are complete.
    pub(crate) end: u64,
    pub(crate) completed: u64,
}

impl<'l> Feed<'l> {
    fn new(
        pair: &'l PairEnd,
        side: &Side,
        local: LocalRegion,
        remote: RemoteRegion,
    ) -> Result<Self> {
        let (poster, depth) = (pair.endpoint.host()?, u64::from(side.setup.tx_depth));
        // As perftest has it: long messages complete one by one.
        let every = if local.len() > COMPLETED_EACH { 1 } else { (depth / 4).clamp(1, 32) };
        let completed = poster.poll()?;
        let (op, end) = (side.setup.op, completed);
        Ok(Self { poster, op, local, remote, depth, every, posted: 0, end, completed })
    }

    /// From the client's memory to the server's, or as the operation goes.
    pub(crate) fn forth(pair: &'l PairEnd, side: &Side, part: &Part) -> Result<Self> {
        let local = pair.main.local().slice(0, part.bytes)?;
        Self::new(pair, side, local, pair.peer_main.slice(0, part.bytes)?)
    }

    /// From the server's memory for answers to the client's.
    pub(crate) fn back(pair: &'l PairEnd, side: &Side, part: &Part) -> Result<Self> {
        let (back, peer) = (pair.back.as_ref(), pair.peer_back);
        let (back, peer) = back.zip(peer).context("no memory for answers")?;
        Self::new(pair, side, back.local().slice(0, part.bytes)?, peer.slice(0, part.bytes)?)
    }

    #[inline]
    fn has_room(&mut self) -> Result<bool> {
        if self.end - self.completed < self.depth {
            return Ok(true);
        }
        self.completed = self.poster.poll()?;
        Ok(self.end - self.completed < self.depth)
    }

    #[inline]
    pub(crate) fn post(&mut self, signaled: bool) -> Result<()> {
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::UNSIGNALED };
        let posted = post(&self.poster, self.op, (self.local, self.remote), flags)?;
        self.posted += 1;
        self.end = posted.end();
        Ok(())
    }

    /// Posts at most `burst`, `quota` in all; whether anything went on.
    pub(crate) fn fill(&mut self, quota: u64, burst: u32) -> Result<bool> {
        let before = (self.posted, self.completed);
        for _ in 0..burst {
            if self.posted >= quota || !self.has_room()? {
                break;
            }
            let turn = self.posted + 1;
            self.post(turn.is_multiple_of(self.every) || turn == quota)?;
        }
        if self.posted >= quota && self.completed < self.end {
            self.completed = self.poster.poll()?;
        }
        Ok(before != (self.posted, self.completed))
    }

    pub(crate) fn is_over(&self, quota: u64) -> bool {
        self.posted >= quota && self.completed >= self.end
    }
}
