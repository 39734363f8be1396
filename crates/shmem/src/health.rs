//! Failures on a heap, and ending waits for ranks that will not come.

use crate::layout::{FAULT_COMPLETE, HeapFault, NO_RANK};
use crate::{Heap, ShmemError};
use std::fmt;
use warpverbs_transport::{Health, Outcome, WaitFor};
use zerocopy::IntoBytes;

/// The first wait of a kernel on the heap that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapFaultReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The event that was waited for.
    pub what: WaitFor,
    /// The rank that was waited for, if it was a certain one.
    pub peer: Option<u32>,
    /// Where in the heap the word lies.
    pub offset: u64,
    /// The value that was waited for.
    pub expected: u64,
    /// The value that was found when the wait gave up.
    pub actual: u64,
    /// Flat number of the thread: block × threads per block + thread.
    pub thread: u64,
}

impl fmt::Display for HeapFaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outcome, what, offset, expected, actual, thread, .. } = self;
        write!(f, "{outcome}: thread {thread} waited for {what:?}")?;
        if let Some(peer) = self.peer {
            write!(f, " from rank {peer}")?;
        }
        write!(f, ": the word at offset {offset:#x} was {actual:#x}, expected {expected:#x}")
    }
}

/// An examination of a [`Heap`]. Prints as one line per finding.
#[derive(Debug)]
#[non_exhaustive]
pub struct HeapHealth {
    /// [`Heap::abort`] was called, or the members of a world that is [watched](Heap::watch) regroup.
    pub aborted: bool,
    /// Ranks that were given up.
    pub lost: Vec<u32>,
    /// The first wait of a kernel that failed.
    pub fault: Option<HeapFaultReport>,
    /// Queue pairs that are not well, with the rank each leads to.
    pub queue_pairs: Vec<(u32, Health)>,
}

impl HeapHealth {
    /// No wait has failed, no rank is lost, and all queue pairs are in order.
    pub fn is_ok(&self) -> bool {
        let Self { aborted, lost, fault, queue_pairs } = self;
        !aborted && lost.is_empty() && fault.is_none() && queue_pairs.is_empty()
    }
}

impl fmt::Display for HeapHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        if self.aborted {
            lines.push("aborted by the host".to_owned());
        }
        lines.extend(self.lost.iter().map(|rank| format!("rank {rank} was given up")));
        lines.extend(self.fault.iter().map(ToString::to_string));
        let pairs = self.queue_pairs.iter();
        lines.extend(pairs.map(|(rank, health)| format!("queue pair to rank {rank}: {health}")));
        match lines.is_empty() {
            true => f.write_str("well"),
            false => f.write_str(&lines.join("\n")),
        }
    }
}

impl Heap {
    /// Reads the state of the heap and of its queue pairs.
    ///
    /// # Errors
    /// The device or the NIC refuses.
    pub fn health(&self) -> Result<HeapHealth, ShmemError> {
        let mut fault = HeapFault::default();
        self.parts.gpu.read(&self.parts.state, 0, fault.as_mut_bytes())?;
        // A fault that is being written counts when it is complete.
        let fault = (fault.claim == FAULT_COMPLETE).then(|| HeapFaultReport {
            outcome: Outcome::from_code(fault.status),
            what: WaitFor::from_value(fault.what),
            peer: (fault.peer != NO_RANK).then_some(fault.peer),
            offset: fault.offset,
            expected: fault.expected,
            actual: fault.actual,
            thread: fault.thread,
        });
        let alarms = &self.parts.alarms;
        let lost = (0..self.world()).filter(|rank| alarms.is_lost(*rank));
        let pairs = self.parts.remote.as_ref().map(|remote| remote.health()).transpose()?;
        let (aborted, queue_pairs) = (alarms.is_aborted(), pairs.unwrap_or_default());
        Ok(HeapHealth { aborted, lost: lost.collect(), fault, queue_pairs })
    }

    /// Ends every wait of this rank's kernels on the heap, now and later.
    ///
    /// # Errors
    /// The device or the NIC refuses.
    pub fn abort(&mut self) -> Result<(), ShmemError> {
        self.parts.alarms.abort(true)?;
        match &self.parts.remote {
            Some(remote) => (0..self.world() as usize).try_for_each(|rank| remote.abort(rank)),
            None => Ok(()),
        }
    }

    /// Marks a rank as lost: waits of this rank's kernels for it end, now and later. Its memory stays
    /// mapped, so that stores to it do no harm.
    ///
    /// # Errors
    /// There is no such rank, or the device or the NIC refuses.
    pub fn mark_lost(&mut self, rank: u32) -> Result<(), ShmemError> {
        self.parts.alarms.lose(rank, true)?;
        self.parts.remote.as_ref().map_or(Ok(()), |remote| remote.abort(rank as usize))
    }
}
