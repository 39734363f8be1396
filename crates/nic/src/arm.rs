//! Completion events: one for each time that the consumer arms its CQ.

use std::fmt;
use std::sync::Arc;
use warpverbs_mem::CompletionRecord;
use warpverbs_mlx5::doorbell::CqArm;

/// What is done when an armed CQ has a completion. It is called by the engine, with the NIC's lock
/// held: it must not wait and must not call the NIC. It says whether the event was delivered; one
/// that was not is tried again with the next slice.
#[derive(Clone)]
pub struct CompletionNotice(Arc<dyn Fn() -> bool + Send + Sync>);

impl CompletionNotice {
    /// Calls `notify`.
    pub fn new(notify: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }
}

impl fmt::Debug for CompletionNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompletionNotice")
    }
}

/// The arm word of a CQ, and which of its values has had its event.
#[derive(Debug)]
pub(crate) struct ArmWatch {
    notice: CompletionNotice,
    /// Sequence number of the last arm that had its event.
    served: Option<u8>,
    /// CQEs up to the newest that a consumer who wants solicited ones waits for.
    solicited: u64,
}

impl ArmWatch {
    /// Nothing is armed. The word 0 is the first arm of a consumer, so the record gets a value that
    /// no consumer writes.
    pub(crate) fn new(notice: CompletionNotice, record: &CompletionRecord) -> Self {
        record.disarm();
        Self { notice, served: None, solicited: 0 }
    }

    /// The CQE before `produced` asks for an event of its own.
    pub(crate) fn solicit(&mut self, produced: u64) {
        self.solicited = produced;
    }

    /// Raises the event if the CQ is armed and has CQEs beyond the index that it was armed with.
    pub(crate) fn look(&mut self, record: &CompletionRecord, produced: u64) {
        let Some(word) = record.arm() else { return };
        let arm = CqArm::from_word(word);
        if self.served == Some(arm.sn) {
            return;
        }
        let reached = if arm.solicited_only { self.solicited } else { produced };
        // Indexes are modulo 2^24; what is further ahead than a CQ is long lies behind.
        let ahead = (reached as u32).wrapping_sub(arm.ci) & 0xff_ffff;
        if (1..1 << 23).contains(&ahead) && (self.notice.0)() {
            self.served = Some(arm.sn);
        }
    }
}
