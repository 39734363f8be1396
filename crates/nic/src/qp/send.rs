//! The send side of a QP: how far its ring is announced, executed and completed.

use super::{OnSendError, QpAttrs, QpState};
use crate::engine::Flight;
use crate::stats::QpStats;
use crate::violation::Rule;
use std::collections::VecDeque;
use warpverbs_mem::{Block, KeyHint, Kind, QueueRecord, SendRing};
use warpverbs_mlx5::num::Qpn;
use warpverbs_mlx5::syndrome::Syndrome;

/// The first error of a send queue; later ones, flushes above all, follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// Index of the WQE's first WQEBB, not masked.
    pub index: u64,
    /// What the error CQE said.
    pub syndrome: Syndrome,
    /// The rule that was broken, unless the error came from a timer or from the peer's state.
    pub rule: Option<Rule>,
}

/// A ring that was heard but not yet acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    None,
    /// The doorbell was dropped; the record is read after so many polls, or never.
    Dropped {
        polls: Option<u32>,
    },
    /// The record counts and lags behind this doorbell value.
    AwaitRecord {
        doorbell: u16,
        polls: u32,
    },
}

/// The requester's half of a QP. Indexes are 64-bit counts of WQEBBs:
/// `reported ≤ retired ≤ next ≤ posted`.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(crate) qpn: Qpn,
    pub(crate) slot: u32,
    pub(crate) pd: u32,
    pub(crate) state: QpState,
    pub(crate) on_error: OnSendError,
    /// `None` in a QP that only consumes.
    pub(crate) ring: Option<SendRing>,
    pub(crate) record: QueueRecord,
    pub(crate) depth: u64,
    /// Slot of the CQ.
    pub(crate) cq: u32,
    /// Announced up to here.
    pub(crate) posted: u64,
    /// Started up to here.
    pub(crate) next: u64,
    /// Finished up to here.
    pub(crate) retired: u64,
    /// Covered by a CQE up to here: what a poster may reuse.
    pub(crate) reported: u64,
    /// Started and not finished, in order.
    pub(crate) flight: VecDeque<Flight>,
    /// Copy engine that works for what is in flight.
    pub(crate) lane: Kind,
    /// In the run list.
    pub(crate) queued: bool,
    /// Nothing starts before this time.
    pub(crate) wake: Option<u64>,
    /// A fault: nothing starts at all.
    pub(crate) stuck: bool,
    /// The SQ_DRAINED event of this SQD was raised.
    pub(crate) drained: bool,
    /// What is wrong with the announcement itself; the next WQE fails for it.
    pub(crate) poison: Option<Rule>,
    pub(crate) peer_qpn: u32,
    /// Another device executes the WQEs. Does not change.
    pub(crate) proxied: bool,
    /// The peer is not a QP of this NIC.
    pub(crate) remote: bool,
    /// Where the peer was found last.
    pub(crate) peer_slot: u32,
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    pub(crate) attrs: QpAttrs,
    pub(crate) local_hint: KeyHint,
    pub(crate) notice: Notice,
    /// A fault: so many doorbells are still lost, each recovered after so many polls.
    pub(crate) lose: u32,
    pub(crate) lose_recovery: Option<u32>,
    /// Copies of announced WQEBBs by slot, if rewrites are watched for.
    pub(crate) snapshot: Vec<Block>,
    pub(crate) first_error: Option<FirstError>,
    pub(crate) stats: QpStats,
}

impl SendQueue {
    /// Forgets all work; what was in flight is handed out, to be dropped without a lock held.
    pub(crate) fn reset(&mut self) -> VecDeque<Flight> {
        (self.posted, self.next, self.retired, self.reported) = (0, 0, 0, 0);
        (self.wake, self.poison, self.first_error) = (None, None, None);
        (self.notice, self.lose, self.drained) = (Notice::None, 0, false);
        self.attrs = QpAttrs::default();
        self.remote = false;
        self.restore_retries();
        std::mem::take(&mut self.flight)
    }

    /// A request was answered: the counters of patience start anew.
    #[inline]
    pub(crate) fn restore_retries(&mut self) {
        self.retries_left = self.attrs.retry.unwrap_or(0);
        self.rnr_left = self.attrs.rnr_retry.unwrap_or(0);
    }
}
