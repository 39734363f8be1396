//! Events and violations.

use crate::event::Events;
use crate::stats::QpStats;
use crate::violation::{Log, QueueKind, Rule, Violation};

/// Events, violations, and the counters of QPs that are gone.
pub(crate) struct Diagnostics {
    pub(crate) events: Events,
    pub(crate) log: Log,
    pub(crate) past: QpStats,
}

impl Diagnostics {
    /// Records a violation of QP `qpn`.
    pub(crate) fn report(&mut self, qpn: u32, queue: QueueKind, index: u64, rule: Rule) {
        self.log.push(Violation { qpn, queue, index, rule });
    }
}
